"""Reused subtrees: the tree below the move played is searched on, with the hidden states that belong to it."""

from typing import Any

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.inference.rules import RulesModel
from muzero.runtime.build import Builder
from muzero.selfplay import SelfPlay
from tests.selfplay.test_playout_caps import CAPS, make, watch

REUSE = ("selfplay.reuse_subtree=true",)
WAYS = {
    "puct": ("search=puct",),
    "gumbel": ("search=gumbel",),
    "rules": ("search=puct", "search.dynamics=rules"),
    "stacked rules": ("search=puct", "search.dynamics=rules", "env.num_stacked_frames=3"),
}


def ways(function: Any) -> Any:
    return pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())(function)


@ways
def test_a_search_inherits_the_visits_of_the_move_played_and_makes_the_rest(way, monkeypatch):
    selfplay = make(*REUSE, *way, "selfplay.opening_fraction=0", "search.num_simulations=12")
    seen = watch(selfplay, monkeypatch)
    keep, played = selfplay.search.keep_subtrees, []
    monkeypatch.setattr(
        selfplay.search, "keep_subtrees", lambda actions: [played.append(actions), keep(actions)][1]
    )
    num_inherited = 0
    below = np.zeros(32, np.int64)  # visits below the move played
    for move in range(25):
        legal = selfplay.legal.copy()
        is_first = selfplay._moves == 0
        selfplay.play(0)
        output = seen[-1]["output"]
        assert seen[-1].get("kept", False) == (move > 0)
        inherited = output.visits.sum(axis=1) - output.num_simulations
        assert (inherited[is_first] == 0).all()
        if "search.dynamics=rules" in way:
            assert np.array_equal(inherited, below)
        else:  # illegal moves were imagined too, and are cut off
            assert (inherited <= below).all()
        assert (output.num_simulations == np.maximum(1, 12 - inherited)).all()
        assert not output.visits[~legal].any()
        num_inherited += inherited.sum()
        actions = played[-1]
        below = np.maximum(output.visits[np.arange(32), np.maximum(actions, 0)] - 1, 0)
        below[actions < 0] = 0
    assert num_inherited > 300


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_hidden_states_move_with_their_nodes(kind, monkeypatch):
    """Were they left where they stood, the same trees would get other answers."""
    values = {}
    for is_moved in (True, False):
        selfplay = make(*REUSE, f"search.kind={kind}", "selfplay.opening_fraction=0")
        if not is_moved:
            monkeypatch.setattr(selfplay.model, "move_nodes", lambda *_: None)
        seen = watch(selfplay, monkeypatch)
        for _ in range(3):
            selfplay.play(0)
        values[is_moved] = seen[-1]["output"].value
    assert not np.array_equal(values[True], values[False])


def test_with_the_rules_a_kept_tree_is_the_true_one():
    """Every node of a kept tree holds the position that its moves lead to from the position to be played."""
    selfplay = make(*REUSE, *WAYS["stacked rules"], "search.num_simulations=20")
    model, num_checked = selfplay.model, 0
    assert isinstance(model, RulesModel)
    for _ in range(12):
        selfplay.play(0)
        tree, states = selfplay.search.tree, selfplay._states(np.arange(32))
        assert states is not None
        # As the next search will: the roots are the positions to be played.
        for row in range(32):
            held: list[Any] = [states[row]]
            for node in range(1, int(tree.num_slots[row])):
                parent, action = tree.parents[row, node], tree.actions[row, node]
                before = held[parent]
                after = None if before is None else before.child(int(action))
                if after is not None and after.is_terminal():
                    after = None
                held.append(after)
                ours = model._states[row][node]
                assert (ours is None) == (after is None)
                if after is not None:
                    assert ours.history() == after.history()
                    num_checked += 1
    assert num_checked > 500


@ways
def test_openings_and_new_games_begin_with_fresh_trees(way, monkeypatch):
    selfplay = make(*REUSE, *way, "selfplay.opening_fraction=0.7", "selfplay.max_opening_moves=3")
    seen = watch(selfplay, monkeypatch)
    num_idle = 0
    for _ in range(30):
        is_opening, moves = selfplay._openings.running, selfplay._moves.copy()
        first_search = (moves == 0) | (selfplay._recorder._length == selfplay._recorder._start)
        before = selfplay.totals.simulations
        selfplay.play(0)
        output = seen[-1]["output"]
        made = output.num_simulations
        assert (made[is_opening] == 1).all()  # there is no such thing as no simulation
        assert (made[first_search & ~is_opening] == 12).all()
        assert selfplay.totals.simulations - before == made.sum()
        num_idle += is_opening.sum()
    assert num_idle > 50
    report = selfplay.report()
    assert report["selfplay/opening_steps"] == num_idle
    assert 4 < report["selfplay/simulations_per_move"] < 12


def restored_copy(selfplay: SelfPlay, overrides: tuple[str, ...]) -> SelfPlay:
    arrays, meta = selfplay.state()
    copy = make(*overrides)
    copy.restore({name: array.copy() for name, array in arrays.items()}, meta)
    return copy


def assert_same_play(left: SelfPlay, right: SelfPlay, num_moves: int = 15) -> None:
    for _ in range(num_moves):
        ours, theirs = left.play(0), right.play(0)
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            for name in ("action", "policy", "has_policy", "root_value"):
                np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert left.totals == right.totals and left.report() == right.report()


@ways
def test_saved_in_the_middle_it_goes_on_with_its_trees(way):
    overrides = (*REUSE, *way, *CAPS, "selfplay.opening_fraction=0.3")
    selfplay = make(*overrides)
    for _ in range(7):
        selfplay.play(0)
    copy = restored_copy(selfplay, overrides)
    arrays, meta = selfplay.state()
    assert arrays["tree_num_nodes"].max() > 2 and meta["trees"] is not None
    copied, _ = copy.state()
    for name, array in arrays.items():
        np.testing.assert_array_equal(copied[name], array, err_msg=name)
    assert_same_play(selfplay, copy)


def test_without_its_trees_it_would_not_go_on_alike():
    overrides = (*REUSE, "search=puct", "selfplay.opening_fraction=0")
    selfplay = make(*overrides)
    for _ in range(7):
        selfplay.play(0)
    copy = restored_copy(selfplay, overrides)
    copy._searcher._keeps_trees = False
    with pytest.raises(AssertionError):
        assert_same_play(selfplay, copy)


@pytest.mark.parametrize(
    "change",
    [
        "search.num_simulations=16",
        "search.kind=gumbel",
        "search.dynamics=rules",
        "selfplay.reuse_subtree=false",
    ],
)
def test_with_other_settings_it_goes_on_with_fresh_trees(change, monkeypatch):
    selfplay = make(*REUSE, "search=puct")
    for _ in range(5):
        selfplay.play(0)
    copy = restored_copy(selfplay, (*REUSE, "search=puct", change))
    seen = watch(copy, monkeypatch)
    for _ in range(3):
        copy.play(0)
    assert "kept" not in seen[0]
    assert ("kept" in seen[1]) == (change != "selfplay.reuse_subtree=false")


def test_a_run_that_turns_reuse_on_begins_with_fresh_trees():
    selfplay = make("search=puct")
    selfplay.play(0)
    arrays, meta = selfplay.state()
    assert meta["trees"] is None and not any(name.startswith("tree_") for name in arrays)
    copy = restored_copy(selfplay, (*REUSE, "search=puct"))
    copy.play(0)
    assert copy.state()[1]["trees"] is not None


def test_agents_keep_nothing_between_their_moves():
    builder = Builder.of(compose(["experiment=tictactoe", *REUSE]))
    agent = builder.agent(8)
    rng = np.random.default_rng(0)
    observation = rng.random((8, *builder.spec.observation_shape)) < 0.5
    legal = np.ones((8, 9), np.bool_)
    first = agent.act(observation, legal)
    agent.act(observation[::-1].copy(), legal)
    assert np.array_equal(agent.act(observation, legal), first)
