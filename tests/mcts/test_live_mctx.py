"""Whole trees against mctx itself, in double precision."""

import numpy as np
import pytest

from mcts import Search, SearchSettings, run
from tests.oracles.table_model import TableModel

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NUM_ROWS = 24


@pytest.fixture(scope="module")
def mctx():
    jax = pytest.importorskip("jax")
    module = pytest.importorskip("mctx")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield module
    jax.config.update("jax_enable_x64", before)


def draw_model(players, num_actions, seed):
    rng = np.random.default_rng(seed)
    model = TableModel.draw(rng, num_states=4096, num_actions=num_actions, players=players)
    states = rng.integers(4096, size=NUM_ROWS).astype(np.int32)
    legal = rng.random((NUM_ROWS, num_actions)) < 0.6
    legal[np.arange(NUM_ROWS), rng.integers(num_actions, size=NUM_ROWS)] = True
    return model, states, legal


def their_model(mctx, model):
    import jax.numpy as jnp

    arrays = (model.reward, model.discount, model.logits, model.value)
    reward, discount, logits, value = (jnp.asarray(array) for array in arrays)
    successor = jnp.asarray(model.successor.astype(np.int32))

    def recurrent(params, key, action, state):
        following = successor[state, action]
        output = mctx.RecurrentFnOutput(
            reward=reward[state, action],
            discount=discount[state, action],
            prior_logits=logits[following],
            value=value[following],
        )
        return output, following

    return recurrent, logits, value


def assert_same_tree(ours, theirs):
    for name, field in (
        ("node_visits", ours.visits),
        ("parents", ours.parents),
        ("action_from_parent", ours.actions),
        ("children_index", ours.child_index),
        ("children_visits", ours.child_visits),
    ):
        np.testing.assert_array_equal(field, np.asarray(getattr(theirs, name)), err_msg=name)
    used = ours.visits > 0
    values = np.asarray(theirs.node_values)
    np.testing.assert_allclose(ours.values[used], values[used], atol=1e-12)


@pytest.mark.parametrize(
    ("players", "num_actions", "num_simulations", "max_depth"),
    [(1, 18, 50, None), (2, 7, 120, 5)],
)
def test_puct_grows_the_same_trees(mctx, players, num_actions, num_simulations, max_depth):
    import jax
    import jax.numpy as jnp

    model, states, legal = draw_model(players, num_actions, seed=players)
    recurrent, logits, value = their_model(mctx, model)

    def choose(key, tree, node, depth):
        """PUCT without the random tie break of the stock policy."""
        visits = tree.node_visits[node]
        bonus = 1.25 + jnp.log((visits + 19652.0 + 1) / 19652.0)
        priors = jax.nn.softmax(tree.children_prior_logits[node])
        explore = jnp.sqrt(visits) * bonus * priors / (tree.children_visits[node] + 1)
        scores = mctx.qtransform_by_parent_and_siblings(tree, node) + explore
        return jnp.argmax(jnp.where((depth == 0) & tree.root_invalid_actions, -jnp.inf, scores))

    masked = jnp.where(legal, logits[states], jnp.finfo(jnp.float64).min)
    theirs = jax.jit(
        lambda key: mctx.search(
            params=(),
            rng_key=key,
            root=mctx.RootFnOutput(prior_logits=masked, value=value[states], embedding=states),
            recurrent_fn=recurrent,
            root_action_selection_fn=lambda key, tree, node: choose(key, tree, node, 0),
            interior_action_selection_fn=choose,
            num_simulations=num_simulations,
            max_depth=max_depth,
            invalid_actions=jnp.asarray(~legal),
        )
    )(jax.random.PRNGKey(0))
    settings = SearchSettings(
        kind="puct",
        num_simulations=num_simulations,
        max_depth=max_depth,
        normalization="siblings",
        min_value_range=0.0,
    )
    search = Search(settings, batch_size=NUM_ROWS, num_actions=num_actions, dtype=np.float64)
    output = run(search, model, model.root(states, num_simulations + 1), legal)
    assert_same_tree(search.tree, theirs)
    summary = theirs.summary()
    np.testing.assert_array_equal(output.visits, np.asarray(summary.visit_counts))
    np.testing.assert_allclose(output.value, np.asarray(summary.value), atol=1e-12)


@pytest.mark.parametrize(
    ("players", "num_actions", "num_simulations", "max_depth", "considered", "mixed"),
    [(1, 18, 50, None, 16, True), (2, 7, 120, 5, 4, True), (2, 7, 32, None, 100, False)],
)
def test_gumbel_grows_the_same_trees(
    mctx, players, num_actions, num_simulations, max_depth, considered, mixed
):
    import functools

    import jax
    import jax.numpy as jnp

    model, states, legal = draw_model(players, num_actions, seed=10 + players)
    recurrent, logits, value = their_model(mctx, model)
    transform = functools.partial(
        mctx.qtransform_completed_by_mix_value, use_mixed_value=mixed, rescale_values=mixed
    )
    theirs = jax.jit(
        lambda key: mctx.gumbel_muzero_policy(
            (),
            key,
            mctx.RootFnOutput(
                prior_logits=logits[states], value=value[states], embedding=jnp.asarray(states)
            ),
            recurrent,
            num_simulations=num_simulations,
            invalid_actions=jnp.asarray(~legal),
            max_depth=max_depth,
            max_num_considered_actions=considered,
            qtransform=transform,
        )
    )(jax.random.PRNGKey(3))
    settings = SearchSettings(
        kind="gumbel",
        num_simulations=num_simulations,
        max_depth=max_depth,
        max_num_considered_actions=considered,
        normalization="siblings" if mixed else "none",
        min_value_range=0.0,
        use_mixed_value=mixed,
    )
    search = Search(settings, batch_size=NUM_ROWS, num_actions=num_actions, dtype=np.float64)
    noise = np.array(theirs.search_tree.extra_data.root_gumbel)
    output = run(search, model, model.root(states, num_simulations + 1), legal, noise)
    assert_same_tree(search.tree, theirs.search_tree)
    np.testing.assert_array_equal(output.best_action, np.asarray(theirs.action))
    np.testing.assert_allclose(output.policy, np.asarray(theirs.action_weights), atol=1e-12)
