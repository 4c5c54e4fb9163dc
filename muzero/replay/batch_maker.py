"""From rows of the ring to a batch: observations, actions and the targets, computed when a position is sampled.

Letters: `B` samples, `K` unrolled steps, `n` positions, `*O` shape of a stacked observation.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from muzero.config.schema import TargetsConfig
from muzero.replay.batch import Batch
from muzero.replay.storage import IndexArray, Storage
from muzero.targets import unroll_targets, value_targets


class BatchMaker:
    """Makes batches of the positions of a ring.

    Raises ValueError for settings of the targets that contradict each other.
    """

    def __init__(
        self,
        storage: Storage,
        targets: TargetsConfig,
        *,
        num_unroll_steps: int,
        with_next_observation: bool,
    ) -> None:
        if targets.bootstrap not in ("search", "target_network"):
            raise ValueError(
                f"targets.bootstrap is {targets.bootstrap!r}; it must be 'search' or 'target_network'"
            )
        self._stored_bootstrap = targets.bootstrap == "search"
        if not self._stored_bootstrap and targets.td_lambda != 1.0:
            raise ValueError(
                f"targets.td_lambda is {targets.td_lambda}, but targets.bootstrap=target_network values one bootstrap per "
                "target only; set td_lambda=1 or bootstrap=search"
            )
        self._storage, self._targets = storage, targets
        self.num_unroll_steps = num_unroll_steps
        self._with_next_observation = with_next_observation

    def errors(self, rows: IndexArray) -> npt.NDArray[np.float64]:
        """`[n]` difference of the stored root value and the target that a sample would get, bootstrapped from stored values."""
        targets, positions = self._targets, self._storage.targets
        value = value_targets(
            positions, rows, targets.discount, targets.td_steps, targets.td_lambda
        )
        error: npt.NDArray[np.float64] = np.abs(
            positions.root_value[rows].astype(np.float64) - value
        )
        return error

    def make(
        self,
        slot: IndexArray,
        random_action: npt.NDArray[np.int64],
        weight: npt.NDArray[np.float32],
    ) -> Batch:
        """The batch of positions `slot[B]`, with actions `random_action[B, K]` behind an end and importance `weight[B]`.

        Observations behind an end repeat the last real one.
        """
        storage, columns, targets = self._storage, self._storage.columns, self._targets
        unrolled = unroll_targets(
            storage.targets,
            slot,
            self.num_unroll_steps,
            targets.discount,
            targets.td_steps,
            targets.td_lambda,
            self._stored_bootstrap,
        )
        stored_action = columns["action"][unrolled.row[:, :-1]]
        return Batch(
            observation=storage.observations(slot),
            next_observation=(
                self._observations(unrolled.row[:, 1:]) if self._with_next_observation else None
            ),
            action=np.where(unrolled.real_action, stored_action, random_action),
            reward=unrolled.reward,
            reward_mask=unrolled.reward_mask,
            value=unrolled.value,
            value_mask=unrolled.value_mask,
            policy=unrolled.policy,
            policy_mask=unrolled.policy_mask,
            turn=unrolled.turn,
            turn_mask=unrolled.turn_mask,
            observation_mask=unrolled.observation_mask,
            bootstrap_observation=(
                None if self._stored_bootstrap else self._observations(unrolled.bootstrap_row)
            ),
            bootstrap_discount=None if self._stored_bootstrap else unrolled.bootstrap_discount,
            weight=weight,
            slot=slot,
            generation=columns["generation"][slot],
            root_value=columns["root_value"][slot],
            behaviour_version=columns["behaviour_version"][slot],
            target_version=columns["target_version"][slot],
        )

    def _observations(self, rows: IndexArray) -> npt.NDArray[Any]:
        """Observations `[B, k, *O]` of `rows[B, k]`."""
        flat = self._storage.observations(rows.reshape(-1))
        return flat.reshape(*rows.shape, *flat.shape[1:])
