"""Two halves of a batch searched side by side in two threads: the tree of one while the network of the other runs.

Kernels hold no lock, nor do networks while they compute, so two halves keep two cores busy, or a core and a GPU. Rows are
independent: each half gets exactly what it would get if it were searched alone.

Letters: `B` rows, `A` actions; the first half has `ceil(B / 2)` rows.
"""

import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from mcts.base import BoolArray, FloatArray, KeptSubtrees, Model, RootOutput, SearchOutput
from mcts.policies import SearchSettings
from mcts.search import Search

First = TypeVar("First")
Second = TypeVar("Second")


class Stopped(Exception):
    """Ends a half whose other half has failed."""


def split_rows(num_rows: int) -> int:
    """Rows of the first half; the second has the rest, none of a single row."""
    return (num_rows + 1) // 2


def call_both(
    first: Callable[[threading.Event], First], second: Callable[[threading.Event], Second]
) -> tuple[First, Second]:
    """Call both at once, the second in a thread of its own that has ended when this returns or raises.

    Both are given an event that is set when the other one has failed, or an interrupt has come: they should then raise
    `Stopped` soon. The failure that came first is raised.
    """
    stop = threading.Event()
    failures: list[BaseException] = []
    answers: list[Second] = []

    def call_second() -> None:
        try:
            answers.append(second(stop))
        except BaseException as failure:
            failures.append(failure)
            stop.set()

    thread = threading.Thread(target=call_second, name="mcts-half")
    thread.start()
    try:
        answer = first(stop)
        thread.join()
    except BaseException as failure:
        failures.append(failure)
        stop.set()
        thread.join()
    if failures:
        raise failures[0]
    return answer, answers[0]


def run_pipelined(
    searches: tuple[Search, Search],
    models: tuple[Model, Model],
    root: RootOutput,
    legal: BoolArray,
    noise: FloatArray | None = None,
    **options: Any,
) -> SearchOutput:
    """`mcts.run` with two halves of the rows at once.

    Args:
        searches: One per half, with room for `ceil(B / 2)` and `floor(B / 2)` rows.
        models: One per half, which hold its hidden states: row 0 of the second is row `ceil(B / 2)` of the batch.
        root, legal, noise, options: Of all `B` rows, as in `mcts.run`.

    Raises:
        Exception: What a half raised, after both have ended. Both searches have to begin anew then.
    """
    first = split_rows(len(legal))
    halves = [slice(0, first), slice(first, len(legal))]

    def search_half(half: int, stop: threading.Event) -> SearchOutput:
        rows, search, model = halves[half], searches[half], models[half]
        search.begin(
            RootOutput(root.prior_logits[rows], root.value[rows]),
            legal[rows],
            None if noise is None else noise[rows],
            **{name: _part(option, rows) for name, option in options.items()},
        )
        while (selection := search.select()) is not None:
            if stop.is_set():
                raise Stopped
            search.update(model.recurrent(selection))
        return search.result()

    if first == len(legal):
        return search_half(0, threading.Event())
    outputs = call_both(lambda stop: search_half(0, stop), lambda stop: search_half(1, stop))
    return SearchOutput(
        **{
            field.name: np.concatenate([getattr(output, field.name) for output in outputs])
            for field in fields(SearchOutput)
        }
    )


def _part(option: Any, rows: slice) -> Any:
    """The half of an option that has a value per row."""
    return option[rows] if isinstance(option, np.ndarray) else option


class SearchPair:
    """Two searches that share a batch of up to `batch_size` rows, at least 2: for self-play, in place of one `Search`."""

    def __init__(
        self, settings: SearchSettings, *, batch_size: int, num_actions: int, num_threads: int = 1
    ) -> None:
        if batch_size < 2:
            raise ValueError(f"batch_size={batch_size}: two halves need at least 2 rows")
        self.settings, self.batch_size = settings, batch_size
        self._num_kept = 0
        first = split_rows(batch_size)
        self.halves = (
            Search(settings, batch_size=first, num_actions=num_actions, num_threads=num_threads),
            Search(
                settings,
                batch_size=batch_size - first,
                num_actions=num_actions,
                num_threads=num_threads,
            ),
        )

    def keep_subtrees(
        self,
        actions: npt.NDArray[np.integer],
        outcomes: npt.NDArray[np.integer] | None = None,
    ) -> KeptSubtrees:
        """See `Search.keep_subtrees`; of all rows."""
        arguments = [self._parts(part) for part in (actions, outcomes) if part is not None]
        kept = [
            half.keep_subtrees(*parts)
            for half, *parts in zip(self.halves, *arguments, strict=False)
        ]
        self._num_kept = len(kept)
        return KeptSubtrees(
            np.concatenate([each.source for each in kept]),
            np.concatenate([each.num_nodes for each in kept]),
        )

    def kept_state(self) -> dict[str, npt.NDArray[Any]]:
        """See `Search.kept_state`: the arrays that one search of all rows would give."""
        states = [half.kept_state() for half in self.halves[: self._num_kept]]
        return {name: np.concatenate([state[name] for state in states]) for name in states[0]}

    def restore_kept(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """See `Search.restore_kept`; takes what one search of all rows has given as well."""
        by_row = self._parts(arrays["num_nodes"])
        first = 0
        start = 0
        for half, num_nodes in zip(self.halves, by_row, strict=False):
            rows = slice(start, start + len(num_nodes))
            nodes = slice(first, first + int(num_nodes.sum()))
            half.restore_kept(
                {
                    name: array[rows if name in ("num_nodes", "rows") else nodes]
                    for name, array in arrays.items()
                }
            )
            start, first = rows.stop, nodes.stop
        self._num_kept = len(by_row)

    @staticmethod
    def _parts(by_row: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """What the halves get of an array by rows; only one part of a single row."""
        first = split_rows(len(by_row))
        return [part for part in (by_row[:first], by_row[first:]) if len(part) > 0]
