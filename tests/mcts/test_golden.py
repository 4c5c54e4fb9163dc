"""The trees that ship in the mctx wheel, replayed exactly and without jax."""

import importlib.metadata
import json

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run

pytestmark = pytest.mark.oracle

FILES = (
    "muzero_tree.json",
    "muzero_qtransform_tree.json",
    "gumbel_muzero_tree.json",
    "gumbel_muzero_reward_tree.json",
)


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

    def __init__(self, golden, num_rows, row, rng, dtype):
        self.discount = golden["env_config"]["discount"]
        self.row = row
        self.num_rows = num_rows
        self.dtype = dtype
        self.records = {}
        self.edges = {}
        self._walk(golden["tree"], -1)
        self.num_actions = len(golden["tree"]["child_stats"])
        self.table = rng.normal(size=(257, self.num_actions + 3))

    def _walk(self, record, parent):
        index = record["evaluation_index"]
        self.records[index] = (record, parent)
        for child in record["child_stats"]:
            if child["child_stats"]:
                self.edges[index, child["action"]] = child["evaluation_index"]
                self._walk(child, index)

    def _outputs(self, nodes, golden_node):
        draws = self.table[nodes % 257]
        logits = draws[:, 3:].copy()
        value = np.tanh(draws[:, 0])
        record, _ = self.records[golden_node]
        logits[self.row] = np.log([child["prior"] for child in record["child_stats"]])
        value[self.row] = record["raw_value_view"]
        return logits.astype(self.dtype), value.astype(self.dtype), draws

    def root(self):
        logits, value, _ = self._outputs(np.arange(self.num_rows) * 31, 0)
        return RootOutput(prior_logits=logits, value=value)

    def recurrent(self, selection):
        edge = (int(selection.parent[self.row]), int(selection.action[self.row]))
        assert edge in self.edges, f"the search left the golden tree at (node, action) {edge}"
        child = self.edges[edge]
        assert child == selection.node[self.row]
        nodes = selection.parent * 31 + selection.action * 7 + np.arange(self.num_rows)
        logits, value, draws = self._outputs(nodes, child)
        reward = np.tanh(draws[:, 1])
        discount = np.sign(draws[:, 2]) * 0.9
        reward[self.row] = self.records[child][0]["reward"]
        discount[self.row] = self.discount
        return ModelOutput(
            reward=reward.astype(self.dtype),
            discount=discount.astype(self.dtype),
            prior_logits=logits,
            value=value,
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num_rows", [1, 5])
@pytest.mark.parametrize("name", FILES)
def test_golden_tree_is_replayed_exactly(name, num_rows, dtype):
    golden = load(name)
    row = num_rows // 2
    model = GoldenModel(golden, num_rows, row, np.random.default_rng(3), dtype)
    settings = settings_of(golden)
    search = Search(settings, batch_size=num_rows, num_actions=model.num_actions, dtype=dtype)
    legal = np.ones((num_rows, model.num_actions), bool)
    output = run(search, model, model.root(), legal)
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
