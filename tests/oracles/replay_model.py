"""A replay buffer as plain Python objects: a deque of games, one dictionary per held position."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from tests.oracles.games import Game


@dataclass
class StoredPosition:
    game: Game
    t: int
    generation: int
    priority: float
    behaviour_version: int
    target_version: int
    policy: list[float]
    root_value: float
    has_policy: bool = True
    in_flight: bool = False
    times_sampled: int = 0


@dataclass
class ReplayModel:
    capacity: int
    games: deque[tuple[Game, list[int]]] = field(default_factory=deque)
    at: dict[int, StoredPosition] = field(default_factory=dict)
    next_slot: int = 0
    num_added: int = 0
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            (
                "inserted",
                "evicted",
                "sampled",
                "dropped_priorities",
                "written_back",
                "dropped_write_backs",
            ),
            0,
        )
    )
    evicted_times: list[int] = field(default_factory=list)

    def add(self, game: Game, version: int, priorities: list[float], values: list[float]) -> None:
        """Positions that are sampled are the game's moves; a cut game takes one more slot."""
        rows = game.length + game.truncated
        while sum(len(slots) for _, slots in self.games) + rows > self.capacity:
            _, slots = self.games.popleft()
            for slot in slots:
                if slot in self.at:
                    self.counts["evicted"] += 1
                    self.evicted_times.append(self.at.pop(slot).times_sampled)
        slots = [(self.next_slot + t) % self.capacity for t in range(rows)]
        for t in range(game.length):
            self.at[slots[t]] = StoredPosition(
                game,
                t,
                self.num_added,
                priorities[t],
                version,
                version,
                game.policy(t).tolist(),
                values[t],
                t not in game.fast,
            )
        self.games.append((game, slots))
        self.next_slot = (self.next_slot + rows) % self.capacity
        self.num_added += 1
        self.counts["inserted"] += game.length

    def alive(self, slot: int, generation: int) -> bool:
        return slot in self.at and self.at[slot].generation == generation

    def stalest(self, count: int, newest_version: int) -> list[int]:
        waiting = [
            (position.target_version, slot)
            for slot, position in self.at.items()
            if position.target_version < newest_version and not position.in_flight
        ]
        given = [slot for _, slot in sorted(waiting)[:count]]
        for slot in given:
            self.at[slot].in_flight = True
        return given

    def probabilities(self) -> np.ndarray:
        weights = np.zeros(self.capacity)
        for slot, position in self.at.items():
            weights[slot] = position.priority
        return weights / weights.sum()
