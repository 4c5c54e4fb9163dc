"""Self-play with a pipelined search: the same games, found by two threads."""

import threading

import numpy as np
import pytest
import torch

from mcts.pipeline import SearchPair
from muzero.config.compose import compose
from muzero.inference.pair import ModelPair
from muzero.runtime.build import Builder
from muzero.selfplay import SelfPlay

SMALL = ("debug=smoke", "search.num_simulations=8")
CASES = {
    "gumbel": ("experiment=tictactoe", "selfplay.num_games=7"),
    "puct": ("experiment=tictactoe", "search=puct", "selfplay.num_games=8"),
    "convolutions": ("experiment=tictactoe", "network=resnet_small", "selfplay.num_games=5"),
    "cuts": ("experiment=cartpole", "env.max_episode_steps=5", "selfplay.num_games=3"),
    "openings": (
        "experiment=tictactoe",
        "selfplay.num_games=3",
        "selfplay.opening_fraction=1",
        "selfplay.max_opening_moves=4",
    ),
    "kept trees": (
        "experiment=tictactoe",
        "search=puct",
        "selfplay.num_games=5",
        "selfplay.reuse_subtree=true",
    ),
    "caps": (
        "experiment=tictactoe",
        "search=puct",
        "selfplay.num_games=6",
        "selfplay.full_search_fraction=0.5",
        "selfplay.fast_simulations=3",
    ),
}


def make(*overrides: str) -> SelfPlay:
    return Builder.of(compose([overrides[0], *SMALL, *overrides[1:]])).selfplay()


def assert_same_segments(mine, expected) -> None:
    assert len(mine) == len(expected)
    for a, b in zip(mine, expected, strict=True):
        for name in ("action", "policy", "root_value", "reward", "version"):
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_it_plays_the_same_games_bit_for_bit(case):
    """On a CPU a row's answer does not hang on the rows beside it, so halves change nothing at all."""
    plain, pipelined = make(*case), make(*case, "search.pipelined=true")
    assert isinstance(pipelined.search, SearchPair) and isinstance(pipelined.model, ModelPair)
    before, num_segments = threading.active_count(), 0
    for _ in range(25):
        expected = plain.play(0)
        assert_same_segments(pipelined.play(0), expected)
        num_segments += len(expected)
    assert num_segments > 0
    assert plain.totals == pipelined.totals
    reports = plain.report(), pipelined.report()
    # Half as many rows make a call, and that is all that differs.
    rows = [report.pop("selfplay/rows_per_network_call") for report in reports]
    assert reports[0] == reports[1]
    assert 1 <= rows[1] < rows[0]
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("first", "then"), [("true", "false"), ("false", "true"), ("true", "true")]
)
def test_it_is_saved_and_continued_either_way(first, then):
    case = CASES["kept trees"]
    played = make(*case, f"search.pipelined={first}")
    for _ in range(6):
        played.play(0)
    arrays, meta = played.state()
    continued = make(*case, f"search.pipelined={then}", "seed=9")
    continued.restore(arrays, meta)
    for _ in range(10):
        assert_same_segments(continued.play(0), played.play(0))


def test_new_weights_reach_both_halves():
    builder = Builder.of(compose([*CASES["gumbel"][:1], *SMALL, "search.pipelined=true"]))
    selfplay = builder.selfplay()
    generator = torch.Generator().manual_seed(0)
    state = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in builder.network().state_dict().items()
    }
    observation = np.random.default_rng(0).random((4, *builder.spec.observation_shape))
    before = selfplay.model.roots(observation).value
    selfplay.model.load(state, 12)
    after = selfplay.model.roots(observation).value
    assert selfplay.model.version == 12
    assert (before != after).all()
    np.testing.assert_array_equal(selfplay.model.values(observation), after)


def test_a_model_that_fails_in_the_second_half_stops_self_play(monkeypatch):
    selfplay = make(*CASES["puct"], "search.pipelined=true")
    assert isinstance(selfplay.model, ModelPair)

    def fail(selection):
        raise RuntimeError("the network broke")

    monkeypatch.setattr(selfplay.model.halves[1], "recurrent", fail)
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="the network broke"):
        selfplay.play(0)
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("selfplay.num_games=1", "needs two halves, but selfplay.num_games is 1; play at least 2"),
        ("search.dynamics=rules", "with search.dynamics='rules', whose moves are made by one"),
    ],
)
def test_what_cannot_be_halved_is_refused(change, words):
    with pytest.raises(ValueError, match=f"^search.pipelined is true.*{words}"):
        compose(["experiment=tictactoe", "search.pipelined=true", change])
