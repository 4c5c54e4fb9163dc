"""Matches of two players at an OpenSpiel game, all games in lock step.

Games come in pairs: both players play the same random opening once in each seat, and no two pairs share an opening while
there are others. A game is described by its `Setup` alone, so any game of a match can be played again by itself.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyspiel

from muzero.envs.open_spiel_game import sample_chance
from muzero.evaluation.exact import TOLERANCE, ExactValues, position_key
from muzero.evaluation.players import Player
from muzero.evaluation.statistics import first_of_each, tally

_CHANCE_STREAM, _OPENING_STREAM = 3, 4  # players.py has the others
_MAX_TRIES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """All that decides a game besides its players."""

    opening: tuple[int, ...]
    """Actions played before the players are asked, chance's included."""
    first_seat: int
    """Seat of the match's first player, 0 or 1."""
    seed: int
    """Seed of the game's chance events and of the players' draws."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameRecord:
    """A finished game."""

    setup: Setup
    actions: tuple[int, ...]
    """All actions from the initial position, the opening and chance's actions included."""
    score: float
    """Return of the match's first player minus that of the second; 0 if the game was cut."""
    cut: bool = False
    """Whether the game was stopped at the limit of moves."""

    def to_json(self) -> dict[str, Any]:
        """As JSON types; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "GameRecord":
        """Raises ValueError if `fields` is not what `to_json` gives."""
        try:
            setup = fields["setup"]
            return cls(
                setup=Setup(
                    opening=tuple(int(action) for action in setup["opening"]),
                    first_seat=int(setup["first_seat"]),
                    seed=int(setup["seed"]),
                ),
                actions=tuple(int(action) for action in fields["actions"]),
                score=float(fields["score"]),
                cut=bool(fields["cut"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the record of a game: {fields!r}") from error


def slug(name: object) -> str:
    """A name as part of a file's: words joined by hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", str(name)).strip("-")


def write_records(path: Path, records: Sequence[GameRecord]) -> None:
    """One game a line, as JSON."""
    path.write_text(
        "".join(json.dumps(record.to_json()) + "\n" for record in records), encoding="utf-8"
    )


def read_records(path: Path) -> list[GameRecord]:
    """What `write_records` wrote."""
    return [
        GameRecord.from_json(json.loads(line))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The games of a match, counted for its first player."""

    records: list[GameRecord]

    def distinct(self) -> list[GameRecord]:
        """The games without those that an earlier one equals move for move, seats included."""
        return first_of_each(
            self.records, [(record.setup.first_seat, record.actions) for record in self.records]
        )

    def summary(self) -> dict[str, Any]:
        """Counts, rates and intervals, in both seats together and in each, as JSON types.

        A game played twice says nothing new: all figures are of the distinct games, `games` of them; `games_played` and
        `duplicate_games` tell of the others.
        """
        records = self.distinct()
        return {
            **tally([record.score for record in records]),
            "as_first": tally([r.score for r in records if r.setup.first_seat == 0]),
            "as_second": tally([r.score for r in records if r.setup.first_seat == 1]),
            "games_played": len(self.records),
            "duplicate_games": len(self.records) - len(records),
            "cut_games": sum(record.cut for record in records),
        }


def play_match(
    first: Player,
    second: Player,
    game: pyspiel.Game,
    *,
    games: int,
    max_opening_moves: int,
    seed: int,
    only_sound_openings: ExactValues | None = None,
    max_moves: int | None = None,
) -> MatchResult:
    """Play `games` games, the openings and seats being those of `draw_setups`."""
    setups = draw_setups(
        game,
        games=games,
        max_opening_moves=max_opening_moves,
        seed=seed,
        only_sound_openings=only_sound_openings,
    )
    return MatchResult(play_games(first, second, game, setups, max_moves=max_moves))


def draw_setups(
    game: pyspiel.Game,
    *,
    games: int,
    max_opening_moves: int,
    seed: int,
    only_sound_openings: ExactValues | None = None,
) -> list[Setup]:
    """Openings of 0 to `max_opening_moves` random moves, each for two games with the seats swapped.

    With the solution of the game, openings that are lost for the first player are left out: a pair begins with a drawn
    opening, or, in games without draws, with one opening for each seat that is won. Where the wishes cannot be met (with 0
    opening moves, say) openings come again, and at last the initial position is taken, lost or not.

    An odd number of games leaves the last one without its counterpart. More games never change the earlier ones.
    """
    taken: set[str] = set()
    setups: list[Setup] = []
    for pair in range((games + 1) // 2):
        rng = np.random.default_rng([seed, pair, _OPENING_STREAM])
        openings = _draw_pair(game, max_opening_moves, rng, taken, only_sound_openings)
        taken.update(position_key(state) for state in openings)
        game_seeds = rng.integers(2**32, size=2)
        setups += [
            Setup(opening=tuple(state.history()), first_seat=seat, seed=int(game_seeds[seat]))
            for seat, state in enumerate(openings)
        ]
    return setups[:games]


def _draw_pair(
    game: pyspiel.Game,
    max_moves: int,
    rng: np.random.Generator,
    taken: set[str],
    solution: ExactValues | None,
) -> tuple[pyspiel.State, pyspiel.State]:
    """Openings for the first player in seat 0 and in seat 1, the same one if possible."""

    def draw(seats: tuple[int, ...], fresh: bool) -> pyspiel.State | None:
        for _ in range(_MAX_TRIES):
            state = _random_opening(game, int(rng.integers(max_moves + 1)), rng)
            if state.is_terminal() or (fresh and position_key(state) in taken):
                continue
            if solution is None or not any(is_lost(solution, state, seat) for seat in seats):
                return state
        return None

    for fresh in (True, False):
        shared = draw((0, 1), fresh)
        if shared is not None:
            return shared, shared
        as_first, as_second = draw((0,), fresh), draw((1,), fresh)
        if as_first is not None and as_second is not None:
            return as_first, as_second
    initial = _random_opening(game, 0, rng)
    return initial, initial


def is_lost(solution: ExactValues, state: pyspiel.State, seat: int) -> bool:
    """Whether the rewards still to come are below 0 for `seat` under best play."""
    value = solution.value(state)
    return (value if seat == state.current_player() else -value) < -TOLERANCE


def _random_opening(game: pyspiel.Game, num_moves: int, rng: np.random.Generator) -> pyspiel.State:
    state = game.new_initial_state()
    sample_chance(state, rng)
    for _ in range(num_moves):
        if state.is_terminal():
            break
        state.apply_action(int(rng.choice(state.legal_actions())))
        sample_chance(state, rng)
    return state


def opening_state(game: pyspiel.Game, setup: Setup) -> pyspiel.State:
    """The position from which the players take over."""
    state = game.new_initial_state()
    for action in setup.opening:
        state.apply_action(action)
    return state


def play_games(
    first: Player,
    second: Player,
    game: pyspiel.Game,
    setups: Sequence[Setup],
    *,
    max_moves: int | None = None,
) -> list[GameRecord]:
    """Play the games of `setups` side by side; games that reach `max_moves` actions are cut and count as drawn."""
    states = [opening_state(game, setup) for setup in setups]

    def is_live(state: pyspiel.State) -> bool:
        is_cut = max_moves is not None and state.move_number() >= max_moves
        return not state.is_terminal() and not is_cut

    while any(is_live(state) for state in states):
        # One player after the other: after the first round every game is in phase and the batches are full.
        for player, swap in ((first, 0), (second, 1)):
            rows = [
                row
                for row, (state, setup) in enumerate(zip(states, setups, strict=True))
                if is_live(state) and state.current_player() == setup.first_seat ^ swap
            ]
            actions = player.select(
                [states[row] for row in rows], [setups[row].seed for row in rows]
            )
            for row, action in zip(rows, actions, strict=True):
                _apply(states[row], action, setups[row].seed, player)
    return [_record(state, setup) for state, setup in zip(states, setups, strict=True)]


def _apply(state: pyspiel.State, action: int, seed: int, player: Player) -> None:
    if action not in state.legal_actions():
        raise ValueError(
            f"{type(player).__name__} chose action {action}, which is not legal at:\n{state}"
        )
    state.apply_action(action)
    sample_chance(state, np.random.default_rng([seed, state.move_number(), _CHANCE_STREAM]))


def _record(state: pyspiel.State, setup: Setup) -> GameRecord:
    cut = not state.is_terminal()
    score = (
        0.0
        if cut
        else state.player_return(setup.first_seat) - state.player_return(1 - setup.first_seat)
    )
    return GameRecord(setup=setup, actions=tuple(state.history()), score=score, cut=cut)
