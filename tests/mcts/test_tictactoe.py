"""With the exact rules as its model the search sees wins and threats."""

import numpy as np
import pytest

from mcts import ModelOutput, RootOutput, Search, SearchSettings, run

pyspiel = pytest.importorskip("pyspiel")

DISCOUNT = 0.99


class Rules:
    """Tic-tac-toe as a model: uniform over the legal moves, no opinion on values."""

    def __init__(self, states, num_simulations):
        self.states = [[state] + [None] * num_simulations for state in states]

    def root(self):
        legal = np.array([row[0].legal_actions_mask() for row in self.states], bool)
        return RootOutput(np.zeros(legal.shape), np.zeros(len(legal))), legal

    def recurrent(self, selection):
        num_rows = len(selection.row)
        reward, discount = np.zeros(num_rows), np.zeros(num_rows)
        logits = np.zeros((num_rows, 9))
        for place, (row, parent, action, node) in enumerate(zip(*selection, strict=True)):
            state = self.states[row][parent]
            if state.is_terminal():  # below the end nothing happens any more
                self.states[row][node] = state
                continue
            mover = state.current_player()
            state = state.clone()
            state.apply_action(int(action))
            self.states[row][node] = state
            reward[place] = state.rewards()[mover]
            if not state.is_terminal():
                discount[place] = -DISCOUNT
                logits[place, np.array(state.legal_actions_mask()) == 0] = -np.inf
        return ModelOutput(reward, discount, logits, np.zeros(num_rows))


def outcome_after(state, action):
    mover = state.current_player()
    state = state.clone()
    state.apply_action(action)
    return state.rewards()[mover] if state.is_terminal() else 0.0


def winning_moves(state):
    return {action for action in state.legal_actions() if outcome_after(state, action) == 1}


def sample_positions(num_games):
    """Positions with a win in one; positions without one where exactly one move stops the opponent's."""
    game = pyspiel.load_game("tic_tac_toe")
    rng = np.random.default_rng(0)
    wins, blocks = {}, {}
    for _ in range(num_games):
        state = game.new_initial_state()
        while not state.is_terminal():
            now = winning_moves(state)
            if now:
                wins[str(state)] = (state.clone(), now)
            else:
                stopping = set()
                for action in state.legal_actions():
                    following = state.clone()
                    following.apply_action(action)
                    if following.is_terminal() or not winning_moves(following):
                        stopping.add(action)
                if len(stopping) == 1 and len(state.legal_actions()) > 1:
                    blocks[str(state)] = (state.clone(), stopping)
            state.apply_action(int(rng.choice(state.legal_actions())))
    return list(wins.values()), list(blocks.values())


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
@pytest.mark.parametrize("normalization", ["tree", "siblings", "bounds"])
def test_wins_are_taken_and_threats_are_stopped(kind, normalization):
    wins, blocks = sample_positions(60)
    assert len(wins) > 50
    assert len(blocks) > 20
    positions = (wins + blocks)[:: 1 if normalization == "tree" else 4]
    settings = SearchSettings(kind=kind, num_simulations=150, normalization=normalization)
    model = Rules([state for state, _ in positions], settings.num_simulations)
    search = Search(settings, batch_size=len(positions), num_actions=9)
    root, legal = model.root()
    output = run(search, model, root, legal)
    for row, (state, good) in enumerate(positions):
        assert output.best_action[row] in good, f"{state}\n{good}\n{output.visits[row]}"
    is_win = np.array([bool(winning_moves(state)) for state, _ in positions])
    np.testing.assert_allclose(output.best_value[is_win], 1.0)
