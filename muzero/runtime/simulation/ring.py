"""The replay's ring as the simulation sees it: which versions made how many positions."""

import heapq
import itertools
from collections import Counter, deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Part:
    """Positions of one chunk whose targets have one version."""

    version: int
    count: int
    chunk: "_Chunk"
    is_taken: bool = False


@dataclass(slots=True)
class _Chunk:
    """What one lease inserted."""

    version: int
    count: int
    parts: list[_Part] = field(default_factory=list)
    is_evicted: bool = False


class Ring:
    """Chunks of positions in the order of their insertion; the stalest targets are found by a heap.

    A taken part keeps its old version until it is given back, as in the replay.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._chunks: deque[_Chunk] = deque()
        self._heap: list[tuple[int, int, _Part]] = []
        self._number = itertools.count()
        self._targets: Counter[int] = Counter()
        self._behaviour_sum = 0
        self.size = 0

    def insert(self, count: int, version: int) -> None:
        """Insert positions that `version` has played; the oldest chunks leave."""
        chunk = _Chunk(version, count)
        self._chunks.append(chunk)
        self._add_part(chunk, version, count)
        self.size += count
        self._behaviour_sum += count * version
        while self.size > self._capacity and len(self._chunks) > 1:
            old = self._chunks.popleft()
            old.is_evicted = True
            self.size -= old.count
            self._behaviour_sum -= old.count * old.version
            for part in old.parts:
                self._forget(part.version, part.count)

    def take(self, count: int, version: int) -> list[_Part]:
        """Up to `count` of the stalest positions, all of them older than `version`."""
        taken: list[_Part] = []
        while count > 0 and self._heap and self._heap[0][0] < version:
            part = heapq.heappop(self._heap)[2]
            if part.chunk.is_evicted:
                continue
            if part.count > count:
                rest = _Part(part.version, part.count - count, part.chunk)
                part.count = count
                part.chunk.parts.append(rest)
                self._push(rest)
            part.is_taken = True
            count -= part.count
            taken.append(part)
        return taken

    def give_back(self, taken: list[_Part], version: int) -> int:
        """The parts have been searched with `version`; returns the positions that were still there."""
        written = 0
        for part in taken:
            part.is_taken = False
            if part.chunk.is_evicted:
                continue
            self._forget(part.version, part.count)
            part.version = version
            self._targets[version] += part.count
            self._push(part)
            written += part.count
        return written

    @property
    def stalest(self) -> int | None:
        """Lowest target version that nobody has taken; None if there is none."""
        while self._heap and self._heap[0][2].chunk.is_evicted:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def fresh_fraction(self, step: int, max_age: int) -> float:
        """Share of the targets that are at most `max_age` learner steps old; 1 if the ring is empty."""
        if self.size == 0:
            return 1.0
        fresh = sum(n for version, n in self._targets.items() if step - version <= max_age)
        return fresh / self.size

    def median_target_age(self, step: int) -> float:
        """Learner steps; 0 if the ring is empty."""
        below = 0
        for version in sorted(self._targets):
            below += self._targets[version]
            if 2 * below >= self.size:
                return float(step - version)
        return 0.0

    def mean_behaviour_age(self, step: int) -> float:
        """Learner steps; 0 if the ring is empty."""
        return step - self._behaviour_sum / self.size if self.size else 0.0

    def _add_part(self, chunk: _Chunk, version: int, count: int) -> None:
        part = _Part(version, count, chunk)
        chunk.parts.append(part)
        self._targets[version] += count
        self._push(part)

    def _push(self, part: _Part) -> None:
        heapq.heappush(self._heap, (part.version, next(self._number), part))

    def _forget(self, version: int, count: int) -> None:
        self._targets[version] -= count
        if self._targets[version] == 0:
            del self._targets[version]
