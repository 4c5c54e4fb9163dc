"""Progressive simulations: a stage of n simulations is self-play with a search that was built for n."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from mcts import Search, run
from muzero.config.compose import compose
from muzero.metrics import read_rows
from muzero.runtime.build import Builder, search_settings
from muzero.runtime.fleet.messages import SELFPLAY
from muzero.runtime.fleet.models import OwnModels
from muzero.runtime.fleet.shard import ReplayShard
from muzero.runtime.fleet.worker import SearchWorker
from muzero.runtime.local import LocalRuntime
from muzero.runtime.memory import memory_need
from muzero.selfplay import SelfPlay
from muzero.selfplay.selfplay import simulations_at
from muzero.weights import to_arrays
from tests.runtime.fleet.roles import FleetLinks, Store, lease, small

SMALL = (
    "experiment=tictactoe",
    "debug=smoke",
    "selfplay.num_games=12",
    "search.max_num_considered_actions=6",
)
STAGES = ("selfplay.progressive_simulations=[3,8]", "selfplay.progressive_steps=[10,25]")
CAPS = ("selfplay.full_search_fraction=0.5", "selfplay.fast_simulations=5")
OPTIONS = {
    "gumbel": (),
    "puct": ("search.kind=puct", "search.forced_playouts=2", "selfplay.temperatures=[0.7]"),
    "pipelined": ("search.pipelined=true",),
    "openings": ("selfplay.opening_fraction=0.5", "selfplay.max_opening_moves=3"),
    "rules": ("search.dynamics=rules",),
}


def make(*overrides: str) -> SelfPlay:
    """Self-play with weights that tell positions apart."""
    builder = Builder.of(compose([*SMALL, *overrides]))
    generator = torch.Generator().manual_seed(5)
    weights = {
        name: value + 0.1 * torch.randn(value.shape, generator=generator)
        for name, value in builder.network().state_dict().items()
    }
    selfplay = builder.selfplay()
    selfplay.model.load(weights, 0)
    return selfplay


def test_the_stage_of_a_learner_step() -> None:
    config = compose([*SMALL, *STAGES, "search.num_simulations=20"]).selfplay
    steps = (0, 9, 10, 24, 25, 10**6)
    assert [simulations_at(config, step, 20) for step in steps] == [3, 3, 8, 8, 20, 20]
    plain = compose([*SMALL]).selfplay
    assert [simulations_at(plain, step, 7) for step in steps] == [7] * 6


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize(("learner_step", "number"), [(9, 3), (10, 8), (25, 20)])
def test_a_stage_plays_the_games_of_a_search_configured_for_its_number(
    options, learner_step, number
):
    staged = make(*options, *STAGES, "search.num_simulations=20")
    plain = make(*options, f"search.num_simulations={number}")
    num_segments = 0
    for _ in range(14):
        ours, theirs = staged.play(learner_step), plain.play(learner_step)
        num_segments += len(ours)
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            for name in ("action", "policy", "root_value", "has_policy"):
                np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    assert num_segments > 10
    assert staged.state()[1]["rng"] == plain.state()[1]["rng"]
    assert staged.report() == plain.report()
    assert staged.totals == plain.totals


@pytest.mark.parametrize("number", [1, 2, 5, 8, 19])
def test_gumbels_halving_is_that_of_the_stages_number(number):
    """Same roots, same noise: every result of the search is that of a `Search` with room for `number` only."""
    selfplay = make("search.num_simulations=20")
    search_config = Builder.of(compose([*SMALL])).config.search
    noise = np.random.default_rng(3).gumbel(size=selfplay.legal.shape).astype(np.float32)
    root, legal = selfplay.model.roots(selfplay.observation), selfplay.legal
    rows = len(legal)
    large = run(
        selfplay.search, selfplay.model, root, legal, noise, num_simulations=np.full(rows, number)
    )
    small_search = Search(search_settings(search_config, number), batch_size=rows, num_actions=9)
    alone = run(small_search, selfplay.model, root, legal, noise)
    for name in ("visits", "policy", "value", "qvalues", "best_action", "best_value", "depth"):
        np.testing.assert_array_equal(getattr(large, name), getattr(alone, name), err_msg=name)
    assert (large.visits.sum(axis=1) == number).all()


@pytest.mark.parametrize(
    ("learner_step", "full", "fast"), [(0, 3, 3), (10, 8, 5), (30, 20, 5)], ids=str
)
def test_a_fast_search_is_never_larger_than_a_full_one_of_its_stage(
    monkeypatch, learner_step, full, fast
):
    selfplay = make(*STAGES, *CAPS, "search.num_simulations=20")
    begin, seen = selfplay.search.begin, []

    def beginning(root, legal, noise=None, **options):
        seen.append((options["explored"], options["num_simulations"]))
        begin(root, legal, noise, **options)

    monkeypatch.setattr(selfplay.search, "begin", beginning)
    for _ in range(20):
        selfplay.play(learner_step)
    is_full, numbers = (np.concatenate(parts) for parts in zip(*seen, strict=True))
    assert 0.4 < is_full.mean() < 0.6
    np.testing.assert_array_equal(numbers, np.where(is_full, full, fast))
    assert selfplay.report()["selfplay/simulations_per_move"] == pytest.approx(numbers.mean())


def test_kept_trees_grow_from_stage_to_stage():
    """A tree that was kept in one stage is searched on in the next, up to that stage's number."""
    # By the rules, since imagined moves that turn out illegal would be cut off.
    selfplay = make(
        *STAGES,
        "selfplay.reuse_subtree=true",
        "selfplay.opening_fraction=0",
        "search.kind=puct",
        "search.dynamics=rules",
        "search.num_simulations=20",
    )
    visits = []
    for step in (0, 0, 12, 12, 40, 40):
        selfplay.play(step)
        visits.append(selfplay.report()["selfplay/simulations_per_move"])
    assert visits[0] == 3 and visits[1] < 3
    assert 3 < visits[2] <= 8 and visits[3] < 8
    assert 8 < visits[4] <= 20 and visits[5] < 20


@pytest.mark.parametrize("overlap", [False, True], ids=["in turn", "overlapped"])
def test_a_runs_metric_follows_the_stages(tmp_path, overlap):
    config = compose(
        [
            *SMALL,
            "selfplay.progressive_simulations=[1,3]",
            "selfplay.progressive_steps=[8,16]",
            "search.num_simulations=6",
            "learner.num_steps=30",
            "runtime.log_interval=1",
            "evaluation.games=0",
            "logger.progress=none",
            "logger.tensorboard=false",
            f"runtime.overlap={overlap}",
        ],
        run_dir=str(tmp_path),
    )
    LocalRuntime(config, tmp_path).train()
    name = "selfplay/simulations_per_move"
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if name in row]
    made = [row[name] for row in rows]
    assert made[0] == 1 and made[-1] == 6 and made == sorted(made)
    assert 3 in made
    # What a row counts was played at or before its step, and behind the row before it.
    for before, row in pairwise(rows):
        allowed = {1: (0, 7), 3: (8, 15), 6: (16, 30)}.get(row[name])
        if allowed is not None:
            assert row["learner_step"] >= allowed[0] and before["learner_step"] <= allowed[1]


def test_a_fleets_worker_takes_the_stage_from_its_lease():
    config = small("selfplay.progressive_simulations=[2]", "selfplay.progressive_steps=[7]")
    links = FleetLinks(ReplayShard(config, 0, 1, 0))
    store = Store(1, to_arrays(Builder.of(config).network().state_dict()))
    worker = SearchWorker(config, 0, 0, links, OwnModels())
    try:
        for learner_step, number in ((6, 2), (7, 4)):
            report = worker.work(lease(SELFPLAY, store, amount=3, learner_step=learner_step))
            assert report.totals.env_steps > 0
            assert report.totals.simulations == number * report.totals.env_steps
            assert report.metrics["selfplay/simulations_per_move"] == number
    finally:
        worker.close()


def test_the_last_stage_bounds_the_memory():
    staged = Builder.of(compose([*SMALL, *STAGES, "search.num_simulations=20"]))
    plain = Builder.of(compose([*SMALL, "search.num_simulations=20"]))
    assert memory_need(staged) == memory_need(plain)
    assert staged.selfplay().search.settings.num_simulations == 20
