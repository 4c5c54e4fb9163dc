"""Cases whose answers are written down as numbers or formulas."""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run
from mcts.halving import considered_visits
from tests.oracles.plain_search import halving_schedule


def softmax(logits):
    weights = np.exp(logits - np.max(logits, axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


class Bandit:
    """At every node each action pays its reward and ends the episode; uniform priors, value 0."""

    def __init__(self, rewards):
        self.rewards = np.asarray(rewards, np.float64)

    def recurrent(self, selection):
        num_rows = len(selection.parent)
        return ModelOutput(
            reward=self.rewards[selection.action],
            discount=np.zeros(num_rows),
            prior_logits=np.zeros((num_rows, len(self.rewards))),
            value=np.zeros(num_rows),
        )


def search_bandit(settings, rewards, logits, value, legal, noise=None):
    num_actions = len(rewards)
    search = Search(settings, batch_size=1, num_actions=num_actions, dtype=np.float64)
    root = RootOutput(np.array([logits], np.float64), np.array([value], np.float64))
    legal = np.array([legal], bool)
    return search, run(search, Bandit(rewards), root, legal, noise)


def repeated(*pairs):
    return [count for count, times in pairs for _ in range(times)]


@pytest.mark.parametrize(
    ("size", "simulations", "expected"),
    [
        (16, 16, repeated((0, 16))),
        (16, 32, repeated((0, 16), (1, 8), (2, 4), (3, 4))),
        (
            16,
            50,
            repeated((0, 16), (1, 8), (2, 4), (3, 4), (4, 4), *((n, 2) for n in range(5, 12))),
        ),
        (8, 24, repeated((0, 8), (1, 4), (2, 4), (3, 2), (4, 2), (5, 2), (6, 2))),
        (8, 47, repeated((0, 8), (1, 4), (2, 4), (3, 4), *((n, 2) for n in range(4, 17)), (17, 1))),
        (7, 24, repeated((0, 7), (1, 3), (2, 3), *((n, 2) for n in range(3, 8)), (8, 1))),
        (4, 16, repeated((0, 4), (1, 4), (2, 2), (3, 2), (4, 2), (5, 2))),
        (3, 16, repeated((0, 3), (1, 3), *((n, 2) for n in range(2, 7)))),
        (8, 13, repeated((0, 8), (1, 4), (2, 1))),
        (8, 2, [0, 0]),
        (16, 8, repeated((0, 8))),
        (0, 16, list(range(16))),
        (1, 16, list(range(16))),
    ],
)
def test_halving_lists(size, simulations, expected):
    assert considered_visits(size, simulations) == expected


def test_halving_200_simulations():
    pairs = [(n, 16) for n in range(3)] + [(n, 8) for n in range(3, 9)]
    pairs += [(n, 4) for n in range(9, 21)]
    expected = repeated(*pairs)
    expected += repeated(*((n, 2) for n in range(21, 60)))
    assert considered_visits(16, 200) == expected[:200]


@pytest.mark.parametrize("simulations", [1, 2, 7, 16, 50, 333])
def test_halving_equals_played_halving(simulations):
    for size in range(21):
        assert considered_visits(size, simulations) == halving_schedule(size, simulations)


@pytest.mark.oracle
def test_halving_equals_mctx():
    seq_halving = pytest.importorskip("mctx._src.seq_halving")
    for size in range(40):
        for simulations in (*range(1, 65), 200, 800):
            theirs = seq_halving.get_sequence_of_considered_visits(size, simulations)
            assert considered_visits(size, simulations) == list(theirs)


def test_puct_first_simulation_takes_the_likeliest_legal_action():
    settings = SearchSettings(kind="puct", num_simulations=1, normalization="siblings")
    _, output = search_bandit(settings, [0.0] * 4, [-1, 0, 2, 3], 0.0, [1, 1, 1, 0])
    assert output.best_action[0] == 2
    assert output.policy[0].tolist() == [0, 0, 1, 0]


MCTX_BANDIT = {
    "kind": "gumbel",
    "num_simulations": 17,
    "max_depth": 3,
    "normalization": "siblings",
    "min_value_range": 0.0,
    "value_scale": 0.05,
    "maxvisit_init": 60.0,
    "gumbel_scale": 1.0,
}
LOGITS = np.array([0.0, -1.0, 2.0, 3.0])
REWARDS = np.array([20.0, 3.0, -1.0, 10.0])


def test_gumbel_bandit_with_mask():
    legal = [0, 1, 1, 0]
    search, output = search_bandit(SearchSettings(**MCTX_BANDIT), REWARDS, LOGITS, -5.0, legal)
    assert output.best_action[0] == 1
    assert output.visits[0].tolist() == [0, 9, 8, 0]
    depths, visits = search.tree.depths[0], search.tree.visits[0]
    assert visits[depths == 3].max() == 6
    p1, p2 = softmax(LOGITS[1:3])
    mixed = (-5 + 17 * (p1 * REWARDS[1] + p2 * REWARDS[2])) / 18
    completed = np.array([mixed, 3.0, -1.0, mixed])
    rescaled = (completed - completed.min()) / np.ptp(completed)
    logits = np.where(np.array(legal, bool), LOGITS + (60 + 9) * 0.05 * rescaled, -np.inf)
    np.testing.assert_allclose(output.policy[0], softmax(logits), atol=1e-12)
    assert output.policy[0, [0, 3]].tolist() == [0, 0]


def test_gumbel_bandit_without_mask():
    _, output = search_bandit(SearchSettings(**MCTX_BANDIT), REWARDS, LOGITS, -5.0, [1] * 4)
    assert output.best_action[0] == 3
    assert output.visits[0].tolist() == [6, 2, 2, 7]
    rescaled = (REWARDS - REWARDS.min()) / np.ptp(REWARDS)
    expected = softmax(LOGITS + (60 + 7) * 0.05 * rescaled)
    np.testing.assert_allclose(output.policy[0], expected, atol=1e-12)


def test_mixed_value_by_hand():
    # With q unscaled, the improved policy tells the completed q of the unvisited actions.
    settings = SearchSettings(
        kind="gumbel",
        num_simulations=8,
        normalization="none",
        max_num_considered_actions=2,
        value_scale=0.01,
        maxvisit_init=50.0,
    )
    q = 10 / 54 * REWARDS
    logits = np.array([-30.0, -1.0, 2.0, -30.0])
    _, output = search_bandit(settings, q, logits, -0.8, [1] * 4)
    assert output.visits[0].tolist() == [0, 4, 4, 0]
    p = softmax(logits[1:3])
    mixed = (-0.8 + 8 * (p[0] * q[1] + p[1] * q[2])) / 9
    completed = np.array([mixed, q[1], q[2], mixed])
    expected = softmax(logits + (50 + 4) * 0.01 * completed)
    np.testing.assert_allclose(output.policy[0], expected, rtol=1e-9)


def test_unmixed_value_completes_with_the_network_value():
    settings = SearchSettings(
        kind="gumbel",
        num_simulations=2,
        normalization="bounds",
        value_min=-2.0,
        value_max=2.0,
        max_num_considered_actions=2,
        value_scale=1.0,
        use_mixed_value=False,
    )
    _, output = search_bandit(settings, [1.0, -1.0, 0.0], [1.0, 0.5, 0.0], 0.4, [1] * 3)
    completed = (np.array([1.0, -1.0, 0.4]) + 2) / 4
    expected = softmax(np.array([1.0, 0.5, 0.0]) + 51 * completed)
    np.testing.assert_allclose(output.policy[0], expected, rtol=1e-9)


def test_gumbel_noise_is_scaled_and_decides_the_first_actions():
    settings = SearchSettings(
        kind="gumbel", num_simulations=2, max_num_considered_actions=2, gumbel_scale=0.5
    )
    noise = np.array([[0.0, 0.0, 6.0, 8.0]])  # scaled: 3 and 4
    logits = [2.0, 0.0, 0.0, -3.0]  # with noise 2, 0, 3, 1
    _, output = search_bandit(settings, [0.0] * 4, logits, 0.0, [1] * 4, noise)
    assert output.visits[0].tolist() == [1, 0, 1, 0]
    # The target holds no noise.
    np.testing.assert_allclose(output.policy[0], softmax(np.array(logits)), atol=1e-12)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_all_mass_on_illegal_actions_becomes_uniform(kind):
    settings = SearchSettings(kind=kind, num_simulations=1)
    search = Search(settings, batch_size=1, num_actions=4, dtype=np.float64)
    for logits in ([0.0, -1e9, -1e9, 50.0], [0, -800, -800, 0]):
        legal = np.array([[False, True, True, False]])
        search.begin(RootOutput(np.array([logits], float), np.zeros(1)), legal)
        assert search.tree.priors[0, 0].tolist() == [0, 0.5, 0.5, 0]
        np.testing.assert_allclose(search.result().policy[0], [0, 0.5, 0.5, 0])


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_huge_logits_of_illegal_actions_do_not_matter(kind):
    settings = SearchSettings(kind=kind, num_simulations=1)
    search = Search(settings, batch_size=1, num_actions=4)
    root = RootOutput(np.array([[1e6, np.nan, 1e6 + 1, -100]]), np.zeros(1))
    search.begin(root, np.array([[True, False, True, False]]))
    np.testing.assert_allclose(search.tree.priors[0, 0], [0.2689414, 0, 0.7310586, 0], atol=1e-6)


def test_root_value_counts_the_network_once():
    settings = SearchSettings(kind="puct", num_simulations=3, normalization="none")
    _, output = search_bandit(settings, [1.0, 0.0], [10.0, 0.0], 5.0, [1, 0])
    assert output.value[0] == pytest.approx((5.0 + 3 * 1.0) / 4)
    assert output.qvalues[0].tolist() == pytest.approx([1.0, 2.0])


def test_equal_values_leave_the_prior_alone_whatever_their_size():
    # A degenerate range normalises to 0; the raw value of 100 would drown the prior.
    settings = SearchSettings(kind="puct", num_simulations=60, normalization="tree")
    logits = np.log([0.5, 0.3, 0.2])
    _, output = search_bandit(settings, [100.0] * 3, logits, 100.0, [1] * 3)
    np.testing.assert_allclose(output.policy[0], [0.5, 0.3, 0.2], atol=0.03)


def test_small_differences_are_not_stretched():
    rewards = [1.0, 1.0 + 1e-6]
    shares = []
    for min_value_range in (0.0, 0.01):
        settings = SearchSettings(
            kind="puct",
            num_simulations=50,
            normalization="tree",
            min_value_range=min_value_range,
        )
        shares.append(search_bandit(settings, rewards, [0, 0], 1.0, [1, 1])[1].policy[0, 1])
    assert shares[0] > 0.6
    assert shares[1] == pytest.approx(0.5)
