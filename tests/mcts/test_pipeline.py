"""Two halves at once: the results of one after the other, and what happens when a half fails."""

import copy
import threading
from dataclasses import fields

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchOutput, SearchSettings, draw_noise, run
from mcts.pipeline import SearchPair, Stopped, call_both, run_pipelined, split_rows
from tests.oracles.table_model import TableModel

NUM_ACTIONS = 5
WAIT_SECONDS = 30.0


def draw_case(kind: str, num_rows: int, seed: int = 0):
    """Settings, two table models over one table, root, legal actions and noise."""
    rng = np.random.default_rng(seed)
    settings = SearchSettings(kind=kind, num_simulations=24)
    table = TableModel.draw(rng, num_actions=NUM_ACTIONS, players="mixed", dtype=np.float32)
    models = (table, copy.copy(table))
    states = rng.integers(len(table.value), size=num_rows)
    roots = plant(models, states, settings)
    legal = rng.random((num_rows, NUM_ACTIONS)) < 0.7
    legal[:, 0] = True
    return settings, models, states, roots, legal, draw_noise(settings, legal, rng)


def plant(models, states, settings) -> RootOutput:
    first = split_rows(len(states))
    parts = [
        model.root(part, settings.num_simulations + 1)
        for model, part in zip(models, (states[:first], states[first:]), strict=True)
    ]
    return RootOutput(
        np.concatenate([part.prior_logits for part in parts]),
        np.concatenate([part.value for part in parts]),
    )


def pair_of(settings, num_rows: int) -> SearchPair:
    return SearchPair(settings, batch_size=num_rows, num_actions=NUM_ACTIONS)


def assert_same(output: SearchOutput, expected: SearchOutput) -> None:
    for field in fields(SearchOutput):
        mine, other = getattr(output, field.name), getattr(expected, field.name)
        assert mine.dtype == other.dtype
        np.testing.assert_array_equal(mine, other, err_msg=field.name)


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize("num_rows", [2, 7, 64])
def test_two_halves_at_once_are_the_halves_one_after_the_other_and_the_whole(kind, num_rows):
    settings, models, states, root, legal, noise = draw_case(kind, num_rows)
    pair = pair_of(settings, num_rows)
    rng = np.random.default_rng(1)
    options = {
        "num_simulations": rng.integers(1, 25, num_rows),
        "explored": rng.random(num_rows) < 0.5,
    }
    output = run_pipelined(pair.halves, models, root, legal, noise, **options)

    plant(models, states, settings)
    first = split_rows(num_rows)
    one_by_one = [
        run(
            Search(settings, batch_size=num_rows, num_actions=NUM_ACTIONS),
            model,
            RootOutput(root.prior_logits[rows], root.value[rows]),
            legal[rows],
            noise[rows],
            **{name: option[rows] for name, option in options.items()},
        )
        for model, rows in zip(models, (slice(first), slice(first, None)), strict=True)
    ]
    assert_same(
        output,
        SearchOutput(
            **{
                field.name: np.concatenate([getattr(half, field.name) for half in one_by_one])
                for field in fields(SearchOutput)
            }
        ),
    )
    whole = copy.copy(models[0])
    whole_root = whole.root(states, settings.num_simulations + 1)
    search = Search(settings, batch_size=num_rows, num_actions=NUM_ACTIONS)
    assert_same(output, run(search, whole, whole_root, legal, noise, **options))


def test_the_halves_are_searched_at_the_same_time():
    settings, models, _, root, legal, noise = draw_case("puct", 8)
    meeting = threading.Barrier(2)

    class Meeting:
        def __init__(self, model):
            self.model = model

        def recurrent(self, selection):
            meeting.wait(
                WAIT_SECONDS
            )  # breaks, and raises, if the other half is not in its network too
            return self.model.recurrent(selection)

    pair = pair_of(settings, 8)
    output = run_pipelined(
        pair.halves, (Meeting(models[0]), Meeting(models[1])), root, legal, noise
    )
    assert (output.num_simulations == settings.num_simulations).all()


def test_a_single_row_is_searched_by_the_first_half_alone():
    settings, models, states, root, legal, noise = draw_case("gumbel", 2)
    models[0].root(states[:1], settings.num_simulations + 1)
    one = RootOutput(root.prior_logits[:1], root.value[:1])
    pair = pair_of(settings, 2)
    output = run_pipelined(pair.halves, models, one, legal[:1], noise[:1])
    assert output.visits.shape == (1, NUM_ACTIONS)
    assert models[0].num_calls == settings.num_simulations and models[1].num_calls == 0


class Failing:
    """Fails at a simulation; before that, and after the other has failed, it goes on for ever."""

    def __init__(self, model, at: int | None = None, error: BaseException | None = None):
        self.model, self.at, self.error, self.calls = model, at, error, 0

    def recurrent(self, selection):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        return self.model.recurrent(selection)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt(), SystemExit(3)])
def test_what_a_half_raises_reaches_the_caller_and_ends_the_other(half, error):
    settings, models, states, root, legal, noise = draw_case("puct", 6)
    pair = pair_of(settings, 6)
    before = threading.active_count()
    failing = [Failing(model) for model in models]
    failing[half] = Failing(models[half], at=3, error=error)
    with pytest.raises(type(error)) as caught:
        run_pipelined(pair.halves, tuple(failing), root, legal, noise)
    assert caught.value is error
    assert threading.active_count() == before
    # Both can begin anew.
    root = plant(models, states, settings)
    output = run_pipelined(pair.halves, models, root, legal, noise)
    assert (output.num_simulations == settings.num_simulations).all()


@pytest.mark.parametrize("half", [0, 1])
def test_the_other_half_stops_when_told(half):
    """The half that does not fail waits until it is told to stop, and so cannot have ended by itself."""
    told = []

    def fail(stop):
        raise ValueError("broken")

    def wait(stop):
        told.append(stop.wait(WAIT_SECONDS))
        raise Stopped

    calls = (fail, wait) if half == 0 else (wait, fail)
    before = threading.active_count()
    with pytest.raises(ValueError, match="broken"):
        call_both(*calls)
    assert told == [True]
    assert threading.active_count() == before


def test_a_wrong_answer_of_a_model_is_named_with_the_row_of_its_half():
    settings, models, _, root, legal, noise = draw_case("puct", 6)

    class Wrong(TableModel):
        def recurrent(self, selection):
            output = TableModel.recurrent(self, selection)
            value = np.array(output.value)
            value[1] = np.nan
            return ModelOutput(output.reward, output.discount, output.prior_logits, value)

    wrong = copy.copy(models[1])
    wrong.__class__ = Wrong
    pair = pair_of(settings, 6)
    with pytest.raises(ValueError, match="non-finite values: row 1, simulation 0"):
        run_pipelined(pair.halves, (models[0], wrong), root, legal, noise)


def test_searches_leave_no_threads_behind():
    settings, models, states, root, legal, noise = draw_case("gumbel", 4)
    pair = pair_of(settings, 4)
    before = threading.active_count()
    for _ in range(20):
        run_pipelined(pair.halves, models, root, legal, noise)
        root = plant(models, states, settings)
    assert threading.active_count() == before


@pytest.mark.parametrize("num_rows", [2, 5])
def test_kept_trees_of_a_pair_are_those_of_one_search_and_can_be_saved_by_either(num_rows):
    settings, models, states, root, legal, noise = draw_case("puct", num_rows)
    pair = pair_of(settings, num_rows)
    output = run_pipelined(pair.halves, models, root, legal, noise)
    whole = copy.copy(models[0])
    search = Search(settings, batch_size=num_rows, num_actions=NUM_ACTIONS)
    expected = run(search, whole, whole.root(states, settings.num_simulations + 1), legal, noise)
    assert_same(output, expected)

    actions = np.where(np.arange(num_rows) == 1, -1, output.best_action).astype(np.int32)
    kept, expected_kept = pair.keep_subtrees(actions), search.keep_subtrees(actions)
    np.testing.assert_array_equal(kept.num_nodes, expected_kept.num_nodes)
    np.testing.assert_array_equal(kept.source, expected_kept.source)
    saved, expected_saved = pair.kept_state(), search.kept_state()
    assert saved.keys() == expected_saved.keys()
    for name, array in saved.items():
        np.testing.assert_array_equal(array, expected_saved[name])

    # Saved by one search, continued by a pair: the same as the one search goes on with.
    restored = pair_of(settings, num_rows)
    restored.restore_kept(expected_saved)
    np.testing.assert_array_equal(restored.kept_state()["links"], expected_saved["links"])
    first = split_rows(num_rows)
    whole.move_nodes(expected_kept.source, expected_kept.num_nodes)
    for model, rows in zip(models, (slice(first), slice(first, None)), strict=True):
        model.move_nodes(kept.source[rows], kept.num_nodes[rows])
    following = np.arange(num_rows) % len(whole.value)
    next_root = whole.replant(following)
    models[0].replant(following[:first])
    models[1].replant(following[first:])
    everything = np.ones_like(legal)
    assert_same(
        run_pipelined(restored.halves, models, next_root, everything, noise, kept=True),
        run(search, whole, next_root, everything, noise, kept=True),
    )


def test_a_pair_needs_two_rows():
    with pytest.raises(ValueError, match="batch_size=1: two halves need at least 2 rows"):
        pair_of(SearchSettings(), 1)
