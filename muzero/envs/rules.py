"""What the adapters enforce alike: legal actions, and who moves when.

Letters: `B` rows (games), `A` actions.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.envs.base import BoolArray, EnvSpec, IntArray

NUM_PROBE_GAMES = 32
"""Random games that are played to find out what a game does not declare."""
MAX_PROBE_STEPS = 2_000
"""Most steps of such a game."""


def check_actions(spec: EnvSpec, legal: BoolArray, actions: npt.NDArray[Any]) -> None:
    """Raises ValueError unless `actions[B]` are legal by `legal[B, A]`."""
    if actions.shape != legal.shape[:1] or actions.dtype.kind not in "iu":
        raise ValueError(
            f"{spec.name}: actions must be {len(legal)} integers, they are of shape {actions.shape} and dtype "
            f"{actions.dtype}"
        )
    valid = (actions >= 0) & (actions < spec.num_actions)
    valid &= legal[np.arange(len(actions)), np.where(valid, actions, 0)]
    if not valid.all():
        row = int(np.argmin(valid))
        raise ValueError(
            f"{spec.name}: action {actions[row]} is illegal in row {row}; legal: {np.flatnonzero(legal[row]).tolist()}"
        )


def resolve_turn_order(setting: str, num_players: int, repeats_turns: Callable[[], bool]) -> str:
    """`single`, `alternating` or `repeated`; `repeats_turns` tells whether random games showed a player move twice.

    Raises:
        ValueError: if `setting` (env.turn_order) is unknown or contradicts those games.
    """
    allowed = ("auto", "alternating", "repeated")
    if setting not in allowed:
        raise ValueError(f"env.turn_order={setting!r} must be one of {', '.join(allowed)}")
    if num_players == 1:
        return "single"
    if setting == "repeated":
        return "repeated"
    if not repeats_turns():
        return "alternating"
    if setting == "alternating":
        raise ValueError(
            "env.turn_order=alternating, but in this game a player may move twice in a row; "
            "set env.turn_order=repeated or auto"
        )
    return "repeated"


def check_turns(spec: EnvSpec, before: IntArray, after: IntArray, ended: BoolArray) -> None:
    """Raises ValueError if turns alternate but the mover of `before[B]` is to move again in a row that goes on."""
    if spec.turn_order != "alternating":
        return
    again = (after == before) & ~ended
    if again.any():
        raise ValueError(
            f"{spec.name}: player {after[np.argmax(again)]} is to move twice in a row, though env.turn_order says that "
            "turns alternate (found out by random games if it is auto); set env.turn_order=repeated"
        )


def check_batch_size(spec: EnvSpec, saved: int, batch_size: int) -> None:
    """Raises ValueError if a state to be restored has another number of rows."""
    if saved != batch_size:
        raise ValueError(
            f"{spec.name}: the saved state has {saved} games, this environment has {batch_size}; "
            "restore it with the number of games that it was saved with"
        )
