"""What the search refuses, and that nothing it is given breaks it."""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run
from tests.oracles.table_model import TableModel

KINDS = ["puct", "gumbel"]


def make(kind, num_rows=3, num_actions=4, num_simulations=10, **options):
    settings = SearchSettings(kind=kind, num_simulations=num_simulations, **options)
    search = Search(settings, batch_size=num_rows, num_actions=num_actions)
    model = TableModel.draw(np.random.default_rng(0), num_actions=num_actions)
    root = model.root(np.arange(num_rows), num_simulations + 1)
    return search, model, root, np.ones((num_rows, num_actions), bool)


@pytest.mark.parametrize("kind", KINDS)
def test_row_without_legal_action_is_named(kind):
    search, _, root, legal = make(kind)
    legal[1] = False
    with pytest.raises(ValueError, match="row 1: no legal action"):
        search.begin(root, legal)
    with pytest.raises(RuntimeError, match="begin"):
        search.select()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["value", "prior_logits"])
def test_non_finite_root_is_refused(kind, field, bad):
    search, _, root, legal = make(kind)
    getattr(root, field)[2] = bad
    by_that_none_exists = field == "prior_logits" and bad == -np.inf
    reason = "minus infinity for every legal action" if by_that_none_exists else "non-finite"
    with pytest.raises(ValueError, match=f"row 2: the model returned .*{reason}"):
        search.begin(root, legal)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", ["reward", "discount", "value", "prior_logits"])
def test_non_finite_step_is_refused_and_named(kind, field, bad):
    search, model, root, legal = make(kind)
    search.begin(root, legal)
    for simulation in range(4):
        output = model.recurrent(search.select())
        if simulation == 3:
            getattr(output, field)[1] = bad
            with pytest.raises(ValueError, match="non-finite values: row 1, simulation 3"):
                search.update(output)
        else:
            search.update(output)
    with pytest.raises(RuntimeError):
        search.result()
    # The next search is unharmed.
    model.num_calls = 0
    again = run(search, model, model.root(np.arange(3), 11), legal)
    fresh, model, root, legal = make(kind)
    np.testing.assert_array_equal(again.visits, run(fresh, model, root, legal).visits)


@pytest.mark.parametrize("kind", KINDS)
def test_minus_infinity_is_a_prior_of_zero(kind):
    search, model, root, legal = make(kind, num_simulations=60)
    model.logits[:, 2] = -np.inf
    model.reward[:, 2] = -1.0  # nothing speaks for it
    model.reward[:, [0, 1, 3]] = 1.0
    run(search, model, root, legal)
    assert (search.tree.priors[:, 1:, 2] == 0).all()
    assert np.isfinite(search.tree.values).all()
    assert (search.tree.child_visits[:, 1:, 2] == 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["tree", "siblings", "bounds", "none"])
def test_values_beyond_the_float_range_never_leave_the_tree(kind, normalization):
    search, model, root, legal = make(
        kind, num_actions=3, num_simulations=40, normalization=normalization
    )
    legal[:, 0] = False
    model.value = np.where(np.arange(len(model.value)) % 2, 3e38, -3e38)
    model.reward[:] = np.where(model.reward > 0, 3e38, -3e38)
    search.begin(root, legal)
    for simulation in range(40):
        selection = search.select()
        assert (selection.parent >= 0).all()
        assert (selection.parent <= simulation).all()
        assert ((selection.action >= 0) & (selection.action < 3)).all()
        assert (selection.action[selection.parent == 0] != 0).all()
        assert ((selection.node > 0) & (selection.node <= simulation + 1)).all()
        search.update(model.recurrent(selection))
    with pytest.raises(ValueError, match="leave the range"):
        search.result()


@pytest.mark.parametrize("kind", KINDS)
def test_noise_must_be_finite(kind):
    search, _, root, legal = make(kind)
    noise = np.zeros((3, 4))
    noise[2, 1] = np.nan
    with pytest.raises(ValueError, match="row 2: the noise is not finite"):
        search.begin(root, legal, noise)


def test_shapes_are_checked():
    search, model, root, legal = make("puct")
    with pytest.raises(ValueError, match="takes 1 to 3"):
        search.begin(root, np.ones((4, 4), bool))
    with pytest.raises(ValueError, match="legal has shape"):
        search.begin(root, np.ones((3, 5), bool))
    with pytest.raises(ValueError, match=r"root\.value"):
        search.begin(RootOutput(root.prior_logits, np.zeros(2)), legal)
    with pytest.raises(ValueError, match="noise has shape"):
        search.begin(root, legal, np.zeros((3, 3)))
    search.begin(root, legal)
    output = model.recurrent(search.select())
    with pytest.raises(ValueError, match="reward"):
        search.update(
            ModelOutput(output.reward[:2], output.discount, output.prior_logits, output.value)
        )
    for options in ({"batch_size": 0}, {"num_actions": 0}, {"num_threads": 0}):
        with pytest.raises(ValueError, match=next(iter(options))):
            Search(search.settings, **{"batch_size": 1, "num_actions": 2, **options})


def test_calls_out_of_order_are_refused():
    search, model, root, legal = make("puct", num_simulations=1)
    for call in (search.select, search.result):
        with pytest.raises(RuntimeError):
            call()
    search.begin(root, legal)
    output = model.recurrent(search.select())
    search.update(output)
    with pytest.raises(RuntimeError, match="select"):
        search.update(output)
    assert search.select() is None
    assert search.select() is None
    assert search.result().visits.sum() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_any_layout_and_precision_of_the_answers_gives_the_same_tree(kind):
    search, model, root, legal = make(kind)
    expected = run(search, model, root, legal)

    class Awkward:
        def recurrent(self, selection):
            output = model.recurrent(selection)
            logits = np.asfortranarray(output.prior_logits.astype(np.float64))
            value = np.repeat(output.value, 2)[::2]
            reward = output.reward.astype(np.float32)
            reward.flags.writeable = False
            return ModelOutput(reward, output.discount.astype(np.float32), logits, value)

    model.root(np.arange(3), 11)
    actual = run(search, Awkward(), root, legal)
    np.testing.assert_array_equal(actual.visits, expected.visits)
    np.testing.assert_array_equal(actual.value, expected.value)


def test_results_are_copies():
    search, model, root, legal = make("puct")
    first = run(search, model, root, legal)
    kept = first.visits.copy(), first.value.copy()
    model.root(np.arange(3) + 7, 11)
    run(search, model, RootOutput(root.prior_logits[::-1].copy(), root.value), legal)
    np.testing.assert_array_equal(first.visits, kept[0])
    np.testing.assert_array_equal(first.value, kept[1])


@pytest.mark.parametrize("kind", KINDS)
def test_result_before_the_first_simulation_is_the_prior(kind):
    search, _, root, legal = make(kind)
    legal[0, 1] = False
    search.begin(root, legal)
    output = search.result()
    np.testing.assert_allclose(output.policy, search.tree.priors[:, 0], atol=1e-6)
    np.testing.assert_array_equal(output.best_action, np.argmax(output.policy, axis=1))
    np.testing.assert_allclose(output.value, root.value, rtol=1e-6)
    assert output.visits.sum() == 0
