"""Whole trees against mctx itself: exactly in double precision, in single precision up to what rounding decides.

The gate: in float64 every tree is equal. In float32 the root visits of at least 99.5 % of the trees are, and where a tree
differs, the plain search finds a decision up to there that was won by less than rounding. The stock PUCT policy of mctx
adds noise of up to 1e-7 to every score; its trees may part, in both precisions, where less than that decided.
`record_property` keeps the margin of every tree that differs.
"""

import numpy as np
import pytest

from mcts import Search, run
from tests.oracles import mctx_trees
from tests.oracles.table_model import TableModel

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]

NUM_STATES = 4096
# (num_actions, num_simulations, players, discount, without rewards)
SHAPES = {
    "18 actions": (18, 50, 1, 0.997, False),
    "7 actions, two players": (7, 200, 2, 1.0, False),
    "82 actions, two players": (82, 200, 2, 1.0, True),
}
LIMITS = {"free": (None, 0.0), "limited": (5, 0.4)}
ROUNDING = 2e-6
TIE_NOISE = 1e-7
LEAST_EQUAL_ROOTS = 0.995
VALUE_TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}
POLICY_TOLERANCE = {np.float64: 1e-12, np.float32: 2e-5}


@pytest.fixture(params=[np.float64, np.float32], ids=["float64", "float32"])
def dtype(request):
    jax = pytest.importorskip("jax")
    pytest.importorskip("mctx")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param is np.float64)
    yield request.param
    jax.config.update("jax_enable_x64", before)


def draw_case(seed, num_rows, dtype, shape, masked_share):
    num_actions, _, players, discount, zero_reward = shape
    rng = np.random.default_rng(seed)
    model = TableModel.draw(
        rng,
        num_states=NUM_STATES,
        num_actions=num_actions,
        players=players,
        discount=discount,
        zero_reward=zero_reward,
        terminal_fraction=0.05,
        dtype=dtype,
    )
    states = rng.integers(NUM_STATES, size=num_rows).astype(np.int32)
    legal = rng.random((num_rows, num_actions)) >= masked_share
    legal[np.arange(num_rows), rng.integers(num_actions, size=num_rows)] = True
    return model, states, legal


def check_trees(record, dtype, rule, shape, limit, *, seeds=range(3), num_rows=128, **options):
    """Search the same roots with both, `len(seeds)` batches of `num_rows`, and hold the trees to the gate."""
    import jax
    import jax.numpy as jnp

    num_actions, num_simulations, *_ = shape
    max_depth, masked_share = limit
    settings = mctx_trees.settings_of(
        rule, num_simulations=num_simulations, max_depth=max_depth, **options
    )
    their_search = mctx_trees.compiled(rule, settings)
    search = Search(settings, batch_size=num_rows, num_actions=num_actions, dtype=dtype)
    num_equal_roots = num_equal_trees = 0
    largest_error = 0.0
    margins = []
    for seed in seeds:
        model, states, legal = draw_case(seed, num_rows, dtype, shape, masked_share)
        table = {
            name: jnp.asarray(getattr(model, name))
            for name in ("reward", "discount", "logits", "value")
        }
        table["successor"] = jnp.asarray(model.successor.astype(np.int32))
        tree, action, weights = their_search(
            jax.random.PRNGKey(seed), table, jnp.asarray(states), jnp.asarray(legal)
        )
        assert tree.node_values.dtype == dtype
        root, noise = mctx_trees.same_start(rule, tree, model.root(states, num_simulations + 1))
        output = run(search, model, root, legal, noise)
        found = mctx_trees.compare(search.tree, tree)
        num_equal_roots += int(found.root_visits.sum())
        num_equal_trees += int(found.whole_tree.sum())
        largest_error = max(largest_error, found.value_error)
        equal = found.whole_tree
        np.testing.assert_array_equal(
            output.visits[found.root_visits],
            np.asarray(tree.children_visits[:, 0])[found.root_visits],
        )
        if action is not None:
            np.testing.assert_array_equal(output.best_action[equal], np.asarray(action)[equal])
        if weights is not None:
            np.testing.assert_allclose(
                output.policy[equal], np.asarray(weights)[equal], atol=POLICY_TOLERANCE[dtype]
            )
        for row in np.flatnonzero(~equal):
            until = int(found.parted[row])
            margins.append(
                mctx_trees.margin(settings, model, states[row], root, row, legal, noise, until)
            )
    num_trees = len(seeds) * num_rows
    record("trees", num_trees)
    record("equal_trees", num_equal_trees)
    record("equal_roots", num_equal_roots)
    record("largest_value_error", largest_error)
    record("margins_of_unequal_trees", margins)
    print(
        f"{num_trees} trees, {num_equal_trees} equal, {num_equal_roots} with equal root visits, values "
        f"within {largest_error:.1e}, margins of the others {margins}"
    )
    assert largest_error <= VALUE_TOLERANCE[dtype]
    allowed = ROUNDING if dtype is np.float32 else TIE_NOISE if rule == "stock puct" else 0.0
    assert all(margin < allowed for margin in margins), margins
    assert num_equal_roots >= LEAST_EQUAL_ROOTS * num_trees


@pytest.mark.parametrize("rule", mctx_trees.RULES)
def test_small_trees_are_the_same(record_property, dtype, rule):
    shape = (6, 24, 2, 0.997, False)
    check_trees(record_property, dtype, rule, shape, LIMITS["limited"], seeds=range(2), num_rows=32)


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rule", mctx_trees.RULES)
def test_trees_are_the_same(record_property, dtype, rule, shape, limit):
    check_trees(record_property, dtype, rule, SHAPES[shape], LIMITS[limit])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *({"max_num_considered_actions": considered} for considered in (1, 2, 4, 16, 100)),
        {"rescale": False},
        {"use_mixed_value": False},
        {"rescale": False, "use_mixed_value": False},
        {"rescale": False, "value_scale": 0.5, "max_num_considered_actions": 4},
        {"gumbel_scale": 0.0},
    ],
    ids=str,
)
def test_options_of_gumbel_give_the_same_trees(record_property, dtype, options):
    shape, limit = SHAPES["18 actions"], LIMITS["limited"]
    check_trees(record_property, dtype, "gumbel", shape, limit, **options)
