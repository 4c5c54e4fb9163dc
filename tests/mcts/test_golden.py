"""The trees that ship in the mctx wheel, replayed exactly and without jax."""

import functools
import importlib.metadata
import json

import numpy as np
import pytest

from mcts import Search, SearchSettings, run
from tests.oracles.table_model import TableModel

pytestmark = pytest.mark.oracle

FILES = (
    "muzero_tree.json",
    "muzero_qtransform_tree.json",
    "gumbel_muzero_tree.json",
    "gumbel_muzero_reward_tree.json",
)


@functools.cache
def load(name):
    try:
        files = importlib.metadata.files("mctx")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("mctx is not installed")
    path = next(file for file in files or () if file.name == name)
    return json.loads(path.read_text())


def settings_of(golden):
    config = golden["algorithm_config"]
    options = config.get("qtransform_kwargs") or {}
    normalization = {
        "qtransform_by_min_max": "bounds",
        "qtransform_by_parent_and_siblings": "siblings",
        "qtransform_completed_by_mix_value": "siblings"
        if options.get("rescale_values", True)
        else "none",
    }[config["qtransform"]]
    common = {
        "num_simulations": golden["tree"]["visit"] - 1,
        "normalization": normalization,
        "min_value_range": 0.0,
    }
    if golden["algorithm"] == "muzero":
        return SearchSettings(
            kind="puct",
            value_min=options.get("min_value", -1.0),
            value_max=options.get("max_value", 1.0),
            **common,
        )
    return SearchSettings(
        kind="gumbel",
        max_num_considered_actions=config["max_num_considered_actions"],
        gumbel_scale=config["gumbel_scale"],
        value_scale=options["value_scale"],
        maxvisit_init=options["maxvisit_init"],
        **common,
    )


class GoldenModel:
    """Answers row `row` from the golden tree; the other rows play a table of random numbers."""

    def __init__(self, golden, row, table):
        self.discount = golden["env_config"]["discount"]
        self.row = row
        self.table = table
        self.records = {}
        self.edges = {}
        self._walk(golden["tree"], -1)

    def _walk(self, record, parent):
        index = record["evaluation_index"]
        self.records[index] = (record, parent)
        for child in record["child_stats"]:
            if child["child_stats"]:
                self.edges[index, child["action"]] = child["evaluation_index"]
                self._walk(child, index)

    def _put(self, output, place, node):
        record, _ = self.records[node]
        output.prior_logits[place] = np.log([child["prior"] for child in record["child_stats"]])
        output.value[place] = record["raw_value_view"]
        return record

    def root(self, states):
        root = self.table.root(states, len(self.records))
        self._put(root, self.row, 0)
        return root

    def recurrent(self, selection):
        output = self.table.recurrent(selection)
        (place,) = np.flatnonzero(selection.row == self.row)
        edge = (int(selection.parent[place]), int(selection.action[place]))
        assert edge in self.edges, f"the search left the golden tree at (node, action) {edge}"
        child = self.edges[edge]
        assert child == selection.node[place]
        output.reward[place] = self._put(output, place, child)["reward"]
        output.discount[place] = self.discount
        return output


def check_golden(name, dtype, num_rows, rng, **options):
    """Replay the tree at a random place among `num_rows` rows; the search, its output and the row."""
    golden = load(name)
    row = int(rng.integers(num_rows))
    num_actions = len(golden["tree"]["child_stats"])
    table = TableModel.draw(
        rng, num_states=512, num_actions=num_actions, players="mixed", dtype=dtype
    )
    model = GoldenModel(golden, row, table)
    settings = settings_of(golden)
    search = Search(
        settings,
        batch_size=num_rows,
        num_actions=num_actions,
        dtype=dtype,
        num_threads=3,
        min_rows_per_thread=2,
    )
    legal = rng.random((num_rows, num_actions)) < 0.7
    legal[:, 0] = True
    legal[row] = True
    num_simulations = options.get("num_simulations")
    if num_simulations is not None:
        num_simulations[row] = settings.num_simulations
    output = run(search, model, model.root(rng.integers(512, size=num_rows)), legal, **options)
    tree = search.tree
    assert tree.num_nodes == len(model.records)
    tolerance = 2e-6 if dtype == np.float32 else 1e-6
    for index, (record, parent) in model.records.items():
        assert tree.parents[row, index] == parent
        assert tree.actions[row, index] == record.get("action", -1)
        assert tree.visits[row, index] == record["visit"]
        assert tree.values[row, index] == pytest.approx(record["value_view"], abs=tolerance)
    visits = [child.get("visit", 0) for child in golden["tree"]["child_stats"]]
    np.testing.assert_array_equal(output.visits[row], visits)
    assert output.value[row] == pytest.approx(golden["tree"]["value_view"], abs=tolerance)
    assert (output.visits[~legal] == 0).all()
    return settings, output


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FILES)
def test_golden_tree_is_replayed_exactly(name, dtype):
    check_golden(name, dtype, 1, np.random.default_rng(0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FILES)
def test_golden_tree_grows_at_any_place_among_rows_that_play_random_tables(name, dtype, seed):
    settings, output = check_golden(name, dtype, 24, np.random.default_rng(seed))
    assert (output.visits.sum(axis=1) == settings.num_simulations).all()
    assert len(np.unique(output.visits, axis=0)) == 24  # every row has another tree


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FILES)
def test_golden_tree_grows_while_other_rows_end_early(name, dtype):
    rng = np.random.default_rng(7)
    num_simulations = rng.integers(1, 51, size=24).astype(np.int32)
    _, output = check_golden(name, dtype, 24, rng, num_simulations=num_simulations)
    np.testing.assert_array_equal(output.visits.sum(axis=1), num_simulations)
    np.testing.assert_array_equal(output.num_simulations, num_simulations)
