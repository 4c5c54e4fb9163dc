"""Our own observations of 2048 and backgammon, against what OpenSpiel's states print of themselves."""

import re

import numpy as np
import pyspiel
import pytest

from muzero.config.environments import OpenSpielConfig
from muzero.envs.open_spiel import OpenSpielEnv, OpenSpielFrames, load_game
from muzero.envs.symmetry import slides


def frames_of(game: str, **changes) -> OpenSpielFrames:
    config = OpenSpielConfig(game=game, name=game, encoding="features", **changes)
    return OpenSpielFrames(load_game(config), config)


def positions(game: pyspiel.Game, seed: int, games: int = 1):
    """Every position of random games at which somebody is to move, and the state before the newest chance event."""
    rng = np.random.default_rng(seed)
    for _ in range(games):
        state = game.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node():
                outcomes, chances = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(int(rng.choice(outcomes, p=np.array(chances) / sum(chances))))
                continue
            yield state
            state.apply_action(int(rng.choice(state.legal_actions())))


def board_of(state: pyspiel.State) -> np.ndarray:
    return np.array([[int(cell) for cell in line.split()] for line in str(state).splitlines()])


def test_tiles_have_one_plane_per_power_of_two() -> None:
    frames = frames_of("2048")
    assert frames.spec.frame_shape == (14, 4, 4) and frames.spec.frame_dtype == np.bool_
    largest = 0
    for state in positions(load_game(OpenSpielConfig(game="2048", name="x")), 0, games=3):
        frame, board = frames.frame(state)[:12], board_of(state)
        largest = max(largest, int(board.max()))
        assert (frame.sum(0) == 1).all()
        values = np.array([0, *(2**e for e in range(1, 12))])
        np.testing.assert_array_equal(values[frame.argmax(0)], board)
    assert largest >= 64


def test_the_newest_tile_is_shown_apart_and_alone_is_chances() -> None:
    frames = frames_of("2048")
    assert frames.spec.chance_channels == (12, 13)
    seen = set()
    for state in positions(load_game(OpenSpielConfig(game="2048", name="x")), 3, games=3):
        last = state.full_history()[-1]
        assert last.player == pyspiel.PlayerId.CHANCE
        before = load_game(OpenSpielConfig(game="2048", name="x")).new_initial_state()
        for action in state.history()[:-1]:
            before.apply_action(action)
        text = before.action_to_string(before.current_player(), last.action)
        value, row, column = map(int, re.findall(r"\d+", text))
        expected = np.zeros((2, 4, 4))
        expected[value // 2 - 1, row - 1, column - 1] = 1
        np.testing.assert_array_equal(frames.frame(state)[[12, 13]], expected)
        seen.add((value, row, column))
    assert len(seen) > 20


@pytest.mark.parametrize(("max_tile", "planes"), [(2, 5), (4, 5), (64, 9), (8192, 16)])
def test_planes_reach_the_largest_tile(max_tile: int, planes: int) -> None:
    frames = frames_of("2048", parameters={"max_tile": max_tile})
    assert frames.spec.frame_shape == (planes, 4, 4)


def slide(board: np.ndarray, action: int) -> np.ndarray:
    """2048 written naively: up, right, down, left; each tile merges once."""
    turned = np.rot90(board, (1, 2, 3, 0)[action])  # so that tiles slide to the left
    rows = []
    for row in turned.tolist():
        tiles, merged = [tile for tile in row if tile], []
        while tiles:
            tile = tiles.pop(0)
            if tiles and tiles[0] == tile:
                tile += tiles.pop(0)
            merged.append(tile)
        rows.append(merged + [0] * (len(row) - len(merged)))
    return np.rot90(np.array(rows), -(1, 2, 3, 0)[action])


def test_turned_boards_of_tiles_play_alike() -> None:
    """Against the rules written down, which are OpenSpiel's: at turned boards turned moves do the turned thing."""
    symmetries = frames_of("2048").spec.symmetries
    assert symmetries is not None and len(symmetries) == 8
    assert len({tuple(actions) for actions in symmetries.actions.tolist()}) == 8
    legal = 0
    for state in positions(load_game(OpenSpielConfig(game="2048", name="x")), 1):
        board = board_of(state)
        for action in range(4):
            after = slide(board, action)
            # OpenSpiel withholds a move that would only merge into a tile merged by the move before.
            if action in state.legal_actions():
                assert not np.array_equal(after, board)
                np.testing.assert_array_equal(board_of(state.child(action)), after)
                legal += 1
            for number, cells in enumerate(symmetries.cells):
                turned = slide(
                    board.reshape(-1)[cells].reshape(4, 4), int(symmetries.actions[number, action])
                )
                np.testing.assert_array_equal(turned, after.reshape(-1)[cells].reshape(4, 4))
    assert legal > 100


def test_directions_must_be_closed_under_the_turns() -> None:
    assert len(slides(2, 3, ((1, 0), (-1, 0)))) == 4
    with pytest.raises(ValueError, match=r"\(0, .*\) is not among"):
        slides(3, 3, ((1, 0), (-1, 0)))


def test_checkers_say_what_the_state_prints() -> None:
    frames = frames_of("backgammon")
    assert frames.spec.frame_shape == (210,) and frames.spec.turn_order == "repeated"
    assert frames.spec.chance_channels == tuple(range(196, 208))  # the dice
    seen_extra = seen_bar = seen_off = 0
    for state in positions(load_game(OpenSpielConfig(game="backgammon", name="x")), 2, games=2):
        text, mover = str(state), state.current_player()
        frame = frames.frame(state)
        points = frame[:192].reshape(2, 24, 4)
        counts = points[..., :3] @ [1, 2, 3] + 2 * points[..., 3] + 3 * (points[..., 3] > 0)
        for place, player in enumerate((mover, 1 - mover)):
            expected = [state.board(player, point) for point in range(24)]
            np.testing.assert_array_equal(counts[place], expected)
        marks = "xo"
        bar = re.search(r"Bar:(.*)", text)[1]
        off = [int(number) for number in re.search(r"X: (\d+), O: (\d+)", text).groups()]
        for place, player in enumerate((mover, 1 - mover)):
            assert frame[192 + place] * 2 == bar.count(marks[player])
            assert frame[194 + place] * 15 == pytest.approx(off[player])
        dice = re.search(r"Dice: (\d)(\d)", text).groups()
        for place, number in enumerate(dice):
            one_hot = frame[196 + 6 * place : 202 + 6 * place]
            assert one_hot.sum() == 1 and one_hot[int(number) - 1] == 1
        extra = int(re.search(r"Extra turn: (\d)", text)[1])
        assert frame[208] == extra and frame[209] == mover
        seen_extra, seen_bar = seen_extra + extra, seen_bar + ("x" in bar or "o" in bar)
        seen_off += sum(off) > 0
    assert min(seen_extra, seen_bar, seen_off) > 3


def test_backgammons_action_factors_are_the_points_of_its_checkers() -> None:
    """A digit is the same point in every action of a player."""
    game = load_game(OpenSpielConfig(game="backgammon", name="x"))
    factors = frames_of("backgammon").spec.action_factors
    assert (
        factors
        == OpenSpielFrames(game, OpenSpielConfig(game="backgammon", name="x")).spec.action_factors
    )
    met: dict[tuple[int, int], set[int]] = {}
    for state in positions(game, 2, games=3):
        player = state.current_player()
        for action in state.legal_actions():
            low_first, second, first = np.unravel_index(action, factors)
            checkers = state.spiel_move_to_checker_moves(player, action)
            for digit, checker in zip((first, second), checkers, strict=True):
                met.setdefault((player, int(digit)), set()).add(checker.pos)
            # Both dice are told; which of them moves which checker is the flag.
            numbers = [checker.num for checker in checkers if checker.pos >= 0]
            if len(numbers) == 2:
                assert low_first == (numbers[0] < numbers[1])
    assert len(met) > 45 and all(len(points) == 1 for points in met.values())
    for player in (0, 1):
        points = [next(iter(p)) for (who, _), p in met.items() if who == player]
        assert len(points) == len(set(points))


@pytest.mark.parametrize("game", ["2048", "backgammon"])
def test_games_of_chance_are_restored_and_seeded(game: str) -> None:
    config = OpenSpielConfig(game=game, name=game, encoding="features")
    env, twin = OpenSpielEnv(config, 3), OpenSpielEnv(config, 3)
    step, other = env.reset(5), twin.reset(6)
    assert not np.array_equal(step.frame, other.frame)
    rng = np.random.default_rng(0)

    def act(now):
        return np.array([rng.choice(np.flatnonzero(row)) for row in now.legal])

    for _ in range(40):
        step = env.step(act(step))
    other = twin.restore(env.state())
    for _ in range(40):
        np.testing.assert_array_equal(step.frame, other.frame)
        action = act(step)
        step, other = env.step(action), twin.step(action)
        np.testing.assert_array_equal(step.reward, other.reward)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"game": "tic_tac_toe"}, "there for 2048 and backgammon only, not for tic_tac_toe"),
        (
            {"game": "2048", "frame_shape": [1, 4, 4]},
            r"env\.frame_shape=\[1, 4, 4\] is of OpenSpiel",
        ),
        (
            {"game": "2048", "encoding": "pixels"},
            "env.encoding='pixels' must be tensor or features",
        ),
    ],
)
def test_features_that_cannot_be_are_refused(changes: dict, words: str) -> None:
    config = OpenSpielConfig(**{"name": "x", "encoding": "features", **changes})
    with pytest.raises(ValueError, match=words):
        OpenSpielFrames(load_game(config), config)


def test_the_tensor_of_openspiel_stays_the_default() -> None:
    config = OpenSpielConfig(game="2048", name="x")
    frames = OpenSpielFrames(load_game(config), config)
    assert frames.spec.frame_shape == (16,) and frames.spec.symmetries is None
