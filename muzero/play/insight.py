"""What the agent thought of a game: blunders, the line it imagined beside the one that was played, its tree node by node.

Values of lines are all seen by one player, the one to move where the line begins; those of the game by player 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mcts.base import ROOT_INDEX
from muzero.envs.states import State
from muzero.play.analysis import Analysis
from muzero.play.analyst import MAX_UNROLL
from muzero.play.refusal import Refusal
from muzero.play.session import Position, Session

BLUNDER, MISTAKE = 0.4, 0.2
"""Value lost by a move, as a share of the most that can be lost from an even position."""
MAX_LINE = 12
MAX_LINES = 24


def value_of(session: Session, position: Position) -> tuple[float | None, str]:
    """Value of a position for player 0, and whose it is.

    `search` (q of the best move), `network`, `result` (the game is over: nothing is to come) or `none`.
    """
    if position.is_over:
        return 0.0, "result"
    sign = -1.0 if position.to_play == 1 else 1.0
    if position.analysis is not None:
        return sign * position.analysis.best_value, "search"
    if position.network_value is not None:
        return sign * position.network_value, "network"
    return None, "none"


def losses(session: Session) -> list[float | None]:
    """Value that each move lost, seen by who moved; None unless both positions were searched (or the game was over)."""
    found: list[float | None] = []
    for ply, move in enumerate(session.moves):
        before, after = session.positions[ply], session.positions[ply + 1]
        if before.analysis is None or not (after.analysis or after.is_over):
            found.append(None)
            continue
        value, _ = value_of(session, after)
        assert value is not None
        own = value if move.player == 0 else -value
        gained = move.reward + session.analyst.discount * own
        found.append(before.analysis.best_value - gained)
    return found


def mark_of(session: Session, loss: float | None) -> str:
    """`blunder`, `mistake` or nothing."""
    low, high = session.game.min_utility(), session.game.max_utility()
    most = (high - low) / 2
    if loss is None or not math.isfinite(most) or most <= 0:
        return ""
    share = loss / most
    return "blunder" if share >= BLUNDER else "mistake" if share >= MISTAKE else ""


def root_moves(session: Session, position: Position) -> list[dict[str, Any]]:
    """A search's root moves, the best first by visits and q; with the line that follows where it was visited."""
    analysis = position.analysis
    if analysis is None:
        return []
    names = dict(_names(position.state))
    nodes = {int(analysis.tree.action[node]): node for node in analysis.tree.children(ROOT_INDEX)}
    moves: list[dict[str, Any]] = []
    for action, name in names.items():
        moves.append(
            {
                "action": action,
                "name": name,
                "cells": session.reader.cells_of(position.board, action, name),
                "prior": float(analysis.prior[action]),
                "visits": int(analysis.visits[action]),
                "q": float(analysis.qvalues[action]),
                "policy": float(analysis.policy[action]),
                "best": action == analysis.best_action,
            }
        )
    moves.sort(key=lambda move: (not move["best"], -move["visits"], -move["prior"]))
    for move in moves[:MAX_LINES]:
        node = nodes.get(move["action"])
        if node is not None:
            line = analysis.tree.line(node, MAX_LINE)
            move["line"] = imagined_line(session, position, analysis, line)
    return moves


def imagined_line(
    session: Session, position: Position, analysis: Analysis, nodes: Sequence[int]
) -> list[dict[str, Any]]:
    """Nodes of a tree that follow each other, as steps: what was imagined, and what the rules say to it (`_Followed.status`).

    `reward` and `value` (search), `network_value` are seen by the player to move at the position.
    """
    tree, steps = analysis.tree, []
    state: State | None = position.state
    sign = 1.0
    for node in nodes:
        action = int(tree.action[node])
        followed = _follow(session, state, action)
        state = followed.state
        reward = sign * float(tree.reward[node])
        sign *= math.copysign(1.0, tree.discount[node]) if tree.discount[node] else 0.0
        steps.append(
            {
                "node": node,
                "action": action,
                "name": followed.name or f"#{action}",
                "status": followed.status,
                "cells": list(followed.cells),
                "visits": int(tree.visits[node]),
                "prior": float(tree.prior[node]),
                "reward": reward,
                "value": sign * float(tree.value[node]),
                "network_value": sign * float(tree.network_value[node]),
            }
        )
    return steps


def tree_children(session: Session, ply: int, node: int) -> dict[str, Any]:
    """Children of a node of a position's tree; raises Refusal if it was not searched or has no such node."""
    position = session.position_at(ply)
    analysis = position.analysis
    if analysis is None:
        raise Refusal("unknown", f"the position after {ply} moves was not searched")
    tree = analysis.tree
    if not 0 <= node < len(tree.parent) or (node != ROOT_INDEX and tree.parent[node] < 0):
        raise Refusal("unknown", f"node={node}: the tree has no such node")
    state: State | None = position.state
    for above in tree.path(node):
        state = _follow(session, state, int(tree.action[above])).state
    children = []
    for child in tree.children(node):
        action = int(tree.action[child])
        followed = _follow(session, state, action)
        children.append(
            {
                "node": child,
                "action": action,
                "name": followed.name or f"#{action}",
                "status": followed.status,
                "visits": int(tree.visits[child]),
                "prior": float(tree.prior[child]),
                "reward": float(tree.reward[child]),
                "q": float(tree.q[child]),
                "value": float(tree.value[child]),
                "network_value": float(tree.network_value[child]),
                "num_children": int((tree.parent == child).sum()),
            }
        )
    return {"ply": ply, "node": node, "children": children}


def compare_lines(session: Session, version: int, ply: int) -> dict[str, Any]:
    """The line that the agent imagined after `ply` moves beside the moves that were played, and how far its values drift.

    `imagined`: the principal variation of the search, if there was one; each step with `real_value` and `real_reward`, the
    network's value of the position that the rules lead to and its true reward: null behind an impossible move.
    `played`: the moves of the game; `value` and `reward` are the model's, which has followed the moves from the position
    without seeing anything again, `real_value` the network's at the position that was reached, `drift` their difference.
    All are seen by the player to move after `ply` moves; a finished game has the value 0.
    """
    with session.lock:
        session.check_version(version)
        position = session.position_at(ply)
        if position.is_over:
            raise Refusal("game_over", "the game is over there: nothing was imagined")
        analysis, step = position.analysis, session.step
        moves = session.moves[ply : ply + MAX_UNROLL]
        reached = [after.state for after in session.positions[ply + 1 : ply + 1 + MAX_UNROLL]]
        imagined: list[dict[str, Any]] = []
        states: list[State] = []
        if analysis is not None and (below := analysis.tree.children(ROOT_INDEX)):
            line = analysis.tree.line(below[0], MAX_LINE)
            imagined = imagined_line(session, position, analysis, line)
            state: State | None = position.state
            for stage in imagined:
                state = _follow(session, state, stage["action"]).state
                if state is None or state.is_chance_node():
                    break
                states.append(state)
    for stage in imagined:
        stage["real_value"] = stage["real_reward"] = stage["drift"] = None
    _compare(session, position, imagined, states, step)
    told = session.analyst.unroll(position.state, [move.action for move in moves], step)
    played, sign = [], 1.0
    for move, made in zip(moves, told, strict=True):
        reward = sign * made.reward
        sign *= math.copysign(1.0, made.discount) if made.discount else 0.0
        played.append(
            {
                "action": move.action,
                "name": move.name,
                "cells": list(move.cells),
                "by_agent": move.is_agents,
                "reward": reward,
                "network_value": sign * made.value,
            }
        )
    _compare(session, position, played, reached, step)
    return {"ply": ply, "to_play": position.to_play, "imagined": imagined, "played": played}


def _compare(
    session: Session,
    position: Position,
    stages: list[dict[str, Any]],
    states: Sequence[State],
    step: int,
) -> None:
    """Write what is true beside what was imagined, as far as there are states."""
    going = [state for state in states if not state.is_terminal()]
    values = iter(session.analyst.values(going, step))
    player, before = position.to_play, position.state
    for stage, state in zip(stages, states, strict=False):
        if state.is_terminal():
            value = 0.0
        else:
            value = next(values) * (1.0 if state.current_player() == player else -1.0)
        stage["real_value"] = value
        stage["real_reward"] = float(state.returns()[player] - before.returns()[player])
        stage["drift"] = stage["network_value"] - value
        before = state


@dataclass(frozen=True, slots=True)
class _Followed:
    """What the rules make of an action that was imagined."""

    status: str
    """`legal`; `impossible`: the rules do not have it; `over`: the game has ended before; `unknown`: it follows something
    impossible, or a move of chance."""
    state: State | None
    """The state behind it; None where nothing is known, and the final state behind the end."""
    name: str = ""
    cells: tuple[int, ...] = ()


def _follow(session: Session, state: State | None, action: int) -> _Followed:
    """Try an action."""
    if state is None or state.is_chance_node():
        return _Followed("unknown", None)
    if state.is_terminal():
        return _Followed("over", state)
    if action not in state.legal_actions():
        return _Followed("impossible", None)
    name = state.action_to_string(action)
    cells = session.reader.cells_of(session.reader.read(state), action, name)
    return _Followed("legal", state.child(action), name, tuple(cells))


def _names(state: State) -> list[tuple[int, str]]:
    return [(action, state.action_to_string(action)) for action in state.legal_actions()]
