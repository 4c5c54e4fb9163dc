"""Trees with chance nodes that the naive search grew, replayed from their files."""

import json
from pathlib import Path

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run
from mcts.chance import AfterstateOutput, AlternatingModel

FILES = sorted((Path(__file__).parent / "golden").glob("chance_*.json"))


def by_node(record):
    found = {record["node"]: record}
    for child in record["children"].values():
        found.update(by_node(child))
    return found


def logits_of(record):
    return [-np.inf if logit is None else logit for logit in record["logits"]]


class Replay:
    """Answers for the golden tree in every row; a step that the tree does not hold is a failure."""

    def __init__(self, records):
        self.records = records
        self.at = {}

    def follow(self, selection, kind):
        found = []
        for row, parent, branch, node in zip(*(part.tolist() for part in selection), strict=True):
            record = self.records[0] if parent == 0 else self.at[row, parent]
            assert record["kind"] == kind
            child = record["children"].get(str(branch))
            assert child is not None, (
                f"left the golden tree: node {record['node']}, branch {branch}"
            )
            self.at[row, node] = child
            found.append(child)
        return found

    def afterstates(self, selection):
        found = self.follow(selection, "decision")
        logits = np.array([logits_of(record) for record in found])
        return AfterstateOutput(logits, np.array([record["network_value"] for record in found]))

    def states(self, selection):
        found = self.follow(selection, "chance")
        return ModelOutput(
            reward=np.array([record["reward"] for record in found]),
            discount=np.array([record["discount"] for record in found]),
            prior_logits=np.array([logits_of(record) for record in found]),
            value=np.array([record["network_value"] for record in found]),
        )


def test_the_golden_files_are_there():
    assert [path.name for path in FILES] == [
        "chance_gumbel.json",
        "chance_puct.json",
        "chance_puct_two_players.json",
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_golden_tree_is_grown_again(path, dtype):
    golden = json.loads(path.read_text())
    # No choice is so close that rounding could decide it.
    assert golden["smallest_margin"] > 1e-5
    records = by_node(golden["tree"])
    legal = np.array([golden["legal"]] * 3)
    settings = SearchSettings(
        **golden["settings"], num_chance_outcomes=golden["model"]["num_outcomes"]
    )
    search = Search(settings, batch_size=3, num_actions=legal.shape[1], dtype=dtype)
    root = RootOutput(
        np.array([logits_of(records[0])] * 3), np.array([records[0]["network_value"]] * 3)
    )
    output = run(search, AlternatingModel(Replay(records), search), root, legal)
    tree = search.tree
    tolerance = 1e-12 if dtype is np.float64 else 2e-6
    for row in range(3):
        assert np.flatnonzero(tree.visits[row]).tolist() == sorted(records)
        for node, record in records.items():
            assert tree.visits[row, node] == record["visits"]
            assert tree.values[row, node] == pytest.approx(record["value"], abs=tolerance)
            for branch, child in record["children"].items():
                assert tree.parents[row, child["node"]] == node
                assert tree.actions[row, child["node"]] == int(branch)
        assert output.best_action[row] == golden["best_action"]
        np.testing.assert_allclose(output.policy[row], golden["policy"], atol=1e-4)
