"""Search over the exact rules of dice games against their exact solutions."""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run
from mcts.chance import AfterstateOutput, AlternatingModel
from tests.oracles.pig import HOLD, ROLL, Pig

KINDS = ["puct", "gumbel"]


def search_rules(game, root, legal, num_outcomes, **options):
    settings = SearchSettings(num_chance_outcomes=num_outcomes, **options)
    search = Search(settings, batch_size=len(legal), num_actions=legal.shape[1], dtype=np.float64)
    return search, run(search, AlternatingModel(game, search), root, legal)


def test_the_solution_of_the_smallest_pig_is_the_published_one():
    """Neller and Presser, "Optimal Play of the Dice Game Pig" (2004): with a coin and a target of 2."""
    game = Pig(target=2, num_faces=2)
    q = dict(zip(map(tuple, game.all_positions().tolist()), game.solve(), strict=True))
    chances_to_win = {
        (0, 0, 0): 4 / 7,
        (0, 0, 1): 5 / 7,
        (0, 1, 0): 2 / 5,
        (0, 1, 1): 3 / 5,
        (1, 0, 0): 4 / 5,
        (1, 1, 0): 2 / 3,
    }
    for position, chance in chances_to_win.items():
        assert (q[position].max() + 1) / 2 == pytest.approx(chance)
    assert q[0, 0, 1].argmax() == ROLL
    assert q[0, 0, 2].argmax() == HOLD


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["tree", "bounds"])
def test_pig_is_played_well_in_every_position(kind, normalization):
    game = Pig(target=5, num_faces=2)
    positions, q = game.all_positions(), game.solve()
    root, legal = game.roots(positions, 1001)
    _, output = search_rules(
        game, root, legal, 2, kind=kind, normalization=normalization, num_simulations=1000
    )
    played = np.take_along_axis(q, output.best_action[:, None], axis=1)[:, 0]
    loss = q.max(axis=1) - played
    # What is lost by a wrong choice is little: only close choices are missed.
    assert loss.max() < 0.1
    assert loss.mean() < 0.005
    # Neither action is a good answer everywhere.
    assert [(q.max(axis=1) - q[:, action]).max() > 0.3 for action in (ROLL, HOLD)] == [True, True]


@pytest.mark.parametrize("kind", KINDS)
def test_exact_values_give_the_exact_q_one_step_ahead(kind):
    """Signs and rewards: a turn goes on, passes, or wins, and every q comes out as the solution has it."""
    game = Pig(target=6, num_faces=3)
    positions, q = game.all_positions(), game.solve()
    table = dict(zip(map(tuple, positions.tolist()), q.max(axis=1), strict=True))

    class Solved(Pig):
        def _values(self, positions):
            return np.array([table.get(tuple(position), 0.0) for position in positions.tolist()])

    solved = Solved(target=6, num_faces=3)
    root, legal = solved.roots(positions, 301)
    _, output = search_rules(
        solved, root, legal, 3, kind=kind, num_simulations=300, max_depth=2, gumbel_scale=0.0
    )
    visited = output.visits > 0
    # The afterstate's own value counts once, and the last round of outcomes may be incomplete.
    tolerance = 4 / output.visits[visited]
    assert (np.abs(output.qvalues[visited] - q[visited]) <= tolerance).all()
    assert (output.visits.max(axis=1) >= 150).all()
    gap = np.abs(np.diff(np.maximum(q, -2), axis=1)[:, 0])
    is_clear = gap > 0.05
    np.testing.assert_array_equal(output.best_action[is_clear], q.argmax(axis=1)[is_clear])


class Reroll:
    """Keep the face of a die as the reward, or roll again while rolls are left; a row is (face, rolls left).

    A position is thought to be worth its face, another roll 3.5.
    """

    KEEP, AGAIN = 0, 1

    def roots(self, rows, num_nodes):
        self.rows = np.zeros((len(rows), num_nodes, 2), int)
        self.kept = np.zeros((len(rows), num_nodes), bool)
        self.rows[:, 0] = rows
        logits = self.logits(self.rows[:, 0])
        return RootOutput(logits, self.rows[:, 0, 0].astype(float)), np.isfinite(logits)

    @staticmethod
    def logits(rows):
        logits = np.zeros((len(rows), 2))
        logits[rows[:, 1] == 0, 1] = -np.inf
        return logits

    def afterstates(self, selection):
        row, parent, action, node = selection
        self.rows[row, node] = self.rows[row, parent]
        self.kept[row, node] = action == self.KEEP
        logits = np.zeros((len(row), 6))
        logits[action == self.KEEP, 1:] = -np.inf
        face = self.rows[row, node, 0]
        return AfterstateOutput(logits, np.where(action == self.KEEP, face, 3.5))

    def states(self, selection):
        row, parent, outcome, node = selection
        face, left = self.rows[row, parent].T
        kept = self.kept[row, parent]
        self.rows[row, node] = np.stack([outcome + 1, left - 1], axis=1) * ~kept[:, None]
        return ModelOutput(
            reward=np.where(kept, face, 0.0),
            discount=np.where(kept, 0.0, 1.0),
            prior_logits=self.logits(self.rows[row, node]),
            value=self.rows[row, node, 0].astype(float),
        )


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_stopping_is_found(kind):
    game = Reroll()
    rows = np.array([(face, left) for left in (1, 2, 3) for face in range(1, 7)])
    root, legal = game.roots(rows, 2001)
    _, output = search_rules(
        game, root, legal, 6, kind=kind, num_simulations=2000, pb_c_init=0.5, value_scale=1.0
    )
    # The worth of another roll: 3.5; then 4, 5 and 6 are kept: 4.25; then 5 and 6: 4.667.
    worth = {1: 3.5, 2: 4.25, 3: 14 / 3}
    expected = [Reroll.AGAIN if face < worth[left] else Reroll.KEEP for face, left in rows]
    assert output.best_action.tolist() == expected
    exact = np.array([max(face, worth[left]) for face, left in rows])
    # The mean over visits comes from below, by what exploring costs.
    assert (output.best_value <= exact + 0.01).all()
    assert (output.best_value >= exact - 0.4).all()
    is_last = rows[:, 1] == 1
    np.testing.assert_allclose(output.best_value[is_last], exact[is_last], atol=0.01)
