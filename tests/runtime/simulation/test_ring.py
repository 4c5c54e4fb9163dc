"""The simulation's ring against a naive list of positions."""

from hypothesis import given, settings
from hypothesis import strategies as st

from muzero.runtime.simulation.ring import Ring


class NaiveRing:
    """Every position on its own: [number, played, target version]."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.chunks: list[list[list[int]]] = []
        self.taken: set[int] = set()

    @property
    def positions(self) -> list[list[int]]:
        return [position for chunk in self.chunks for position in chunk]

    def insert(self, count: int, version: int) -> None:
        self.chunks.append([[version, version] for _ in range(count)])
        while len(self.positions) > self.capacity and len(self.chunks) > 1:
            self.chunks.pop(0)


def test_the_stalest_are_taken_first_and_evicted_ones_are_not_written() -> None:
    ring = Ring(capacity=100)
    ring.insert(40, version=1)
    ring.insert(40, version=2)
    assert ring.stalest == 1
    taken = ring.take(60, version=5)
    assert [(part.version, part.count) for part in taken] == [(1, 40), (2, 20)]
    assert ring.stalest == 2
    assert ring.median_target_age(5) == 4.0  # targets on their way count as they were
    assert ring.take(60, version=2) == []  # what is left is not older than version 2
    ring.insert(50, version=6)  # the first chunk leaves
    assert ring.size == 90
    assert ring.give_back(taken, version=5) == 20
    assert ring.stalest == 2
    assert ring.fresh_fraction(6, max_age=1) == 70 / 90
    assert ring.mean_behaviour_age(6) == 6 - (40 * 2 + 50 * 6) / 90


@settings(max_examples=80, deadline=None)
@given(
    st.integers(5, 60),
    st.lists(st.tuples(st.sampled_from("itg"), st.integers(1, 20)), max_size=40),
)
def test_ages_are_those_of_single_positions(capacity: int, steps: list[tuple[str, int]]) -> None:
    ring, naive = Ring(capacity), NaiveRing(capacity)
    out: list[tuple[list, list, int]] = []
    for version, (what, count) in enumerate(steps, start=1):
        if what == "i":
            ring.insert(count, version)
            naive.insert(count, version)
        elif what == "t":
            free = [p for p in naive.positions if id(p) not in naive.taken and p[1] < version]
            expected = sorted(p[1] for p in free)[:count]
            parts = ring.take(count, version)
            found = [part.version for part in parts for _ in range(part.count)]
            assert sorted(found) == expected
            # of equally stale positions either may be taken: let the naive ring take from the same chunks
            chosen = []
            for part in parts:
                chunk = next(
                    c
                    for c in naive.chunks
                    if c[0][0] == part.chunk.version and len(c) == part.chunk.count
                )
                same = [p for p in chunk if id(p) not in naive.taken and p[1] == part.version]
                for position in same[: part.count]:
                    naive.taken.add(id(position))
                    chosen.append(position)
            assert len(chosen) == len(found)
            out.append((parts, chosen, version))
        elif out:
            parts, chosen, searched = out.pop(0)
            alive = {id(p) for p in naive.positions}
            assert ring.give_back(parts, searched) == sum(id(p) in alive for p in chosen)
            for position in chosen:
                position[1] = searched
                naive.taken.discard(id(position))
        positions = naive.positions
        assert ring.size == len(positions)
        if positions:
            ages = sorted(version - p[1] for p in positions)
            assert round(ring.fresh_fraction(version, 3) * len(ages)) == sum(
                age <= 3 for age in ages
            )
            assert (
                abs(
                    ring.mean_behaviour_age(version)
                    - sum(version - p[0] for p in positions) / len(ages)
                )
                < 1e-9
            )
            oldest_first = ages[::-1]
            assert ring.median_target_age(version) == oldest_first[(len(ages) - 1) // 2]
