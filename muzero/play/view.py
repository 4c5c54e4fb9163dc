"""A session as one JSON object: everything that a page shows at once."""

from typing import Any

from muzero.play.analyst import MAX_SIMULATIONS
from muzero.play.insight import losses, mark_of, root_moves, value_of
from muzero.play.session import SIDES, Session


def view(session: Session, ply: int | None = None) -> dict[str, Any]:
    """The game as it stands, with the search of the position after `ply` moves (None: the newest).

    Values of positions are seen by player 0; those of a search, and its q, by its player to move.
    Raises Refusal if there is no such position.
    """
    with session.lock:
        shown = session.position_at(ply)
        place = len(session.moves) if ply is None else ply
        newest = session.position
        return {
            "version": session.version,
            "game": {
                "name": session.config.game,
                "parameters": {
                    name: str(value) for name, value in session.config.parameters.items()
                },
                "num_players": session.num_players,
                "utility": [session.game.min_utility(), session.game.max_utility()],
            },
            "settings": {
                "side": session.side,
                "sides": [side for side in SIDES if session.num_players > 1 or side != "second"],
                "step": session.step,
                "steps": session.analyst.checkpoints.steps(),
                "simulations": session.num_simulations,
                "max_simulations": MAX_SIMULATIONS,
            },
            "turn": _turn(session),
            "to_play": newest.to_play,
            "returns": [float(x) for x in newest.state.returns()] if newest.is_over else None,
            "shown": place,
            "is_newest": shown is newest,
            "board": shown.board.as_dict(),
            "last_cells": list(session.moves[place - 1].cells) if place else [],
            "legal": [
                {
                    "action": action,
                    "name": name,
                    "cells": session.reader.cells_of(shown.board, action, name),
                }
                for action, name in session.legal_moves(ply)
            ],
            "moves": _moves(session),
            "values": _values(session),
            "unsearched": sum(
                position.analysis is None and not position.is_over for position in session.positions
            ),
            "analysis": _analysis(session, place),
        }


def _turn(session: Session) -> str:
    if session.position.is_over:
        return "over"
    return "person" if session.is_persons_turn else "agent"


def _moves(session: Session) -> list[dict[str, Any]]:
    return [
        {
            "ply": ply,
            "player": move.player,
            "action": move.action,
            "name": move.name,
            "by_agent": move.is_agents,
            "reward": move.reward,
            "loss": loss,
            "mark": mark_of(session, loss),
        }
        for ply, (move, loss) in enumerate(zip(session.moves, losses(session), strict=True))
    ]


def _values(session: Session) -> list[dict[str, Any]]:
    """Values of all positions for player 0; at the end, what it got in all."""
    values = []
    for position in session.positions:
        value, source = value_of(session, position)
        if source == "result":
            value = float(position.state.returns()[0])
        values.append({"value": value, "source": source})
    return values


def _analysis(session: Session, ply: int) -> dict[str, Any] | None:
    position = session.positions[ply]
    analysis = position.analysis
    if analysis is None:
        return None
    return {
        "ply": ply,
        "step": analysis.step,
        "planned": analysis.planned,
        "made": analysis.made,
        "to_play": analysis.to_play,
        "value": analysis.value,
        "network_value": analysis.network_value,
        "best_action": analysis.best_action,
        "best_value": analysis.best_value,
        "depth": analysis.depth,
        "num_nodes": int((analysis.tree.visits > 0).sum()),
        "moves": root_moves(session, position),
    }
