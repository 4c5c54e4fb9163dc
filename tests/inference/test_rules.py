"""The rules as the search's model, node by node against OpenSpiel's own states."""

import numpy as np
import pyspiel
import pytest

from mcts import RootOutput, Search, SearchSettings, Selection, run
from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielFrames, load_game
from muzero.envs.registry import make_rules
from muzero.evaluation.players import recent_positions
from muzero.inference import RulesModel
from muzero.inference.rules import plant_roots

GAMMA = 0.75


class Opinion:
    """Logits and values that are functions of the moves that led to the position; keeps what it was asked."""

    def __init__(self, num_actions, needs_observations=False):
        self.num_actions, self.needs_observations = num_actions, needs_observations
        self.asked = []

    def of(self, state):
        rng = np.random.default_rng([len(state.history()), *state.history()])
        return rng.normal(size=self.num_actions).astype(np.float32), np.float32(rng.uniform(-1, 1))

    def evaluate(self, states, observation):
        kept = None if observation is None else observation.copy()
        self.asked.append(([s and s.clone() for s in states], kept))
        logits = np.full((len(states), self.num_actions), 7.0, np.float32)
        value = np.full(len(states), 7.0, np.float32)  # where the game is over nobody may read it
        for place, state in enumerate(states):
            if state is not None:
                logits[place], value[place] = self.of(state)
        return RootOutput(logits, value)


def config(game, **settings):
    return OpenSpielConfig(game=game, name=game, **settings)


def openings(settings, num_states, num_moves, seed=0):
    """States behind random moves, none of them final."""
    game, rng = load_game(settings), np.random.default_rng(seed)
    states = []
    while len(states) < num_states:
        state = game.new_initial_state()
        for _ in range(num_moves):
            if not state.is_terminal():
                state.apply_action(int(rng.choice(state.legal_actions())))
        if not state.is_terminal():
            states.append(state)
    return states


def model_of(settings, *, batch_size=6, num_nodes=40, valuation=None):
    rules = make_rules(settings)
    return RulesModel(
        rules,
        valuation or Opinion(rules.spec.num_actions),
        batch_size=batch_size,
        num_nodes=num_nodes,
        discount=GAMMA,
    )


def select(row, parent, action, node):
    return Selection(*(np.array(part, np.int32) for part in (row, parent, action, node)))


def grow(model, states, num_nodes, rng):
    """Trees of random moves of all rows or some, each answer with the state that it has to be about (None: over)."""
    trees = [[state] for state in states]
    for _ in range(num_nodes):
        rows = np.flatnonzero(rng.random(len(states)) < 0.7)
        if len(rows) == 0:
            continue
        parents = [int(rng.integers(len(trees[row]))) for row in rows]
        actions, nodes = [], []
        for row, parent in zip(rows, parents, strict=True):
            state = trees[row][parent]
            legal = range(model.rules.spec.num_actions) if state is None else state.legal_actions()
            actions.append(int(rng.choice(legal)))
            nodes.append(len(trees[row]))
            child = None if state is None else state.child(actions[-1])
            trees[row].append(None if child is None or child.is_terminal() else child)
        output = model.recurrent(select(rows, parents, actions, nodes))
        for place, row in enumerate(rows):
            yield output, place, trees[row][parents[place]], actions[place], trees[row][-1]


@pytest.mark.parametrize(
    "game", ["tic_tac_toe", "connect_four", "dots_and_boxes", "mancala", "cliff_walking"]
)
def test_every_node_is_what_the_game_says(game):
    settings = config(game, parameters={"horizon": 9} if game == "cliff_walking" else {})
    states = openings(settings, 6, 9 if game == "dots_and_boxes" else 3)
    model = model_of(settings)
    root = model.roots(states)
    for row, state in enumerate(states):
        logits, value = model.valuation.of(state)
        legal = np.array(state.legal_actions_mask(), bool)
        np.testing.assert_array_equal(root.prior_logits[row], np.where(legal, logits, -np.inf))
        assert root.value[row] == value
    kinds = set()
    for output, place, before, action, after in grow(model, states, 39, np.random.default_rng(1)):
        reward, discount = output.reward[place], output.discount[place]
        value, logits = output.value[place], output.prior_logits[place]
        if before is None:
            kinds.add("behind the end")
            assert reward == discount == value == 0
            assert (logits == 0).all()
            continue
        mover = before.current_player()
        child = before.child(action)
        assert reward == np.float32(child.returns()[mover] - before.returns()[mover])
        if after is None:
            kinds.add("end")
            assert discount == value == 0
            assert np.isfinite(logits).all()  # a node must have an action
            continue
        again = after.current_player() == mover
        kinds.add("again" if again else "other")
        assert discount == (GAMMA if again else -GAMMA)
        expected, expected_value = model.valuation.of(after)
        legal = np.array(after.legal_actions_mask(), bool)
        np.testing.assert_array_equal(logits, np.where(legal, expected, -np.inf))
        assert value == expected_value
    wanted = {
        "tic_tac_toe": {"other", "end", "behind the end"},
        "connect_four": {"other"},
        "dots_and_boxes": {"other", "again", "end", "behind the end"},
        "mancala": {"other", "again"},
        "cliff_walking": {"again", "end", "behind the end"},
    }[game]
    assert kinds >= wanted
    assert ("again" in kinds) == ("again" in wanted)


def test_the_trees_keep_copies_of_the_states_that_they_were_given():
    states = openings(config("tic_tac_toe"), 2, 2)
    model = model_of(config("tic_tac_toe"), batch_size=2)
    model.roots(states)
    expected = [state.child(state.legal_actions()[0]) for state in states]
    actions = [state.legal_actions()[0] for state in states]
    for state in states:
        state.apply_action(state.legal_actions()[-1])  # the game goes on
    model.recurrent(select([0, 1], [0, 0], actions, [1, 1]))
    asked, _ = model.valuation.asked[-1]
    assert list(map(str, asked)) == list(map(str, expected))


def test_a_leaf_that_is_asked_again_answers_the_same():
    states = openings(config("tic_tac_toe"), 3, 6)
    model = model_of(config("tic_tac_toe"))
    model.roots(states)
    actions = [state.legal_actions()[0] for state in states]
    selection = select([0, 1, 2], [0, 0, 0], actions, [1, 1, 1])
    first = [array.copy() for array in vars_of(model.recurrent(selection))]
    again = vars_of(model.recurrent(selection))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)


def vars_of(output):
    return output.reward, output.discount, output.prior_logits, output.value


@pytest.mark.parametrize("num_stacked_frames", [1, 3])
@pytest.mark.parametrize("game", ["connect_four", "mancala"])
def test_leaves_are_seen_as_the_game_would_show_them(game, num_stacked_frames):
    settings = config(game, num_stacked_frames=num_stacked_frames)
    rules = make_rules(settings)
    frames = OpenSpielFrames(load_game(settings), settings)
    valuation = Opinion(rules.spec.num_actions, needs_observations=True)
    model = model_of(settings, valuation=valuation)

    def shown(states):
        past = [recent_positions(state, num_stacked_frames) for state in states]
        return np.stack([np.concatenate(frames.frames(each), axis=0) for each in past])

    states = openings(settings, 6, 1)
    model.roots(states, shown(states))
    for _ in grow(model, states, 39, np.random.default_rng(2)):
        pass
    assert len(valuation.asked) > 30
    for asked, observation in valuation.asked:
        assert observation.dtype == rules.spec.frame_dtype
        for state, seen in zip(asked, observation, strict=True):
            expected = np.zeros_like(seen) if state is None else shown([state])[0]
            np.testing.assert_array_equal(seen, expected)


def test_nodes_can_be_moved_to_a_new_root():
    settings = config("connect_four", num_stacked_frames=2)
    rules = make_rules(settings)
    frames = OpenSpielFrames(load_game(settings), settings)
    valuation = Opinion(7, needs_observations=True)
    model = model_of(settings, batch_size=2, num_nodes=8, valuation=valuation)
    states = openings(settings, 2, 2)
    past = [np.concatenate(frames.frames(recent_positions(state, 2)), axis=0) for state in states]
    model.roots(states, np.stack(past))
    # Row 0: 0 -3-> 1 -0-> 2, 0 -4-> 3, 1 -5-> 4. Row 1: 0 -2-> 1.
    model.recurrent(select([0, 1], [0, 0], [3, 2], [1, 1]))
    model.recurrent(select([0], [1], [0], [2]))
    model.recurrent(select([0], [0], [4], [3]))
    model.recurrent(select([0], [1], [5], [4]))
    # Row 0 keeps what lies behind action 3, row 1 starts afresh.
    source = np.full((2, 8), -1, np.int32)
    source[0, :3] = [1, 2, 4]
    model.move_nodes(source, np.array([3, 0], np.int32))
    model.recurrent(select([0], [2], [6], [3]))
    (asked,), observation = valuation.asked[-1]
    expected = states[0].child(3).child(5).child(6)
    assert str(asked) == str(expected)
    shown = np.concatenate(frames.frames(recent_positions(expected, 2)), axis=0)
    np.testing.assert_array_equal(observation[0], shown)
    assert rules.history(asked)[-3:] == [3, 5, 6]


@pytest.mark.parametrize("num_stacked_frames", [1, 3])
def test_trees_that_are_built_again_from_their_moves_go_on_alike(num_stacked_frames):
    settings = config("dots_and_boxes", num_stacked_frames=num_stacked_frames)
    states = openings(settings, 6, 8)
    frames = OpenSpielFrames(load_game(settings), settings)
    shown = [np.concatenate(frames.frames(recent_positions(s, num_stacked_frames))) for s in states]
    models = [model_of(settings, valuation=Opinion(12, needs_observations=True)) for _ in range(2)]
    search = Search(SearchSettings(num_simulations=30), batch_size=6, num_actions=12)
    root = models[0].roots(states, np.stack(shown))
    run(search, models[0], root, models[0].rules.legal(states))
    num_nodes = np.array([31, 20, 1, 31, 7, 31], np.int32)
    is_node = np.arange(31) < num_nodes[:, None]
    parents, actions = search.tree.parents[is_node], search.tree.actions[is_node]
    models[1].replay_nodes(states, np.stack(shown), num_nodes, parents, actions)
    num_over = 0
    for node in range(31):
        rows = np.flatnonzero(num_nodes > node)
        at = [models[0]._states[row][node] for row in rows]
        num_over += at.count(None)
        actions = [0 if state is None else state.legal_actions()[-1] for state in at]
        selection = select(rows, [node] * len(rows), actions, [39] * len(rows))
        for a, b in zip(*(vars_of(model.recurrent(selection)) for model in models), strict=True):
            np.testing.assert_array_equal(a, b)
        (asked, seen), (asked_again, seen_again) = (m.valuation.asked[-1] for m in models)
        assert list(map(str, asked)) == list(map(str, asked_again))
        np.testing.assert_array_equal(seen, seen_again)
    assert num_over > 0


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_a_search_plays_legal_moves_only_down_to_its_last_node(kind):
    settings = config("dots_and_boxes")
    states = openings(settings, 6, 6)
    model = model_of(settings, num_nodes=121)
    search = Search(SearchSettings(kind=kind, num_simulations=120), batch_size=6, num_actions=12)
    everything = np.ones((6, 12), bool)  # the model's own logits tell what there is
    run(search, model, model.roots(states), everything)
    tree, deepest = search.tree, 0
    for row in range(6):
        at = {0: states[row]}
        for node in range(1, 121):
            parent, action = int(tree.parents[row, node]), int(tree.actions[row, node])
            before = at[parent]
            if before is None:
                at[node] = None
                continue
            assert action in before.legal_actions()
            child = before.child(action)
            at[node] = None if child.is_terminal() else child
            deepest = max(deepest, len(child.history()))
    assert deepest == 12  # some lines went to the end of the game


def test_what_cannot_be_searched_is_named():
    settings = config("tic_tac_toe")
    model = model_of(settings, batch_size=2)
    won = pyspiel.load_game("tic_tac_toe").new_initial_state()
    for action in (0, 3, 1, 4, 2):
        won.apply_action(action)
    fresh = openings(settings, 3, 0)
    with pytest.raises(ValueError, match="row 1: the game is over"):
        model.roots([fresh[0], won])
    with pytest.raises(ValueError, match="3 states; this model has room for batch_size 2"):
        model.roots(fresh)
    with pytest.raises(ValueError, match=r"dynamics=rules.*pass `states`.*dynamics=learned"):
        plant_roots(model, np.zeros((1, 4, 3, 3)), None)
    seeing = model_of(settings, valuation=Opinion(9, needs_observations=True))
    with pytest.raises(ValueError, match=r"observations are missing; \[3, 4, 3, 3\] is expected"):
        seeing.roots(fresh)
    with pytest.raises(ValueError, match=r"are of shape \[3, 4\]; \[3, 4, 3, 3\] is expected"):
        seeing.roots(fresh, np.zeros((3, 4)))
    for wrong, message in (
        ({"discount": 0.0}, "targets.discount is 0"),
        ({"num_nodes": 0}, "num_nodes is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
    ):
        sizes = {"batch_size": 1, "num_nodes": 2, "discount": 1.0} | wrong
        with pytest.raises(ValueError, match=message):
            RulesModel(model.rules, model.valuation, **sizes)
