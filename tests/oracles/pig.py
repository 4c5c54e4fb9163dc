"""The dice game Pig as a model of the search: exact rules, a plain opinion; and the game's exact solution.

In turn, a player rolls a die with the faces 0, 1, 2, ... as often as they like; the faces add up to the turn's total. Who
holds banks the total, and wins with `target` points; a 0 loses the total. Either way the other player moves next. A hold
needs a total to bank.
"""

import numpy as np

from mcts import ModelOutput, RootOutput, Selection
from mcts.chance import AfterstateOutput

ROLL, HOLD = 0, 1
NUM_ACTIONS = 2


class Pig:
    """A position is (points of who moves, points of the other, total of the turn); an outcome is a face.

    Nothing is left to chance after a hold: of its outcomes only the first exists. A position is worth the lead in points,
    those of the turn included, in parts of the target.
    """

    def __init__(self, target, num_faces):
        self.target = target
        self.num_faces = num_faces

    def roots(self, positions, num_nodes):
        """Stand at `positions` `[B, 3]`, with room for `num_nodes` nodes: (root output, legal actions)."""
        positions = np.asarray(positions)
        self.positions = np.zeros((len(positions), num_nodes, 3), int)
        self.actions = np.zeros(
            (len(positions), num_nodes), int
        )  # the action that led to an afterstate
        self.positions[:, 0] = positions
        logits = self._logits(positions)
        return RootOutput(logits, self._values(positions)), np.isfinite(logits)

    def afterstates(self, selection: Selection) -> AfterstateOutput:
        row, parent, action, node = selection
        self.positions[row, node] = self.positions[row, parent]
        self.actions[row, node] = action
        chance_logits = np.zeros((len(row), self.num_faces))
        chance_logits[action == HOLD, 1:] = -np.inf
        return AfterstateOutput(chance_logits, value=self._values(self.positions[row, node]))

    def states(self, selection: Selection) -> ModelOutput:
        row, parent, outcome, node = selection
        mine, theirs, total = self.positions[row, parent].T
        holds = self.actions[row, parent] == HOLD
        wins = holds & (mine + total >= self.target)
        passes = holds | (outcome == 0)
        # Points beyond the target change nothing.
        rolled = np.minimum(total + outcome, self.target - mine)
        stays = np.stack([mine, theirs, rolled], axis=1)
        turned = np.stack([theirs, mine + np.where(holds, total, 0), 0 * mine], axis=1)
        following = np.where(passes[:, None], turned, stays)
        self.positions[row, node] = following
        return ModelOutput(
            reward=wins.astype(float),
            discount=np.where(wins, 0.0, np.where(passes, -1.0, 1.0)),
            prior_logits=self._logits(following),
            value=self._values(following),
        )

    def _values(self, positions):
        return (positions[:, 0] + positions[:, 2] - positions[:, 1]) / self.target

    @staticmethod
    def _logits(positions):
        logits = np.zeros((len(positions), NUM_ACTIONS))
        logits[positions[:, 2] == 0, HOLD] = -np.inf
        return logits

    def all_positions(self):
        """`[B, 3]` every position in which the game is not over."""
        return np.array(
            [
                (mine, theirs, total)
                for mine in range(self.target)
                for theirs in range(self.target)
                for total in range(self.target - mine + 1)
            ]
        )

    def solve(self):
        """`[B, 2]` the exact q of both actions at `all_positions`, by value iteration; minus infinity for no action."""
        positions = [tuple(position) for position in self.all_positions().tolist()]
        values = dict.fromkeys(positions, 0.0)
        while True:
            q = {position: self._q(values, *position) for position in positions}
            change = max(abs(max(q[position]) - values[position]) for position in positions)
            values = {position: max(q[position]) for position in positions}
            if change < 1e-12:
                return np.array([q[position] for position in positions])

    def _q(self, values, mine, theirs, total):
        roll = -values[theirs, mine, 0]
        for face in range(1, self.num_faces):
            roll += values[mine, theirs, min(total + face, self.target - mine)]
        roll /= self.num_faces
        if total == 0:
            return roll, -np.inf
        if mine + total >= self.target:
            return roll, 1.0
        return roll, -values[theirs, mine + total, 0]
