"""Whole trees with chance nodes against mctx's `stochastic_muzero_policy`, in both precisions."""

import numpy as np
import pytest

from mcts import RootOutput, Search, SearchSettings, run
from mcts.chance import AlternatingModel
from tests.oracles.chance_table import ChanceTable
from tests.oracles.plain_chance import PlainChanceSearch

pytestmark = [pytest.mark.oracle, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

NUM_ROWS = 128
# Actions, outcomes, simulations, depth limit, players, share of outcomes that do not exist.
CASES = [(18, 32, 50, None, 1, 0.0), (7, 3, 120, 5, 2, 0.0), (4, 8, 120, None, "mixed", 0.3)]


@pytest.fixture(params=[np.float64, np.float32])
def precision(request):
    jax = pytest.importorskip("jax")
    pytest.importorskip("mctx")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param is np.float64)
    yield request.param
    jax.config.update("jax_enable_x64", before)


def their_search(model, states, legal, num_simulations, max_depth):
    import jax
    import jax.numpy as jnp
    import mctx

    table = {
        name: jnp.asarray(getattr(model, name))
        for name in ("logits", "value", "chance_logits", "afterstate_value", "reward", "discount")
    }
    afterstates = jnp.asarray(model.afterstate.astype(np.int32))
    successors = jnp.asarray(model.successor.astype(np.int32))

    def decide(params, key, action, state):
        following = afterstates[state, action]
        output = mctx.DecisionRecurrentFnOutput(
            chance_logits=table["chance_logits"][following],
            afterstate_value=table["afterstate_value"][following],
        )
        return output, following

    def draw(params, key, outcome, afterstate):
        following = successors[afterstate, outcome]
        output = mctx.ChanceRecurrentFnOutput(
            action_logits=table["logits"][following],
            value=table["value"][following],
            reward=table["reward"][afterstate, outcome],
            discount=table["discount"][afterstate, outcome],
        )
        return output, following

    states = jnp.asarray(states.astype(np.int32))
    return jax.jit(
        lambda key: mctx.stochastic_muzero_policy(
            (),
            key,
            mctx.RootFnOutput(
                prior_logits=table["logits"][states],
                value=table["value"][states],
                embedding=states,
            ),
            decide,
            draw,
            num_simulations=num_simulations,
            invalid_actions=jnp.asarray(~legal),
            max_depth=max_depth,
        )
    )(jax.random.PRNGKey(0))


def smallest_margin(settings, model, state, logits, value, legal):
    """The smallest lead of a best score over the second best in the whole search, by the naive search."""
    search = PlainChanceSearch(
        settings, model.plain_afterstate, model.plain_outcome, state, logits, value, legal
    )
    return min(search.run().margins)


@pytest.mark.parametrize(
    ("num_actions", "num_outcomes", "num_simulations", "max_depth", "players", "absent"), CASES
)
def test_puct_with_chance_grows_the_same_trees(
    precision,
    num_actions,
    num_outcomes,
    num_simulations,
    max_depth,
    players,
    absent,
):
    rng = np.random.default_rng(num_actions)
    model = ChanceTable.draw(
        rng,
        num_states=4096,
        num_actions=num_actions,
        num_outcomes=num_outcomes,
        players=players,
        absent_outcomes=absent,
        dtype=precision,
    )
    states = rng.integers(4096, size=NUM_ROWS)
    legal = rng.random((NUM_ROWS, num_actions)) < 0.6
    legal[np.arange(NUM_ROWS), rng.integers(num_actions, size=NUM_ROWS)] = True
    policy = their_search(model, states, legal, num_simulations, max_depth)
    theirs = policy.search_tree
    assert np.asarray(theirs.node_values).dtype == precision

    settings = SearchSettings(
        kind="puct",
        num_simulations=num_simulations,
        max_depth=max_depth,
        normalization="siblings",
        min_value_range=0.0,
        num_chance_outcomes=num_outcomes,
    )
    search = Search(settings, batch_size=NUM_ROWS, num_actions=num_actions, dtype=precision)
    # Their root priors hold the noise, so ours need none.
    logits = np.array(theirs.children_prior_logits[:, 0])
    root = RootOutput(logits, model.root(states, num_simulations + 1).value)
    output = run(search, AlternatingModel(model, search), root, legal)

    ours = search.tree
    actions_from_parent = np.where(
        (ours.depths % 2 == 0) & (ours.actions >= 0), ours.actions + num_actions, ours.actions
    )
    is_same = np.ones(NUM_ROWS, bool)
    for field, name in (
        (ours.visits, "node_visits"),
        (ours.parents, "parents"),
        (actions_from_parent, "action_from_parent"),
    ):
        is_same &= (field == np.asarray(getattr(theirs, name))).all(axis=1)
    same_visits = (output.visits == np.asarray(theirs.summary().visit_counts)).all(axis=1)
    if precision is np.float64:
        assert is_same.all()
    assert same_visits.mean() >= 0.995
    for row in np.flatnonzero(~is_same):
        margin = smallest_margin(
            settings,
            model,
            states[row],
            logits[row].astype(float).tolist(),
            float(root.value[row]),
            legal[row].tolist(),
        )
        assert margin < 2e-6, f"row {row}: a tree that differs where no choice was close"
    tolerance = 1e-12 if precision is np.float64 else 1e-5
    used = is_same[:, None] & (ours.visits > 0)
    np.testing.assert_allclose(
        ours.values[used], np.asarray(theirs.node_values)[used], atol=tolerance
    )
    weights = np.asarray(policy.action_weights)
    np.testing.assert_allclose(output.policy[same_visits], weights[same_visits], atol=tolerance)
