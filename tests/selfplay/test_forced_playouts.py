"""Forced playouts are for self-play's full searches, and neither their targets nor their moves follow them."""

import numpy as np
import pytest

from muzero.config.compose import compose
from muzero.runtime.build import Builder
from tests.selfplay.test_playout_caps import CAPS, make, watch

FORCED = (
    "search=puct",
    "search.forced_playouts=2",
    "search.num_simulations=40",
    "selfplay.opening_fraction=0",
)


def test_self_play_alone_is_given_them():
    builder = Builder.of(compose(["experiment=tictactoe", *FORCED, "reanalyze.fresh_fraction=0.5"]))
    refresher = builder.refresher()
    agent = builder.agent(4)
    assert builder.selfplay().search.settings.forced_playouts == 2.0
    assert refresher is not None and refresher._search.settings.forced_playouts == 0.0
    assert agent.settings is not None and agent.settings.forced_playouts == 0.0


def test_pruned_actions_are_neither_targets_nor_played(monkeypatch):
    selfplay = make(*FORCED)
    seen = watch(selfplay, monkeypatch)
    segments = [segment for _ in range(30) for segment in selfplay.play(0)]
    pruned = [
        (each["output"].visits > 0) & (each["output"].policy == 0) & each["legal"] for each in seen
    ]
    assert np.concatenate(pruned).sum() > 100
    played = [
        segment.policy[at, segment.action[at]] for segment in segments for at in range(len(segment))
    ]
    assert len(played) > 200 and min(played) > 0


def test_fast_searches_force_nothing(monkeypatch):
    selfplay = make(*FORCED, *CAPS)
    seen = watch(selfplay, monkeypatch)
    for _ in range(20):
        selfplay.play(0)
    pruned = {True: 0, False: 0}
    for each in seen:
        visits, policy = each["output"].visits, each["output"].policy
        fractions = visits / visits.sum(axis=1, keepdims=True)
        differs = ~np.isclose(policy, fractions, atol=1e-6).all(axis=1)
        for is_full in (True, False):
            pruned[is_full] += int(differs[each["explored"] == is_full].sum())
    assert pruned[True] > 50 and pruned[False] == 0


def test_gumbel_has_no_use_for_them():
    with pytest.raises(ValueError, match=r"forced_playouts.*puct"):
        Builder.of(compose(["experiment=tictactoe", "search.forced_playouts=2"])).selfplay()
