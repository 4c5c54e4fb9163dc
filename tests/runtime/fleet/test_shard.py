"""A replay shard: what arrives twice counts once, and one that died is the same again."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from muzero.replay.segment_block import SegmentBlock
from muzero.runtime.fleet import shard as shard_module
from muzero.runtime.fleet.insert_log import Stamp, cuts
from muzero.runtime.fleet.shard import ReplayShard
from reanalyze import Refreshed
from tests.runtime.fleet.roles import assert_same_replay, block, game, small

_made: list[ReplayShard] = []


def make(
    log: Path | None = None, *overrides: str, incarnation: int = 0, index: int = 0, shards: int = 1
) -> ReplayShard:
    _made.append(ReplayShard(small(*overrides), index, shards, incarnation, log))
    return _made[-1]


@pytest.fixture(autouse=True)
def close_logs() -> Iterator[None]:
    """Those of shards that "died" stay open until the end, as a kill leaves them."""
    yield
    while _made:
        _made.pop().close()


def fill(
    shard: ReplayShard, numbers: range, *, worker: int = 0, incarnation: int = 0, seed: int = 0
) -> int:
    """Insert the blocks of a worker; block `n` is the same for every shard."""
    inserted = 0
    for number in numbers:
        made = block(np.random.default_rng([seed, worker, incarnation, number]), version=number)
        inserted += shard.insert(Stamp(worker, incarnation, number), made).inserted
    return inserted


def refreshed(positions, version: int, value: float = 0.5) -> Refreshed:
    return Refreshed(positions.policy[:, ::-1], np.full(len(positions.root_value), value), version)


def test_a_message_that_arrives_twice_counts_once() -> None:
    shard, rng = make(), np.random.default_rng(0)
    first = block(rng)
    ack = shard.insert(Stamp(3, 0, 1), first)
    assert (ack.inserted, ack.is_repeated) == (first.num_sampled, False)
    again = shard.insert(Stamp(3, 0, 1), first)
    # Whoever repeats itself had no answer the first time, and has counted nothing.
    assert (again.inserted, again.is_repeated) == (first.num_sampled, True)
    second = block(rng)
    assert shard.insert(Stamp(3, 0, 5), second).inserted == second.num_sampled
    old = shard.insert(Stamp(3, 0, 4), block(rng))  # older than what is there
    assert (old.inserted, old.is_repeated) == (0, True)
    other = block(rng)
    assert shard.insert(Stamp(4, 0, 1), other).inserted == other.num_sampled  # another worker
    anew = block(rng)
    assert shard.insert(Stamp(3, 1, 1), anew).inserted == anew.num_sampled  # the worker made anew
    assert shard.insert(Stamp(3, 0, 9), block(rng)).is_repeated  # its dead predecessor
    held = sum(each.num_sampled for each in (first, second, other, anew))
    statistics = shard.statistics(0)
    assert statistics["replay/size"] == statistics["replay/inserted"] == held
    assert statistics["replay/repeated_inserts"] == 3


def test_inserts_are_copied() -> None:
    """What an object store lends may vanish."""
    shard, lent, kept = make(), block(np.random.default_rng(0)), make()
    kept.insert(Stamp(0, 0, 1), SegmentBlock({n: a.copy() for n, a in lent.arrays.items()}))
    shard.insert(Stamp(0, 0, 1), lent)
    for array in lent.arrays.values():
        array[...] = 0
    assert_same_replay(shard, kept)


def test_a_bad_block_is_refused() -> None:
    bad = block(np.random.default_rng(0))
    bad.arrays["reward"][2] = np.nan
    with pytest.raises(ValueError, match=r"reward of a segment.*is NaN"):
        make().insert(Stamp(0, 0, 1), bad)


@pytest.mark.parametrize("capacity", [4000, 120], ids=["all kept", "oldest evicted"])
def test_one_that_died_is_the_same_again(tmp_path: Path, capacity: int) -> None:
    """Restored from the checkpoint and filled from the log, against one that lived."""
    setting = (f"replay.capacity={capacity}", "selfplay.segment_length=16")
    lived = make(None, *setting)
    total = fill(lived, range(1, 9)) + fill(lived, range(1, 6), worker=1)

    dies = make(tmp_path, *setting)
    fill(dies, range(1, 6))
    arrays, meta = dies.state()
    fill(dies, range(6, 9))
    fill(dies, range(1, 6), worker=1)

    back = make(tmp_path, *setting, incarnation=1)
    back.restore(arrays, meta)
    assert back.recover(meta["cut"]) == total
    assert_same_replay(lived, back)
    # What the workers send once more, since they had no answer, is known.
    assert fill(back, range(7, 9)) == 0 and fill(back, range(5, 6), worker=1) == 0
    assert fill(back, range(9, 11)) == fill(lived, range(9, 11)) > 0
    assert back.statistics(0)["replay/size"] == lived.statistics(0)["replay/size"]


def test_one_that_dies_again_and_again_is_the_same_again(tmp_path: Path) -> None:
    """Each incarnation logs to a file of its own, and is filled from all files behind the cut."""
    lived, total = make(), 0
    shard, meta = make(tmp_path), None
    for incarnation in range(1, 5):
        total += fill(lived, range(incarnation * 10, incarnation * 10 + 3))
        fill(shard, range(incarnation * 10, incarnation * 10 + 3))
        if incarnation == 2:
            arrays, meta = shard.state()
            shard.forget_before(meta["cut"])
        shard = make(tmp_path, incarnation=incarnation)
        if meta is not None:
            shard.restore(arrays, meta)
        assert shard.recover(0 if meta is None else meta["cut"]) == total
    # Totals of counters and contents are equal; files that the checkpoint holds are gone.
    assert_same_replay(lived, shard)
    assert min(cuts(tmp_path)) == meta["cut"]


def test_a_torn_log_costs_its_last_insert(tmp_path: Path) -> None:
    dies = make(tmp_path)
    fill(dies, range(1, 5))
    path = max(tmp_path.iterdir())
    path.write_bytes(path.read_bytes()[:-3])
    back = make(tmp_path, incarnation=1)
    lived = make()
    assert back.recover(0) == fill(lived, range(1, 4))
    assert_same_replay(lived, back)
    assert fill(back, range(1, 5)) == fill(lived, range(4, 5)) > 0  # it is sent once more
    assert_same_replay_but_repeats(lived, back)


def assert_same_replay_but_repeats(left: ReplayShard, right: ReplayShard) -> None:
    assert_same_replay(left, right)
    assert left.statistics(0)["replay/repeated_inserts"] == 0
    assert right.statistics(0)["replay/repeated_inserts"] == 3


def test_a_run_that_is_resumed_forgets_what_was_logged_behind_its_checkpoint(
    tmp_path: Path,
) -> None:
    """It was played by weights that are gone."""
    saved = make(tmp_path)
    total = fill(saved, range(1, 4))
    arrays, meta = saved.state()
    fill(saved, range(4, 9))
    resumed = make(tmp_path)
    resumed.restore(arrays, meta)
    assert resumed.recover(None) == total
    assert cuts(tmp_path) == [2]
    assert fill(resumed, range(4, 6)) > 0


def test_a_log_that_reaches_back_behind_the_checkpoint_counts_once(tmp_path: Path) -> None:
    dies, lived = make(tmp_path), make()
    fill(dies, range(1, 4))
    arrays, meta = dies.state()
    fill(dies, range(4, 6))
    total = fill(lived, range(1, 6))
    back = make(tmp_path, incarnation=1)
    back.restore(arrays, meta)
    assert back.recover(0) == total
    assert_same_replay(lived, back)


def test_without_a_log_only_the_checkpoint_comes_back() -> None:
    dies = make()
    total = fill(dies, range(1, 4))
    arrays, meta = dies.state()
    assert meta["cut"] is None
    fill(dies, range(4, 6))
    back = make(incarnation=1)
    back.restore(arrays, meta)
    assert back.recover(0) == total == back.statistics(0)["replay/size"]


def test_without_positions_in_the_checkpoint_the_rest_is_restored(tmp_path: Path) -> None:
    """`replay.save_with_checkpoint=false`: totals and stamps go on, positions come from the log behind the cut alone."""
    off = "replay.save_with_checkpoint=false"
    dies = make(tmp_path, off)
    before = fill(dies, range(1, 4))
    arrays, meta = dies.state()
    assert arrays == {}
    behind = fill(dies, range(4, 6))
    back = make(tmp_path, off, incarnation=1)
    back.restore(arrays or None, meta)
    assert back.recover(meta["cut"]) == before + behind
    statistics = back.statistics(0)
    assert (statistics["replay/size"], statistics["replay/inserted"]) == (behind, before + behind)
    assert fill(back, range(1, 6)) == 0
    assert len(back.sample(8, 1, 0).batches) == 1


def test_a_checkpoints_arrays_do_not_change_with_the_shard(tmp_path: Path) -> None:
    shard = make(tmp_path)
    fill(shard, range(1, 4))
    arrays, _ = shard.state()
    kept = {name: array.copy() for name, array in arrays.items()}
    shard.sample(16, 4, 0)
    fill(shard, range(4, 9))
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, kept[name])


def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, monkeypatch, caplog) -> None:
    shard = make(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shard._log, "append", refuse)
    assert fill(shard, range(1, 4)) > 0
    assert shard.statistics(0)["replay/log_errors"] == 3
    assert caplog.text.count("replay shard 0 cannot log its inserts") == 1


def test_samples_carry_the_mass_and_an_empty_shard_gives_none() -> None:
    shard = make()
    empty = shard.sample(8, 3, 0)
    assert empty.batches == [] and empty.mass == 0.0
    total = fill(shard, range(1, 4))
    samples = shard.sample(8, 3, 0)
    assert [len(batch.slot) for batch in samples.batches] == [8, 8, 8]
    assert samples.mass == total  # uniform: a position weighs one
    assert shard.statistics(0)["replay/sampled"] == 24


def test_what_is_used_up_or_too_old_is_given_no_longer() -> None:
    shard = make(None, "replay.max_times_sampled=4")
    total = fill(shard, range(1, 2))
    batches = shard.sample(4, 1000, 0).batches
    assert total <= len(batches) <= 4 * total and shard.sample(4, 1, 0).batches == []
    old = make(None, "replay.max_behaviour_age=5")
    fill(old, range(1, 4))  # versions 1 to 3
    samples = old.sample(64, 1, 8)
    assert set(samples.batches[0].behaviour_version) == {3}
    assert old.sample(64, 1, 9).batches == []


def test_shards_share_the_capacity_and_draw_differently() -> None:
    shards = [make(index=index, shards=4) for index in range(4)]
    for shard in shards:
        fill(shard, range(1, 4))
    assert shards[0].state()[1]["replay"]["storage"]["capacity"] == 1000
    drawn = {tuple(shard.sample(16, 1, 0).batches[0].slot) for shard in shards}
    anew = make(index=0, shards=4, incarnation=1)
    fill(anew, range(1, 4))
    assert len(drawn | {tuple(anew.sample(16, 1, 0).batches[0].slot)}) == 5


def test_priorities_of_the_learner_weigh_in() -> None:
    shard = make(None, "replay.prioritized=true", "replay.priority_exponent=1")
    fill(shard, range(1, 4))
    before = shard.sample(4, 1, 0)
    batch = before.batches[0]
    gone = np.full(1, 10**6)
    slot = np.unique(batch.slot)
    generation = np.array([batch.generation[batch.slot.tolist().index(s)] for s in slot])
    shard.update_priorities(
        [(slot, generation, np.full(len(slot), 50.0)), (slot[:1], gone, np.array([1e6]))]
    )
    after = shard.sample(4, 1, 0).mass
    assert before.mass < after and 50.0 * len(slot) < after < 50.0 * len(slot) + before.mass + 1.0
    assert shard.statistics(0)["replay/dropped_priorities"] == 1


def test_tickets_are_good_once(monkeypatch) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(shard_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    shard = make()
    shard.insert(Stamp(0, 0, 1), SegmentBlock.of([game(np.random.default_rng(0), 9)]))
    assert shard.take(4, 0, 0) is None  # nothing is older than version 0
    first, second = shard.take(4, 7, 7), shard.take(4, 7, 7)
    assert first is not None and second is not None and first.ticket != second.ticket
    assert len(shard.take(4, 7, 7).positions.root_value) == 1 and shard.take(4, 7, 7) is None
    assert shard.give_back(first.ticket, refreshed(first.positions, 7))
    assert not shard.give_back(first.ticket, refreshed(first.positions, 7))
    assert not shard.give_back(999, refreshed(first.positions, 7))
    statistics = shard.statistics(7)
    assert (statistics["reanalyze/positions"], statistics["reanalyze/written"]) == (4, 4)
    assert statistics["reanalyze/target_age"] == pytest.approx((7 + 7 + 7) / 1)
    assert "reanalyze/target_age" not in shard.statistics(7)  # means since the last call

    clock.now = 301.0  # the two that were not brought back may be had by another
    again = shard.take(9, 7, 7)
    assert len(again.positions.root_value) == 5
    assert not shard.give_back(second.ticket, refreshed(second.positions, 7))
    assert shard.give_back(again.ticket, refreshed(again.positions, 7))
    assert shard.statistics(7)["reanalyze/written"] == 9


def test_new_targets_are_in_the_samples() -> None:
    shard = make()
    shard.insert(Stamp(0, 0, 1), SegmentBlock.of([game(np.random.default_rng(0), 5)]))
    assert shard.statistics(3000)["replay/fresh_fraction"] == 0.0
    work = shard.take(16, 3000, 3000)
    shard.give_back(work.ticket, refreshed(work.positions, 3000, value=0.25))
    batch = shard.sample(16, 1, 3000).batches[0]
    assert (batch.target_version == 3000).all() and (batch.root_value == 0.25).all()
    assert (batch.behaviour_version == 0).all()
    assert shard.statistics(3000)["replay/fresh_fraction"] == 1.0
