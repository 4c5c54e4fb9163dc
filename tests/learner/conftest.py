from collections.abc import Callable

import numpy as np
import pytest

from muzero.network import NetworkSpec
from muzero.replay.batch import Batch


@pytest.fixture
def make_batch() -> Callable[..., Batch]:
    return random_batch


def random_batch(
    spec: NetworkSpec,
    batch_size: int = 8,
    num_steps: int = 3,
    *,
    seed: int = 0,
    with_next_observation: bool = False,
    with_bootstrap: bool = False,
) -> Batch:
    """A batch of random numbers with about every sixth mask at 0."""
    rng = np.random.default_rng(seed)
    shape = spec.observation_shape

    def observation(*sizes: int) -> np.ndarray:
        return rng.normal(size=(*sizes, *shape)).astype(np.float32)

    def scalar(*sizes: int) -> np.ndarray:
        return rng.uniform(-1.0, 1.0, sizes).astype(np.float32)

    def mask(*sizes: int) -> np.ndarray:
        return (rng.random(sizes) > 1 / 6).astype(np.float32)

    edges, steps = (batch_size, num_steps), (batch_size, num_steps + 1)
    policy = rng.dirichlet(np.full(spec.num_actions, 0.5), steps)
    return Batch(
        observation=observation(batch_size),
        next_observation=observation(*edges) if with_next_observation else None,
        action=rng.integers(0, spec.num_actions, edges),
        reward=scalar(*edges),
        reward_mask=mask(*edges),
        value=scalar(*steps),
        value_mask=mask(*steps),
        policy=policy.astype(np.float32),
        policy_mask=mask(*steps),
        turn=mask(*edges),
        turn_mask=mask(*edges),
        observation_mask=mask(*edges),
        bootstrap_observation=observation(*steps) if with_bootstrap else None,
        bootstrap_discount=scalar(*steps) * mask(*steps) if with_bootstrap else None,
        weight=rng.uniform(0.1, 1.0, batch_size).astype(np.float32),
        slot=np.arange(batch_size),
        generation=np.zeros(batch_size, np.int64),
        root_value=scalar(batch_size),
        behaviour_version=np.zeros(batch_size, np.int32),
        target_version=np.zeros(batch_size, np.int32),
    )
