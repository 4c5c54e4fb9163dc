"""Evaluation of an agent at an OpenSpiel game: opponents by name, matches, and play held against exact values."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyspiel

from muzero.config.runs import run_folder
from muzero.evaluation.arena import is_lost, opening_state, play_match, slug, write_records
from muzero.evaluation.connect_four import ConnectFourSolver, is_connect_four
from muzero.evaluation.exact import exhaustive as play_exhaustively
from muzero.evaluation.exact import require_solution
from muzero.evaluation.players import (
    AlphaBetaPlayer,
    PerfectPlayer,
    Player,
    RandomPlayer,
    RolloutPlayer,
)

_SETTING = "evaluation.opponents"
_NUMBERED = {"rollout": "rollout:<simulations>", "alphabeta": "alphabeta:<depth>"}


def make_opponent(
    name: str, game: pyspiel.Game, load_run: Callable[[Path], Player] | None = None
) -> Player:
    """The opponent that `name` stands for: `random`, `rollout:<simulations>`, `alphabeta:<depth>`, `perfect`, or a run.

    Args:
        name: As in `EvaluationConfig.opponents`.
        game: The game to be played.
        load_run: Makes a player of a run, by its folder.

    Raises:
        ValueError: There is no such opponent, or the game is too large for `perfect` (connect four: its solver is missing).
    """
    kind, _, argument = name.partition(":")
    if name == "random":
        return RandomPlayer()
    if name == "perfect":
        if is_connect_four(game):
            return PerfectPlayer(ConnectFourSolver(f"{_SETTING}: perfect"))
        return PerfectPlayer(require_solution(game, f"{_SETTING}: perfect"))
    if kind in _NUMBERED:
        if not (argument.isascii() and argument.isdigit() and int(argument) > 0):
            raise ValueError(
                f"{_SETTING}: {name!r} must be {_NUMBERED[kind]} with at least 1, such as {kind}:"
                f"{100 if kind == 'rollout' else 4}"
            )
        number = int(argument)
        return RolloutPlayer(number) if kind == "rollout" else AlphaBetaPlayer(game, number)
    if load_run is not None and name and (folder := run_folder(name)).is_dir():
        return load_run(folder)
    raise ValueError(
        f"{_SETTING}: {name!r} is none of random, rollout:<simulations>, alphabeta:<depth>, perfect, and no folder of a run is found there"
    )


def evaluate_board(
    player: Player,
    opponent: str,
    rival: Player,
    game: pyspiel.Game,
    *,
    games: int,
    max_opening_moves: int,
    seed: int,
    max_moves: int | None = None,
    records: Path | None = None,
) -> dict[str, Any]:
    """Play a match and report it as JSON types.

    Against perfect play the openings are not lost already, as far as there are such; `lost_openings` counts the others.

    Args:
        player: Who is evaluated.
        opponent: Name of `rival` in the report.
        rival: Who is played against, such as `make_opponent(opponent, game)`.
        game: The game.
        games: Number of games, half of them in each seat.
        max_opening_moves: Each pair of games begins with up to so many random moves.
        seed: Decides openings, chance events and the players' draws.
        max_moves: Games of so many actions are cut and count as drawn.
        records: File that the games are written to, one JSON object a line.
    """
    solution = rival.solution if isinstance(rival, PerfectPlayer) else None
    result = play_match(
        player,
        rival,
        game,
        games=games,
        max_opening_moves=max_opening_moves,
        seed=seed,
        only_sound_openings=solution,
        max_moves=max_moves,
    )
    if records is not None:
        write_records(records, result.records)
    report = {"opponent": opponent, **result.summary()}
    if solution is not None:
        report["lost_openings"] = sum(
            is_lost(solution, opening_state(game, record.setup), record.setup.first_seat)
            for record in result.distinct()
        )
    return report


def evaluate_exhaustively(player: Player, game: pyspiel.Game) -> dict[str, Any]:
    """The player's moves at every position, and its losses to every sequence of replies, as JSON types.

    Raises:
        ValueError: The game is too large.
    """
    report = play_exhaustively(player, require_solution(game, "evaluation.exhaustive"))
    return {
        "optimal_move_rate": report.optimal_move_rate,
        "positions": report.positions,
        "losing_lines": report.losing_lines,
        "losing_lines_as_first": report.losing_lines_by_seat[0],
        "losing_lines_as_second": report.losing_lines_by_seat[1],
        "lines": sum(report.lines_by_seat),
    }


def evaluate_opponents(
    player: Player,
    rivals: Mapping[str, Player],
    game: pyspiel.Game,
    *,
    games: int,
    max_opening_moves: int,
    seed: int,
    exhaustive: bool = False,
    max_moves: int | None = None,
    folder: Path | None = None,
) -> list[dict[str, Any]]:
    """`evaluate_board` against each rival; with `exhaustive` each report also holds `evaluate_exhaustively`.

    `folder` gets the games against each opponent, as `games_<opponent>.jsonl`.
    """
    everywhere = evaluate_exhaustively(player, game) if exhaustive else {}
    files = _game_files(list(rivals))
    return [
        {
            **evaluate_board(
                player,
                opponent,
                rival,
                game,
                games=games,
                max_opening_moves=max_opening_moves,
                seed=seed,
                max_moves=max_moves,
                records=None if folder is None else folder / file,
            ),
            **everywhere,
        }
        for (opponent, rival), file in zip(rivals.items(), files, strict=True)
    ]


def _game_files(opponents: list[str]) -> list[str]:
    """A file for each opponent; runs whose folders have the same name are told apart by a number."""
    slugs = [slug(Path(name).name) for name in opponents]
    return [
        f"games_{slug}.jsonl" if slugs.count(slug) == 1 else f"games_{slug}_{number}.jsonl"
        for number, slug in enumerate(slugs)
    ]
