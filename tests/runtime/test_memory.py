"""What a run will take is told and refused before it is taken (peers, row 76)."""

import numpy as np
import psutil
import pytest

from muzero.config.compose import compose
from muzero.runtime.build import Builder
from muzero.runtime.memory import available_memory, check_memory, memory_need


def builder(*overrides: str) -> Builder:
    return Builder.of(compose(["experiment=tictactoe", *overrides]))


@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_the_need_of_replay_is_what_the_buffer_then_takes(replay):
    made = builder(f"replay={replay}", "replay.capacity=5000", "replay.min_size=100")
    assert memory_need(made).replay == made.replay().bytes


def test_latents_count_the_trees_of_self_play_and_reanalyze():
    plain = memory_need(builder("selfplay.num_games=10", "search.num_simulations=7"))
    with_reanalyze = memory_need(
        builder(
            "selfplay.num_games=10",
            "search.num_simulations=7",
            "reanalyze.fresh_fraction=0.5",
            "reanalyze.batch_size=20",
        )
    )
    size = builder().network().latent_shape[0]
    assert plain.latents == 4 * size * 10 * 8
    assert with_reanalyze.latents == plain.latents + 4 * size * 20 * 8


def test_a_run_that_needs_more_than_its_limit_is_refused_with_the_capacity_that_fits():
    made = builder("runtime.memory_limit_gb=0.5", "replay.capacity=100000000")
    with pytest.raises(
        ValueError, match=r"replay\.capacity=100000000 takes .*runtime\.memory_limit_gb=0\.5"
    ) as error:
        check_memory(made)
    fitting = int(str(error.value).rsplit("to ", 1)[1].split()[0])
    assert 1_000_000 < fitting < 10_000_000
    smaller = builder("runtime.memory_limit_gb=0.5", f"replay.capacity={fitting // 2}")
    assert check_memory(smaller).total <= 0.5e9


def test_a_run_that_the_machine_cannot_hold_is_refused():
    positions = psutil.virtual_memory().total // 10  # at more than 100 bytes each
    with pytest.raises(ValueError, match=r"this machine has free; lower replay\.capacity to"):
        check_memory(builder(f"replay.capacity={positions}"))


def test_a_containers_limit_counts(tmp_path):
    (tmp_path / "memory.max").write_text("5000\n")
    (tmp_path / "memory.current").write_text("3000\n")
    assert available_memory(tmp_path) == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory(tmp_path) > 1e6
    assert np.isclose(available_memory(tmp_path / "none"), available_memory(tmp_path), rtol=0.2)
