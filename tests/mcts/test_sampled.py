"""Searches over sampled actions: against plain searches over all actions, and their properties."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcts import ModelOutput, RootOutput, Search, SearchSettings, draw_noise, run, select_actions
from mcts.counter_random import draw_keys
from mcts.sampled import SampledModel
from mcts.sampled_box import SquashedGaussianSampler
from mcts.sampled_categories import CategoricalSampler, FactoredSampler
from tests.oracles.plain_sampling import sample_categories
from tests.oracles.sampled_cases import Indifferent, by_action, search_sampled
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]


class PlainSampling:
    """A model over all actions whose logits are the sampled prior of the naive twin; what was not drawn does not exist."""

    def __init__(self, model, sampler, keys):
        self.model, self.sampler, self.keys = model, sampler, keys

    def logits(self, policy, row, node, legal=None):
        legal = np.ones(len(policy), bool) if legal is None else legal
        prior = sample_categories(
            [policy.tolist()],
            [legal.tolist()],
            int(self.keys[row]),
            int(node),
            self.sampler.num_samples,
            self.sampler.temperature,
            self.sampler.num_flat,
        )
        logits = np.full(len(policy), -np.inf)
        for (action,), weight in prior.items():
            logits[action] = np.log(weight)
        return logits

    def recurrent(self, selection):
        answer = self.model.recurrent(selection)
        places = zip(answer.prior_logits, selection.row, selection.node, strict=True)
        logits = np.array([self.logits(*place) for place in places])
        return ModelOutput(answer.reward, answer.discount, logits, answer.value)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(2, 9),
    st.integers(1, 20),
    st.sampled_from([1.0, 2.0, np.inf]),
    st.sampled_from([None, 3]),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_search_over_slots_equals_search_over_actions_with_the_sampled_prior(
    kind, num_actions, num_samples, temperature, max_depth, is_noisy, seed
):
    rng = np.random.default_rng(seed)
    num_rows, num_simulations = 3, 30
    search_settings = SearchSettings(
        kind=kind, num_simulations=num_simulations, max_depth=max_depth
    )
    model = TableModel.draw(rng, num_actions=num_actions, players="mixed")
    sampler = CategoricalSampler(num_actions, num_samples, temperature=temperature)
    keys = draw_keys(rng, num_rows)
    legal = rng.random((num_rows, num_actions)) < 0.7
    legal[:, 0] = True
    states = rng.integers(len(model.value), size=num_rows)
    root = model.root(states, num_simulations + 1)
    noise_seed = 5 if is_noisy else None
    sampled, search, output = search_sampled(
        search_settings, model, sampler, root, keys, legal, noise_seed
    )

    twin = PlainSampling(model, sampler, keys)
    root = model.root(states, num_simulations + 1)
    logits = [twin.logits(root.prior_logits[row], row, 0, legal[row]) for row in range(num_rows)]
    noise = None
    if is_noisy:
        slots = sampled.is_sampled[:, 0]
        noise = draw_noise(search_settings, slots, np.random.default_rng(5), np.float64)
        noise = by_action(sampled, noise, num_actions)
    plain_search = Search(
        search_settings, batch_size=num_rows, num_actions=num_actions, dtype=np.float64
    )
    expected = run(
        plain_search, twin, RootOutput(np.array(logits), root.value), np.isfinite(logits), noise
    )
    np.testing.assert_array_equal(by_action(sampled, output.visits, num_actions), expected.visits)
    np.testing.assert_allclose(
        by_action(sampled, output.policy, num_actions), expected.policy, atol=1e-9
    )
    np.testing.assert_allclose(output.value, expected.value, atol=1e-9)
    np.testing.assert_array_equal(sampled.actions_of(output.best_action), expected.best_action)
    np.testing.assert_array_equal(search.tree.parents, plain_search.tree.parents)
    # Every edge of the tree, by the action that its slot stands for.
    rows, nodes = np.nonzero(search.tree.parents >= 0)
    slots = search.tree.actions[rows, nodes]
    actions = sampled.actions[rows, search.tree.parents[rows, nodes], slots]
    np.testing.assert_array_equal(actions, plain_search.tree.actions[rows, nodes])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_search_with_all_actions_sampled_approaches_the_plain_search(kind, temperature):
    rng = np.random.default_rng(0)
    num_rows, num_simulations = 24, 60
    search_settings = SearchSettings(kind=kind, num_simulations=num_simulations)
    model = TableModel.draw(rng, num_actions=4)
    states = rng.integers(len(model.value), size=num_rows)
    search = Search(search_settings, batch_size=num_rows, num_actions=4, dtype=np.float64)
    root = model.root(states, num_simulations + 1)
    legal = np.ones((num_rows, 4), bool)
    plain = run(search, model, root, legal)
    distances = []
    for num_samples in (4, 64, 4096):
        sampler = CategoricalSampler(4, num_samples, temperature=temperature)
        root = model.root(states, num_simulations + 1)
        sampled, _, output = search_sampled(
            search_settings, model, sampler, root, draw_keys(rng, num_rows)
        )
        difference = by_action(sampled, output.policy, 4) - plain.policy
        distances.append(np.abs(difference).sum(axis=1).mean() / 2)
    assert distances[0] > 1.5 * distances[1] > 2 * distances[2]
    assert distances[2] < 0.1


class Recorder:
    """Hands on what it is asked, and keeps it."""

    def __init__(self, model):
        self.model, self.selections = model, []

    def recurrent(self, selection):
        self.selections.append([array.copy() for array in selection])
        return self.model.recurrent(selection)


@pytest.mark.parametrize(
    "sampler",
    [
        CategoricalSampler(40, 6),
        FactoredSampler([3, 4], 6),
        SquashedGaussianSampler([-1.0, 0.0], [1.0, 2.0], 6, wide_share=0.5),
    ],
)
def test_model_gets_the_actions_of_the_slots(sampler):
    rng = np.random.default_rng(4)
    num_rows = 5
    policy = rng.normal(size=sampler.num_parameters)
    recorder = Recorder(Indifferent(policy))
    root = RootOutput(np.tile(policy, (num_rows, 1)), np.zeros(num_rows))
    search_settings = SearchSettings(kind="puct", num_simulations=20)
    sampled, search, output = search_sampled(
        search_settings, recorder, sampler, root, draw_keys(rng, num_rows)
    )
    assert len(recorder.selections) == 20
    for row, parent, action, node in recorder.selections:
        slots = search.tree.actions[row, node]
        np.testing.assert_array_equal(search.tree.parents[row, node], parent)
        np.testing.assert_array_equal(action, sampled.actions[row, parent, slots])
        assert sampled.is_sampled[row, parent, slots].all()
        assert action.dtype == sampler.action_dtype
        assert action.shape == (num_rows, *sampler.action_shape)
    target = sampled.target(output)
    assert target.actions.shape == (num_rows, 6, *sampler.action_shape)
    np.testing.assert_array_equal(target.policy, output.policy)
    assert (target.policy[~sampled.is_sampled[:, 0]] == 0).all()
    np.testing.assert_allclose(target.policy.sum(axis=1), 1)


def test_targets_are_copies():
    sampler = CategoricalSampler(30, 6)
    rng = np.random.default_rng(5)
    root = RootOutput(rng.normal(size=(3, 30)), np.zeros(3))
    sampled, _, output = search_sampled(
        SearchSettings(kind="puct", num_simulations=8), Indifferent(np.zeros(30)), sampler, root,
        draw_keys(rng, 3),
    )  # fmt: skip
    target = sampled.target(output)
    kept = target.actions.copy()
    sampled.roots(root, draw_keys(rng, 3))
    assert (sampled.actions[:, 0] != kept).any()
    np.testing.assert_array_equal(target.actions, kept)


def large_case(seed=6, num_rows=13):
    rng = np.random.default_rng(seed)
    model = TableModel.draw(rng, num_actions=90, players="mixed", dtype=np.float32)
    legal = rng.random((num_rows, 90)) < 0.3
    legal[:, 0] = True
    states = rng.integers(len(model.value), size=num_rows)
    return model, legal, states, draw_keys(rng, num_rows)


def search_large(kind, model, legal, states, keys, **options):
    search_settings = SearchSettings(kind=kind, num_simulations=40)
    sampler = CategoricalSampler(90, 12, temperature=1.5)
    root = model.root(states, 41)
    return search_sampled(
        search_settings, model, sampler, root, keys, legal, dtype=np.float32, **options
    )


def assert_same(first, second, rows=slice(None)):
    for name in ("visits", "policy", "value", "qvalues", "best_action", "best_value", "depth"):
        np.testing.assert_array_equal(getattr(first[2], name)[rows], getattr(second[2], name))
    np.testing.assert_array_equal(first[0].actions[rows], second[0].actions)


@pytest.mark.parametrize("kind", KINDS)
def test_illegal_actions_are_neither_searched_nor_played(kind):
    model, legal, states, keys = large_case(num_rows=200)
    sampled, _, output = search_large(kind, model, legal, states, keys, noise_seed=0)
    rows = np.arange(200)
    slots = sampled.is_sampled[:, 0]
    for temperature in (0.0, 1.0, 50.0):
        chosen = select_actions(output, slots, temperature, np.random.default_rng(0))
        assert legal[rows, sampled.actions_of(chosen)].all()
    assert (by_action(sampled, output.visits, 90)[~legal] == 0).all()
    assert (by_action(sampled, output.policy, 90)[~legal] == 0).all()
    # Below the root no action is masked.
    below = sampled.actions[rows[:, None], 1]
    assert not legal[rows[:, None, None], below].all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_seeds_and_threads(kind):
    model, legal, states, keys = large_case()
    together = search_large(kind, model, legal, states, keys)
    assert_same(together, search_large(kind, model, legal, states, keys))
    assert_same(together, search_large(kind, model, legal, states, keys, num_threads=3))
    rows = np.array([7, 2, 11])
    assert_same(together, search_large(kind, model, legal[rows], states[rows], keys[rows]), rows)
    others = search_large(kind, model, legal, states, keys + np.uint64(1))
    assert (others[0].actions[:, 0] != together[0].actions[:, 0]).any(axis=1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_may_have_different_numbers_of_simulations(kind):
    model, legal, states, keys = large_case()
    counts = np.array([40, 3, 17, 1, 40, 8, 8, 25, 2, 30, 5, 40, 11], np.int32)
    together = search_large(kind, model, legal, states, keys, num_simulations=counts)
    for row in (0, 1, 3, 7):
        one = slice(row, row + 1)
        alone = search_large(
            kind, model, legal[one], states[one], keys[one], num_simulations=counts[one]
        )
        for name in ("visits", "policy", "value", "best_action"):
            np.testing.assert_array_equal(getattr(together[2], name)[one], getattr(alone[2], name))


def test_root_noise_is_a_dirichlet_sample_over_the_distinct_actions():
    sampler = CategoricalSampler(5, 12)
    num_rows = 300
    root = RootOutput(np.zeros((num_rows, 5)), np.zeros(num_rows))
    sampled = SampledModel(Indifferent(np.zeros(5)), sampler, batch_size=num_rows, num_nodes=2)
    roots, slots = sampled.roots(root, draw_keys(np.random.default_rng(7), num_rows))
    assert set(slots.sum(axis=1)) <= {3, 4, 5}
    search_settings = SearchSettings(kind="puct", num_simulations=1, root_exploration_fraction=0.25)
    noise = draw_noise(search_settings, slots, np.random.default_rng(8))
    assert (noise[~slots] == 0).all()
    search = Search(search_settings, batch_size=num_rows, num_actions=12)
    search.begin(roots, slots, noise)
    multiplicity = np.exp(roots.prior_logits)
    np.testing.assert_allclose(
        search.tree.priors[:, 0], 0.75 * multiplicity + 0.25 * noise, atol=1e-6
    )


# Faults


def make(num_rows=3, sampler=None):
    sampler = sampler or CategoricalSampler(8, 4)
    model = TableModel.draw(np.random.default_rng(9), num_actions=8)
    sampled = SampledModel(model, sampler, batch_size=num_rows, num_nodes=11)
    return (
        sampled,
        model,
        model.root(np.arange(num_rows), 11),
        draw_keys(np.random.default_rng(0), num_rows),
    )


def test_shapes_are_checked():
    sampled, _, root, keys = make()
    with pytest.raises(ValueError, match="room for 3"):
        four = RootOutput(np.zeros((4, 8)), np.zeros(4))
        sampled.roots(four, draw_keys(np.random.default_rng(0), 4))
    with pytest.raises(
        ValueError, match=r"root\.prior_logits has shape \(3, 7\).*CategoricalSampler"
    ):
        sampled.roots(RootOutput(np.zeros((3, 7)), root.value), keys)
    with pytest.raises(ValueError, match="legal has shape"):
        sampled.roots(root, keys, np.ones((3, 4), bool))
    with pytest.raises(ValueError, match="row 1: no legal action"):
        sampled.roots(root, keys, np.array([[True] * 8, [False] * 8, [True] * 8]))
    for wrong in (keys[:2], keys.astype(np.int64)):
        with pytest.raises(ValueError, match=r"draw_keys\(rng, 3\)"):
            sampled.roots(root, wrong)
    for options in ({"batch_size": 0}, {"num_nodes": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            SampledModel(None, sampled.sampler, **{"batch_size": 1, "num_nodes": 2, **options})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_policies_that_are_none_are_refused_and_named(kind, bad):
    sampled, model, root, keys = make()
    search = Search(SearchSettings(kind=kind, num_simulations=10), batch_size=3, num_actions=4)
    broken = root.prior_logits.copy()
    broken[1, 3] = bad
    roots, slots = sampled.roots(RootOutput(broken, root.value), keys)
    with pytest.raises(
        ValueError, match="row 1: the model returned non-finite values for the root"
    ):
        search.begin(roots, slots)
    roots, slots = sampled.roots(root, keys)
    search.begin(roots, slots)
    search.update(sampled.recurrent(search.select()))
    model.logits[:, 5] = bad
    with pytest.raises(ValueError, match="non-finite values: row 0, simulation 1"):
        search.update(sampled.recurrent(search.select()))
