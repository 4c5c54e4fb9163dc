"""Chance nodes with the search's options and tools, and what is refused."""

import dataclasses

import numpy as np
import pytest

from mcts import RootOutput, Search, SearchSettings, run
from mcts.chance import AlternatingModel
from mcts.export import principal_variation, to_dict, to_dot, to_text
from mcts.pipeline import SearchPair, run_pipelined
from tests.oracles.chance_cases import Fixed, search_table
from tests.oracles.chance_table import ChanceTable

KINDS = ["puct", "gumbel"]


def test_a_search_without_chance_is_not_alternated():
    search = Search(SearchSettings(), batch_size=1, num_actions=2)
    with pytest.raises(ValueError, match="num_chance_outcomes=0"):
        AlternatingModel(Fixed([1.0], [0.0], [0.0]), search)
    with pytest.raises(ValueError, match="num_chance_outcomes=-1: must be at least 0"):
        SearchSettings(num_chance_outcomes=-1)


@pytest.mark.parametrize(
    ("kind_of_node", "name"),
    [
        ("afterstates", "chance_logits"),
        ("afterstates", "value"),
        ("states", "prior_logits"),
        ("states", "reward"),
        ("states", "discount"),
        ("states", "value"),
    ],
)
@pytest.mark.parametrize("fault", ["shape", "nan"])
def test_a_faulty_answer_is_named(kind_of_node, name, fault):
    model = ChanceTable.draw(np.random.default_rng(0), num_actions=4, num_outcomes=3)

    class Faulty:
        def __getattr__(self, asked):
            def answer(selection):
                output = getattr(model, asked)(selection)
                if asked == kind_of_node:
                    values = getattr(output, name).copy()
                    values[0] = np.nan
                    values = values[..., None] if fault == "shape" else values
                    fields = {field: getattr(output, field) for field in output.__slots__}
                    output = type(output)(**{**fields, name: values})
                return output

            return answer

    search = Search(
        SearchSettings(num_simulations=20, num_chance_outcomes=3), batch_size=2, num_actions=4
    )
    root = model.root(np.arange(2), 21)
    expected = {"shape": f"{name} has shape", "nan": "non-finite values: row"}[fault]
    with pytest.raises(ValueError, match=expected):
        run(search, AlternatingModel(Faulty(), search), root, np.ones((2, 4), bool))


def test_kept_subtrees_need_the_outcome_that_came():
    model = ChanceTable.draw(np.random.default_rng(0), num_actions=4, num_outcomes=3)
    search_settings = SearchSettings(num_simulations=30, num_chance_outcomes=3)
    search, output = search_table(search_settings, model, np.arange(2))
    actions = output.best_action
    with pytest.raises(ValueError, match="outcomes=None: keep_subtrees takes them exactly when"):
        search.keep_subtrees(actions)
    with pytest.raises(ValueError, match="outcomes of row 1 is 3: it must be -1 to 2"):
        search.keep_subtrees(actions, np.array([0, 3]))
    tree = search.tree
    afterstates = tree.child_index[np.arange(2), 0, actions]
    outcomes = tree.child_visits[np.arange(2), afterstates].argmax(axis=1)
    states = tree.child_index[np.arange(2), afterstates, outcomes]
    visits = tree.visits[np.arange(2), states]
    kept = search.keep_subtrees(actions, outcomes)
    np.testing.assert_array_equal(kept.source[:, 0], states)
    assert (kept.num_nodes == visits).all()
    plain = Search(SearchSettings(num_simulations=1), batch_size=2, num_actions=4)
    plain.begin(model.replant(np.arange(2)), np.ones((2, 4), bool))
    with pytest.raises(ValueError, match="num_chance_outcomes=0"):
        plain.keep_subtrees(actions, outcomes)


@pytest.mark.parametrize("kind", KINDS)
def test_two_halves_with_chance_are_one_whole(kind):
    model = ChanceTable.draw(np.random.default_rng(1), num_actions=4, num_outcomes=3, players=2)
    search_settings = SearchSettings(kind=kind, num_simulations=30, num_chance_outcomes=3)
    states = np.arange(7)
    whole, expected = search_table(search_settings, model, states, dtype=np.float32)
    pair = SearchPair(search_settings, batch_size=7, num_actions=4)
    halves = [dataclasses.replace(model) for _ in range(2)]
    for half, rows in zip(halves, (states[:4], states[4:]), strict=True):
        half.root(rows, 31)
    root = RootOutput(model.logits[states], model.value[states])
    first, second = pair.halves
    drivers = (AlternatingModel(halves[0], first), AlternatingModel(halves[1], second))
    output = run_pipelined(pair.halves, drivers, root, np.ones((7, 4), bool))
    np.testing.assert_array_equal(output.visits, expected.visits)
    np.testing.assert_array_equal(output.value, expected.value)
    outcomes = np.arange(7) % 3
    kept = pair.keep_subtrees(output.best_action, outcomes)
    of_whole = whole.keep_subtrees(expected.best_action, outcomes)
    assert (of_whole.num_nodes > 1).any()
    np.testing.assert_array_equal(kept.source, of_whole.source)
    np.testing.assert_array_equal(kept.num_nodes, of_whole.num_nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_early_changes_no_action(kind):
    model = ChanceTable.draw(np.random.default_rng(3), num_actions=4, num_outcomes=3, players=2)
    options = {"kind": kind, "num_simulations": 60, "num_chance_outcomes": 3}
    legal = np.ones((32, 4), bool)
    legal[0, 1:] = False
    _, whole = search_table(SearchSettings(**options), model, np.arange(32), legal)
    _, stopped = search_table(
        SearchSettings(**options, stop_early=True), model, np.arange(32), legal
    )
    np.testing.assert_array_equal(stopped.best_action, whole.best_action)
    assert (stopped.num_simulations <= 60).all()
    assert stopped.num_simulations[0] < 60


def test_export_tells_outcomes_from_actions():
    # More outcomes than there are names of actions.
    model = Fixed(np.full(4, 0.25), rewards=np.arange(4.0), discounts=np.zeros(4), num_actions=2)
    search, _ = model.search(kind="puct", num_simulations=30, max_depth=3)
    record = to_dict(search.tree)
    assert record["kind"] == "decision"
    assert record["children"][0]["kind"] == "chance"
    below = record["children"][0]["children"]
    assert sorted(child["action"] for child in below) == [0, 1, 2, 3]
    assert {child["kind"] for child in below} == {"decision"}
    assert [child["prior"] for child in below] == [0.25] * 4
    names = {"action_names": ["roll", "hold"]}
    assert "    outcome 3  visits" in to_text(search.tree, **names)
    named = to_text(search.tree, **names, outcome_names=lambda face: f"a {face + 1}")
    assert "\n    a 4  visits" in named
    assert "\n  hold  visits" in named
    assert '[label="outcome 3\\nq' in to_dot(search.tree, **names)
    moves = principal_variation(search.tree)
    assert search.tree.child_visits[0, 0, moves[0]] == search.tree.child_visits[0, 0].max()
    assert len(moves) >= 2
