"""Checks of the section `evaluation`."""

import difflib
from collections.abc import Iterator
from pathlib import Path

from muzero.config.runs import PREFIX, builtin_agents
from muzero.config.schema import Config

_COUNTED = {"rollout": "simulations", "alphabeta": "moves"}
_FIXED = ("random", "perfect")


def evaluation_problems(config: Config) -> Iterator[str]:
    """What keeps an agent from being evaluated, one sentence each."""
    wished, games = config.evaluation.min_distinct_games, config.evaluation.games
    if wished is not None and 0 < games < wished:
        yield f"evaluation.min_distinct_games is {wished}; it must be at most evaluation.games, {games}"
    builtin = [PREFIX + name for name in builtin_agents()]
    for opponent in config.evaluation.opponents:
        kind, colon, number = opponent.partition(":")
        if kind in _COUNTED and colon:
            if not (number.isdecimal() and int(number) >= 1):
                yield f"evaluation.opponents has {opponent!r}; after {kind}: comes a number of {_COUNTED[kind]}, at least 1"
        elif opponent not in (*_FIXED, *builtin) and not (Path(opponent) / "config.yaml").is_file():
            known = [*_FIXED, "rollout:100", "alphabeta:4", *builtin]
            near = difflib.get_close_matches(opponent, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield (
                f"evaluation.opponents has {opponent!r}, which is neither random, rollout:<simulations>, alphabeta:<depth>, perfect nor "
                f"a run (a folder, or {', '.join(builtin)}){hint}"
            )
