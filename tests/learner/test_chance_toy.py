"""A coin whose odds hang on the action, learned from samples: codes, probabilities, values, and the search's choice."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from mcts import Search, SearchSettings, run
from muzero.config.networks import MLPConfig
from muzero.config.schema import LearnerConfig
from muzero.inference.stochastic import StochasticLocalModel
from muzero.learner import Learner
from muzero.learner.chance_loss import following_observations
from muzero.learner.inputs import to_inputs
from muzero.network import NetworkSpec, make_network
from muzero.network.stochastic import StochasticNetwork
from muzero.replay.batch import Batch

PROBABILITY = np.array([0.7, 0.2])
"""Of heads, by action. The best outcome is common to both actions: only the odds tell them apart."""
REWARD = np.array([1.0, 4.0])
"""That the second move pays after heads and after tails, whatever it is; it ends the game."""
EXPECTED = PROBABILITY * REWARD[0] + (1 - PROBABILITY) * REWARD[1]
SPEC = NetworkSpec(observation_shape=(3,), num_actions=2)
START = torch.eye(3)[2:]


def toss(rng: np.random.Generator, size: int) -> Batch:
    """Games of two moves as the replay would give them: `K` = 2, the position behind the second move being none."""
    action = rng.integers(2, size=(size, 2))
    tails = (rng.random(size) >= PROBABILITY[action[:, 0]]).astype(int)
    seen = np.eye(3, dtype=np.float32)
    ones, return_ = np.ones((size, 2), np.float32), REWARD[tails].astype(np.float32)
    zeros = np.zeros(size, np.float32)
    return Batch(
        observation=seen[np.full(size, 2)],
        next_observation=np.stack([seen[tails], seen[tails]], axis=1),
        action=action,
        reward=np.stack([zeros, return_], axis=1),
        reward_mask=ones,
        value=np.stack([return_, return_, zeros], axis=1),
        value_mask=np.ones((size, 3), np.float32),
        policy=np.full((size, 3, 2), 0.5, np.float32),
        policy_mask=np.array([[1.0, 1.0, 0.0]], np.float32).repeat(size, 0),
        turn=0 * ones,
        turn_mask=0 * ones,
        observation_mask=np.array([[1.0, 0.0]], np.float32).repeat(size, 0),
        bootstrap_observation=None,
        bootstrap_discount=None,
        weight=np.ones(size, np.float32),
        slot=np.arange(size),
        generation=np.zeros(size, np.int64),
        root_value=zeros,
        behaviour_version=np.zeros(size, np.int32),
        target_version=np.zeros(size, np.int32),
    )


@dataclass
class Learned:
    network: StochasticNetwork
    losses: list[float]

    @property
    def codes(self) -> torch.Tensor:
        """`[2, M]` codes of heads and of tails, one-hot, each the same in every game of a batch."""
        batch = to_inputs(
            toss(np.random.default_rng(9), 256),
            None,
            torch.device("cpu"),
            with_next_observation=True,
        )
        following = following_observations(batch)
        with torch.no_grad():
            unrolled = self.network.unroll_codes(batch.observation, batch.action, following)
        assert unrolled.chance is not None
        found = [
            torch.unique(unrolled.chance.code[0, following[0, :, outcome] == 1], dim=0)
            for outcome in range(2)
        ]
        assert [len(codes) for codes in found] == [1, 1]
        return torch.cat(found)


def learn(seed: int, num_steps: int = 350) -> Learned:
    config = MLPConfig(
        num_chance_codes=16,
        latent_size=16,
        hidden_sizes=[32],
        value_support_max=5.0,
        reward_support_max=5.0,
        support_transform=False,
    )
    network = make_network(config, SPEC, seed)
    assert isinstance(network, StochasticNetwork)
    learner = Learner(
        network,
        LearnerConfig(
            num_steps=num_steps,
            num_unroll_steps=2,
            learning_rate=1e-2,
            weight_decay=0.0,
            value_loss_weight=1.0,
            afterstate_value_loss_weight=1.0,
        ),
        metrics_interval=1000,
    )
    rng = np.random.default_rng(seed)
    losses = [learner.step(toss(rng, 256)).metrics["loss"] for _ in range(num_steps)]
    network.eval()
    return Learned(network, losses)


@pytest.fixture(scope="module", params=[1, 2])
def learned(request) -> Learned:
    return learn(request.param)


@torch.no_grad()
def test_codes_tell_the_outcomes_apart_and_sigma_has_their_probabilities(learned) -> None:
    network = learned.network
    codes = learned.codes.argmax(1).tolist()
    assert codes[0] != codes[1]
    afterstate = network.afterstate(network.represent(START.expand(2, 3)), torch.tensor([0, 1]))
    chance_logits, value_logits = network.predict_afterstate(afterstate)
    sigma = torch.softmax(chance_logits, 1).numpy()
    np.testing.assert_allclose(sigma[:, codes[0]], PROBABILITY, atol=0.06)
    np.testing.assert_allclose(sigma[:, codes[1]], 1 - PROBABILITY, atol=0.06)
    q = network.value_support.decode(value_logits).numpy()
    np.testing.assert_allclose(q, EXPECTED, atol=0.2)


@torch.no_grad()
def test_each_code_leads_to_the_value_of_its_outcome(learned) -> None:
    network = learned.network
    codes = learned.codes
    latent = network.represent(START.expand(2, 3))
    for action in range(2):
        afterstate = network.afterstate(latent, torch.tensor([action, action]))
        following, reward_logits, _ = network.outcome(afterstate, codes)
        value = network.value_support.decode(network.predict(following)[1])
        np.testing.assert_allclose(value.numpy(), REWARD, atol=0.25)
        reward = network.reward_support.decode(reward_logits)
        np.testing.assert_allclose(reward.numpy(), 0.0, atol=0.1)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_the_search_prefers_the_better_odds(learned, kind: str) -> None:
    settings = SearchSettings(
        kind=kind,
        num_simulations=64,
        num_chance_outcomes=16,
        max_depth=4,  # two moves, which is all there is to learn
    )
    model = StochasticLocalModel(learned.network, batch_size=1, num_nodes=65, discount=1.0)
    search = Search(settings, batch_size=1, num_actions=2)
    root = model.roots(START.numpy())
    output = run(search, model, root, np.ones((1, 2), bool))
    assert output.best_action.tolist() == [1]
    assert output.policy[0, 1] > 0.6
    assert output.qvalues[0, 1] == pytest.approx(EXPECTED[1], abs=0.3)
    assert output.qvalues[0, 0] == pytest.approx(EXPECTED[0], abs=0.4)


def test_learning_hangs_on_the_seed_alone() -> None:
    first, second, third = learn(1, 8), learn(1, 8), learn(2, 8)
    assert first.losses == second.losses != third.losses
    for ours, theirs in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
