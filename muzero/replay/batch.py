"""A batch: what one learner step eats.

Letters: `B` samples, `K` unrolled steps, `A` actions, `*O` shape of a stacked observation.
Step `k` of a sample is the position `k` moves behind the sampled one.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`B` sampled positions, each with `K` unrolled steps and its targets.

    Masks are 1.0 or 0.0. Behind a terminal state reward and value targets are 0 with mask 1 and the policy mask is 0;
    behind a truncation all masks are 0. The policy mask is 0 as well at positions that were searched fast (playout caps).
    Actions behind an end are drawn at random.
    """

    observation: npt.NDArray[Any]
    """`[B, *O]` observation of step 0."""
    next_observation: npt.NDArray[Any] | None
    """`[B, K, *O]` observations of steps 1 to K, for the consistency loss; None if not asked for."""
    action: npt.NDArray[np.int64]
    """`[B, K]` action from step k to k+1."""
    reward: FloatArray
    """`[B, K]` reward target of that action."""
    reward_mask: FloatArray
    """`[B, K]`."""
    value: FloatArray
    """`[B, K+1]` value target, seen by the player to move at step k; see `bootstrap_*`."""
    value_mask: FloatArray
    """`[B, K+1]`."""
    policy: FloatArray
    """`[B, K+1, A]` policy target; 0 where masked."""
    policy_mask: FloatArray
    """`[B, K+1]`."""
    turn: FloatArray
    """`[B, K]` 1.0 where the mover of the edge moves again."""
    turn_mask: FloatArray
    """`[B, K]` 1.0 where the edge is real and does not end the game."""
    observation_mask: FloatArray
    """`[B, K]` 1.0 where `next_observation` is a real position."""
    bootstrap_observation: npt.NDArray[Any] | None
    """`[B, K+1, *O]` observation that each value target bootstraps from, if the learner values it itself: then `value` is
    the reward part only and the learner adds `bootstrap_discount` times its value. None if `value` is complete."""
    bootstrap_discount: FloatArray | None
    """`[B, K+1]` product of the signed discounts up to there; 0 where nothing is bootstrapped."""
    weight: FloatArray
    """`[B]` importance weight, at most 1."""
    slot: npt.NDArray[np.int64]
    """`[B]` position in the ring."""
    generation: npt.NDArray[np.int64]
    """`[B]` generation of that position; write-backs with an old one are dropped."""
    root_value: FloatArray
    """`[B]` stored search value of step 0."""
    behaviour_version: npt.NDArray[np.int32]
    """`[B]` weights version that acted at step 0."""
    target_version: npt.NDArray[np.int32]
    """`[B]` weights version that searched the policy target of step 0."""
