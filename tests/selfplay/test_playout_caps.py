"""Playout caps: some moves are searched in full for a policy target, the others fast, in one batch."""

from typing import Any

import numpy as np
import pytest
import torch

from mcts import Search, run
from muzero.config.compose import compose
from muzero.metrics import read_rows
from muzero.runtime.build import Builder
from muzero.runtime.local import LocalRuntime
from muzero.selfplay import SelfPlay

SMALL = (
    "experiment=tictactoe",
    "debug=smoke",
    "selfplay.num_games=32",
    "search.num_simulations=12",
)
CAPS = ("selfplay.full_search_fraction=0.25", "selfplay.fast_simulations=3")


def make(*overrides: str) -> SelfPlay:
    """Self-play with weights that tell positions apart."""
    builder = Builder.of(compose([*SMALL, *overrides]))
    selfplay = builder.selfplay()
    generator = torch.Generator().manual_seed(5)
    weights = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in builder.network().state_dict().items()
    }
    selfplay.model.load(weights, 0)
    return selfplay


def watch(selfplay: SelfPlay, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What every search is begun with and what comes of it."""
    begin, result = selfplay.search.begin, selfplay.search.result
    seen: list[dict[str, Any]] = []

    def beginning(root: Any, legal: Any, noise: Any = None, **options: Any) -> None:
        seen.append({"root": root, "legal": legal, "noise": noise, **options})
        begin(root, legal, noise, **options)

    def resulting() -> Any:
        seen[-1]["output"] = result()
        return seen[-1]["output"]

    monkeypatch.setattr(selfplay.search, "begin", beginning)
    monkeypatch.setattr(selfplay.search, "result", resulting)
    return seen


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_one_batch_mixes_full_and_fast_searches(kind, monkeypatch):
    selfplay = make(f"search.kind={kind}", *CAPS)
    seen = watch(selfplay, monkeypatch)
    segments = [segment for _ in range(60) for segment in selfplay.play(0)]
    is_full = np.concatenate([each["explored"] for each in seen])
    made = np.concatenate([each["output"].num_simulations for each in seen])
    visits = np.concatenate([each["output"].visits.sum(axis=1) for each in seen])
    assert 0.2 < is_full.mean() < 0.3
    assert np.array_equal(made, np.where(is_full, 12, 3)) and np.array_equal(visits, made)
    assert sum(0 < each["explored"].sum() < len(each["explored"]) for each in seen) > 50
    report = selfplay.report()
    assert report["selfplay/full_search_fraction"] == pytest.approx(is_full.mean())
    assert report["selfplay/simulations_per_move"] == pytest.approx(made.mean())
    assert selfplay.totals.simulations == made.sum()

    recorded = np.concatenate([segment.has_policy for segment in segments])
    assert 0.2 < recorded.mean() < 0.3
    policy = np.concatenate([segment.policy for segment in segments]).sum(axis=1)
    np.testing.assert_allclose(policy, recorded, atol=1e-5)
    # Every position keeps its value, whichever way it was searched.
    assert all(segment.root_value.all() for segment in segments)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_a_fast_search_is_one_without_noise(kind, monkeypatch):
    selfplay = make(f"search.kind={kind}", *CAPS, "selfplay.opening_fraction=0")
    seen = watch(selfplay, monkeypatch)
    num_compared = 0
    for _ in range(5):
        observation, legal = selfplay.observation.copy(), selfplay.legal.copy()
        selfplay.play(0)
        is_fast = ~seen[-1]["explored"]
        output = seen[-1]["output"]
        search = Search(selfplay.search.settings, batch_size=len(legal), num_actions=9)
        root = selfplay.model.roots(observation)
        numbers = np.full(len(legal), 3)
        quiet = run(search, selfplay.model, root, legal, None, num_simulations=numbers)
        np.testing.assert_array_equal(output.visits[is_fast], quiet.visits[is_fast])
        # Fewer rows in a matrix product may round otherwise.
        np.testing.assert_allclose(output.value[is_fast], quiet.value[is_fast], atol=1e-6)
        num_compared += is_fast.sum()
        noise = seen[-1]["noise"]
        assert noise.shape == legal.shape and noise.any()
        loud = run(search, selfplay.model, root, legal, noise, num_simulations=numbers)
        assert not np.array_equal(loud.visits, quiet.visits)  # noise would have been seen
    assert num_compared > 100


def test_which_moves_are_searched_in_full_comes_from_the_runs_seed():
    def flags(*overrides: str) -> list[list[bool]]:
        selfplay = make(*CAPS, *overrides)
        segments = [segment for _ in range(20) for segment in selfplay.play(0)]
        return [segment.has_policy.tolist() for segment in segments]

    assert flags() == flags()
    assert flags() != flags("seed=1")


def test_by_default_every_search_is_a_full_one_and_nothing_is_drawn_for_it(monkeypatch):
    plain, capped = make(), make("selfplay.fast_simulations=3")
    seen = watch(capped, monkeypatch)
    for _ in range(12):
        ours, theirs = plain.play(0), capped.play(0)
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            assert left.has_policy.all() and right.has_policy.all()
            np.testing.assert_array_equal(left.policy, right.policy)
            np.testing.assert_array_equal(left.action, right.action)
    assert plain.state()[1]["rng"] == capped.state()[1]["rng"]
    assert all(each.keys() == {"root", "legal", "noise", "output"} for each in seen)


def test_openings_are_no_policy_targets():
    selfplay = make(*CAPS, "selfplay.opening_fraction=1", "selfplay.max_opening_moves=3")
    for _ in range(3):
        selfplay.play(0)
    arrays, _ = selfplay.state()
    frames, has_policy = arrays["frame"], arrays["has_policy"]
    assert frames.shape[1] > 0
    before_first_search = np.arange(frames.shape[1]) < arrays["recorder_start"][:, None]
    assert before_first_search.any() and not has_policy[before_first_search].any()


def test_a_run_tells_how_many_of_its_targets_have_a_policy(tmp_path):
    config = compose(
        [
            *SMALL,
            *CAPS,
            "learner.num_steps=20",
            "logger.progress=none",
            "logger.tensorboard=false",
            "runtime.overlap=false",
        ],
        run_dir=str(tmp_path),
    )
    LocalRuntime(config, tmp_path).train()
    rows = read_rows(tmp_path / "metrics.jsonl")
    for name in ("selfplay/full_search_fraction", "learner/policy_target_fraction"):
        fractions = [row[name] for row in rows if name in row]
        assert fractions and all(0.1 < fraction < 0.45 for fraction in fractions)
    numbers = [row[name] for row in rows if (name := "selfplay/simulations_per_move") in row]
    assert numbers and all(4.0 < number < 7.0 for number in numbers)


def test_without_a_number_for_the_fast_search_nothing_starts():
    builder = Builder.of(compose([*SMALL]))
    builder.config.selfplay.full_search_fraction = 0.5
    with pytest.raises(
        ValueError, match=r"full_search_fraction=0\.5 needs selfplay.fast_simulations"
    ):
        builder.selfplay()
