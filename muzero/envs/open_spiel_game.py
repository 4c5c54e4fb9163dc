"""Loading OpenSpiel games: names and parameters are checked, and games that MuZero does not fit are refused.

OpenSpiel prints to stderr whatever it refuses, so everything that can be checked is checked before it is asked.
"""

import dataclasses
import difflib
import importlib
from typing import Any

import numpy as np
import pyspiel

from muzero.config.environments import OpenSpielConfig
from muzero.envs.rules import MAX_PROBE_STEPS, NUM_PROBE_GAMES


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """What random games tell of a game that OpenSpiel does not declare."""

    repeats_turns: bool
    """Whether a player moved twice in a row."""
    is_binary: bool
    """Whether all entries of all observation tensors were 0 or 1."""


def load_game(config: OpenSpielConfig) -> pyspiel.Game:
    """The game that `config` names.

    Raises:
        ValueError: if there is no such game, a parameter does not exist or has a wrong type, or the game is of
            a kind that this trainer cannot learn (the reason is told).
    """
    game_type = _find(config.game)
    parameters = _parameters(config, game_type.parameter_specification)
    try:
        game = pyspiel.load_game(game_type.short_name, parameters)
        game.new_initial_state()  # some parameters are refused only here
    except pyspiel.SpielError as error:
        raise ValueError(
            f"env.game={config.game} refuses env.parameters={parameters}: {error}"
        ) from error
    reason = _unsupported(game)
    if reason:
        raise ValueError(f"env.game={config.game} cannot be learned by this trainer: {reason}")
    return game


def sample_chance(state: pyspiel.State, rng: np.random.Generator) -> None:
    """Plays chance's moves in `state` until a player is to move or the game is over."""
    while state.is_chance_node():
        outcomes = state.chance_outcomes()
        draw = rng.random()
        chosen = outcomes[-1][0]  # rounding may leave a rest of `draw` behind the last outcome
        for action, probability in outcomes:
            draw -= probability
            if draw < 0:
                chosen = action
                break
        state.apply_action(chosen)


def probe(game: pyspiel.Game) -> Probe:
    """Plays random games, always the same ones."""
    from open_spiel.python.observation import make_observation

    rng = np.random.default_rng(0)
    observer = make_observation(game)
    repeats_turns, is_binary = False, True
    for _ in range(NUM_PROBE_GAMES):
        state, mover = game.new_initial_state(), None
        sample_chance(state, rng)
        for _ in range(MAX_PROBE_STEPS):
            if state.is_terminal():
                break
            repeats_turns |= mover == state.current_player()
            mover = state.current_player()
            observer.set_from(state, mover)
            is_binary = is_binary and np.array_equal(observer.tensor, observer.tensor != 0)
            legal = state.legal_actions()
            state.apply_action(legal[rng.integers(len(legal))])
            sample_chance(state, rng)
    return Probe(repeats_turns, is_binary)


def _find(name: str) -> pyspiel.GameType:
    """The registered game `name`; `module:name` imports the module that registers it first."""
    module, _, short_name = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ValueError(f"env.game={name}: cannot import {module} ({error})") from error
    types = {game_type.short_name: game_type for game_type in pyspiel.registered_games()}
    if short_name in types:
        return types[short_name]
    close = difflib.get_close_matches(short_name, types, n=3)
    hint = f"; did you mean {', '.join(close)}?" if close else ""
    raise ValueError(f"env.game={name} is not a game of OpenSpiel{hint}")


def _parameters(config: OpenSpielConfig, defaults: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(config.parameters) - set(defaults))
    if unknown:
        raise ValueError(
            f"env.parameters: {config.game} has no {', '.join(unknown)}; "
            f"it has {', '.join(sorted(defaults)) or 'no parameters'}"
        )
    values = dict(config.parameters)
    for name, value in values.items():
        default = defaults[name]
        if isinstance(default, float) and type(value) is int:
            values[name] = float(value)  # OpenSpiel refuses komi=7
        elif isinstance(default, bool | int | float | str) and type(value) is not type(default):
            raise ValueError(
                f"env.parameters.{name}={value!r} must be of type {type(default).__name__} "
                f"(as its default, {default!r})"
            )
    return values


def _unsupported(game: pyspiel.Game) -> str | None:
    """Why MuZero does not fit this game; None if it does."""
    game_type, kinds = game.get_type(), pyspiel.GameType
    if game_type.dynamics != kinds.Dynamics.SEQUENTIAL:
        return "players move simultaneously, the search needs one player to move at a time"
    if game_type.information != kinds.Information.PERFECT_INFORMATION:
        return (
            "players have hidden information, the search needs every player to see the whole state"
        )
    if game.num_players() > 2:
        return f"it has {game.num_players()} players, one or two are supported"
    if game.num_players() == 2 and game_type.utility != kinds.Utility.ZERO_SUM:
        return "it is not zero-sum, the search takes one player's gain as the other's loss"
    if game_type.chance_mode == kinds.ChanceMode.SAMPLED_STOCHASTIC:
        return (
            "it draws its chance events itself, so that games could be neither seeded nor restored"
        )
    if not game_type.provides_observation_tensor:
        return "it has no observation tensor"
    return None
