"""A finished tree as data and as text."""

import json

import numpy as np
import pytest

from mcts import Search, SearchSettings, run
from mcts.export import principal_variation, to_dict, to_dot, to_text
from tests.oracles.table_model import TableModel


@pytest.fixture(params=["puct", "gumbel"])
def finished(request):
    settings = SearchSettings(kind=request.param, num_simulations=40, max_depth=4)
    search = Search(settings, batch_size=3, num_actions=4)
    model = TableModel.draw(np.random.default_rng(0), num_actions=4, players=2)
    legal = np.array([[1, 1, 0, 1]] * 3, bool)
    output = run(search, model, model.root(np.arange(3), 41), legal)
    return search.tree, output


def walk(record):
    yield record
    for child in record["children"]:
        yield from walk(child)


def test_dictionary_holds_the_tree(finished):
    tree, output = finished
    record = json.loads(json.dumps(to_dict(tree, 1)))
    assert record["visits"] == 41
    assert record["value"] == pytest.approx(float(output.value[1]))
    visits = {child["action"]: child["visits"] for child in record["children"]}
    assert [visits.get(action, 0) for action in range(4)] == output.visits[1].tolist()
    nodes = list(walk(record))
    assert sorted(node["node"] for node in nodes) == np.nonzero(tree.visits[1])[0].tolist()
    for node in nodes:
        assert [child["visits"] for child in node["children"]] == sorted(
            (child["visits"] for child in node["children"]), reverse=True
        )
        for child in node["children"]:
            assert child["q"] == pytest.approx(
                child["reward"] + child["discount"] * child["value"], abs=1e-5
            )


def test_dictionary_can_be_cut(finished):
    tree, _ = finished
    record = to_dict(tree, 0, max_depth=1)
    assert record["children"]
    assert all(child["children"] == [] for child in record["children"])


def test_principal_variation_follows_the_visits(finished):
    tree, output = finished
    moves = principal_variation(tree, 2)
    record = to_dict(tree, 2)
    assert output.visits[2, moves[0]] == output.visits[2].max()
    assert 1 <= len(moves) <= 4
    for move in moves:
        most = record["children"][0]["visits"]
        record = next(child for child in record["children"] if child["action"] == move)
        assert record["visits"] == most
    assert record["children"] == []


def test_outline_and_graph_name_the_actions(finished):
    tree, _ = finished
    names = ["up", "down", "left", 'say "hi"']
    text = to_text(tree, 0, max_depth=2, action_names=names)
    lines = text.splitlines()
    assert lines[0].startswith("root  visits 41  value ")
    first_level = {line.strip().split("  ")[0] for line in lines[1:] if line[2] != " "}
    assert first_level <= {"up", "down", 'say "hi"'}
    assert len(first_level) > 1
    dot = to_dot(tree, 0, max_depth=2, action_names=lambda action: names[action])
    assert dot.startswith("digraph search {")
    assert dot.rstrip().endswith("}")
    assert 'say \\"hi\\"' in dot
    assert dot.count("->") == len(lines) - 1


def test_rare_nodes_can_be_left_out(finished):
    tree, _ = finished
    text = to_text(tree, 0, max_depth=None, min_visits=5)
    assert all(int(line.split("visits ")[1].split()[0]) >= 5 for line in text.splitlines())


def test_tree_of_a_begun_search_is_its_root():
    settings = SearchSettings(num_simulations=3)
    search = Search(settings, batch_size=1, num_actions=2)
    model = TableModel.draw(np.random.default_rng(0), num_actions=2)
    search.begin(model.root([0], 4), np.ones((1, 2), bool))
    assert principal_variation(search.tree) == []
    assert to_dict(search.tree)["children"] == []
    assert to_text(search.tree).count("\n") == 1
    assert search.tree.num_bytes > 0
