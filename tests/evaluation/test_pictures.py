"""Pictures of boards and policies: pixel by pixel, and read back from TensorBoard's file."""

import io
import struct
import zlib

import numpy as np
import pyspiel
import pytest
import torch

from muzero.config.compose import compose
from muzero.envs.board import BoardReader
from muzero.evaluation.drawing import (
    CELL,
    MARGIN,
    STRIP,
    arrange,
    draw_board,
    draw_policy,
    shares,
)
from muzero.evaluation.pictures import NUM_POSITIONS, can_draw, draw_positions, move_targets
from muzero.runtime.build import Builder
from muzero.runtime.evaluation import PICTURE, make_pictures
from muzero.runtime.local import LocalRuntime
from muzero.runtime.players import open_checkpoint
from muzero.writers import encode_png

SMALL = (
    "experiment=tictactoe",
    "debug=smoke",
    "runtime.overlap=false",
    "logger.progress=none",
    "evaluation.exhaustive=false",
)


def decode(png: bytes) -> np.ndarray:
    """What our own encoder wrote, chunk by chunk."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    place, chunks = 8, []
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, content = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        (check,) = struct.unpack(">I", png[place + 8 + length : place + 12 + length])
        assert check == zlib.crc32(kind + content)
        chunks.append((kind, content))
        place += 12 + length
    assert [kind for kind, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [8, 2, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(chunks[1][1]), np.uint8).reshape(height, 1 + 3 * width)
    assert not lines[:, 0].any()
    return lines[:, 1:].reshape(height, width, 3)


def state_of(name: str, *actions: int) -> pyspiel.State:
    state = pyspiel.load_game(name).new_initial_state()
    for action in actions:
        state.apply_action(action)
    return state


def centre(image: np.ndarray, row: int, column: int, offset: int = 0) -> tuple[int, ...]:
    """Colour at the middle of a cell of a panel, or `offset` pixels beside it."""
    y, x = row * CELL + CELL // 2, column * CELL + CELL // 2 + offset
    return tuple(image[y, x].tolist())


def test_a_png_holds_the_pixels():
    image = np.random.default_rng(0).integers(0, 256, (17, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decode(encode_png(image)), image)
    pil = pytest.importorskip("PIL.Image")
    read = pil.open(io.BytesIO(encode_png(image)))
    assert read.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(read), image)
    for wrong in (image[0], image.astype(np.float32), image[:, :, :2], image[:0]):
        with pytest.raises(ValueError, match="uint8"):
            encode_png(wrong)


def test_pieces_stand_on_their_cells_in_the_colours_of_their_players():
    state = state_of("tic_tac_toe", 4, 2)  # x in the middle, o in the upper right corner
    image = draw_board(BoardReader(state.get_game()).read(state))
    assert image.shape == (3 * CELL + STRIP, 3 * CELL, 3) and image.dtype == np.uint8
    first, second, empty = centre(image, 1, 1), centre(image, 0, 2), centre(image, 2, 0)
    assert len({first, second, empty}) == 3 and empty == (255, 255, 255)
    others = [centre(image, row, column) for row in range(3) for column in range(3)]
    assert others.count(empty) == 7


def test_a_policys_shades_are_its_probabilities():
    state = state_of("tic_tac_toe", 4)
    board = BoardReader(state.get_game()).read(state)
    cells = np.array([0.64, 0.16, 0.0, 0.04, 0.0, 0.0, 0.0, 0.0, 0.16])
    image = draw_policy(board, cells, 0.0)
    # Blue takes the place of the paper by the square root: 0.8, 0.4, 0, 0.2 of the way from 255 to 20.
    red = [centre(image, *divmod(cell, 3))[0] for cell in (0, 1, 2, 3, 8)]
    assert red == [round(255 - way * 235) for way in (0.8, 0.4, 0.0, 0.2, 0.4)]
    assert centre(image, 1, 1) == centre(draw_board(board), 1, 1)  # the piece, small
    assert centre(image, 1, 1, offset=CELL // 3) == (255, 255, 255)
    frame = tuple(image[0, CELL // 2].tolist())
    assert frame == tuple(image[2, CELL // 2].tolist()) != tuple(image[3, CELL // 2].tolist())
    assert frame != tuple(image[0, CELL + CELL // 2].tolist())  # the likeliest cell alone has it
    assert (image[-STRIP:] == 255).all()


def test_moves_without_a_cell_fill_the_strip():
    state = state_of("go(board_size=5)", 12)
    reader = BoardReader(state.get_game())
    board, cells = reader.read(state), np.zeros(25)
    cells[0] = 0.25
    image = draw_policy(board, cells, 0.75)
    filled = (image[-1] != 255).any(axis=1)
    assert filled.sum() == round(0.75 * image.shape[1]) and filled[: filled.sum()].all()
    policy = np.full(26, 1 / 26)
    found, rest = shares(policy, [*range(25), None], 25)
    assert rest == pytest.approx(1 / 26) and found.sum() + rest == pytest.approx(1)
    found, rest = shares(
        np.array([0.5, 0.2, 0.3]), [7, 7, None], 25
    )  # two pieces may go to one cell
    assert (found[7], rest) == (pytest.approx(0.7), pytest.approx(0.3))


def test_rows_of_hexagons_lean_and_text_cannot_be_drawn():
    state = state_of("hex(board_size=4)", 5)
    image = draw_board(BoardReader(state.get_game()).read(state))
    assert image.shape == (4 * CELL + STRIP, 4 * CELL + 3 * CELL // 2, 3)
    assert (image[-STRIP - 1, :CELL] == 255).all()  # to the left of the last row
    with pytest.raises(ValueError, match="only text"):
        draw_board(BoardReader(pyspiel.load_game("nim")).read(state_of("nim")))
    for name in ("nim", "2048"):  # a move of 2048 is a direction
        assert not can_draw(pyspiel.load_game(name))
    for name in ("tic_tac_toe", "connect_four", "go(board_size=5)", "chess", "breakthrough"):
        assert can_draw(pyspiel.load_game(name)), name


def test_panels_make_a_table():
    panels = [[np.full((6, 4, 3), 10 * i + j, np.uint8) for j in range(3)] for i in range(2)]
    table = arrange(panels)
    assert table.shape == (3 * MARGIN + 12, 4 * MARGIN + 12, 3)
    for i in range(2):
        for j in range(3):
            top, left = MARGIN + i * (6 + MARGIN), MARGIN + j * (4 + MARGIN)
            assert (table[top : top + 6, left : left + 4] == 10 * i + j).all()
    assert (table == 255).sum() == 3 * (table.shape[0] * table.shape[1] - 6 * 24)


@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four", "breakthrough", "2048"])
def test_positions_are_of_all_quarters_of_a_game_and_hang_on_the_seed_alone(name):
    game = pyspiel.load_game(name)
    first, again, other = (draw_positions(game, np.random.default_rng(s)) for s in (1, 1, 2))
    assert [s.history() for s in first] == [s.history() for s in again]
    assert [s.history() for s in first] != [s.history() for s in other]
    assert len(first) == NUM_POSITIONS
    assert not any(s.is_terminal() or s.is_chance_node() for s in first)
    numbers = [s.move_number() for s in first]
    assert numbers[0] <= 2 and numbers[0] < numbers[1] < numbers[-1]


def test_a_move_is_shown_where_its_piece_comes_to_stand():
    reader = BoardReader(pyspiel.load_game("connect_four"))
    cells = move_targets(reader, state_of("connect_four", 3, 3, 0))
    assert [divmod(cell, 7) for cell in cells] == [
        (4, 0),
        (5, 1),
        (5, 2),
        (3, 3),
        (5, 4),
        (5, 5),
        (5, 6),
    ]
    full = state_of("connect_four", *[3] * 6)
    assert move_targets(reader, full)[3] is None
    passes = move_targets(
        BoardReader(pyspiel.load_game("go(board_size=5)")), state_of("go(board_size=5)")
    )
    assert len(passes) == 26 and passes[25] is None and None not in passes[:25]
    chess = state_of("chess")
    (king_pawn,) = (a for a in chess.legal_actions() if chess.action_to_string(a) == "e4")
    moves = move_targets(BoardReader(chess.get_game()), chess)
    assert divmod(moves[king_pawn], 8) == (4, 4)  # the fourth rank from below, the e file


def test_the_table_shows_the_networks_policy_beside_the_searchs():
    builder = Builder.of(compose([*SMALL, "search.num_simulations=16"]))
    pictures = make_pictures(builder)
    assert pictures is not None
    plain = builder.network().state_dict()
    sure = {name: value.clone() for name, value in plain.items()}
    sure["prediction_output.bias"][:9] = torch.arange(9.0)  # the last cell is the likeliest
    first, second = pictures.draw(plain, 0), pictures.draw(sure, 1)
    height, width = 3 * CELL + STRIP, 3 * CELL
    assert first.shape == second.shape
    assert first.shape == (
        MARGIN + NUM_POSITIONS * (height + MARGIN),
        MARGIN + 3 * (width + MARGIN),
        3,
    )
    np.testing.assert_array_equal(first, pictures.draw(plain, 0))
    changed = []
    for column in range(3):
        left = MARGIN + column * (width + MARGIN)
        panel = slice(MARGIN, MARGIN + height), slice(left, left + width)
        changed.append(bool((first[panel] != second[panel]).any()))
        if column == 1:
            logits = torch.arange(9.0).double()
            red = [centre(second[panel], *divmod(cell, 3))[0] for cell in range(9)]
            wished = torch.softmax(logits, 0).sqrt()
            assert red == [round(255 - 235 * way) for way in wished.tolist()]
    assert changed == [False, True, True]


def test_training_writes_one_picture_per_evaluation(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    runs = {}
    for name, on in (("on", "true"), ("off", "false")):
        config = compose([*SMALL, f"logger.tensorboard={on}"], run_dir=str(tmp_path / name))
        runs[name] = LocalRuntime(config, tmp_path / name)
        runs[name].train()
    assert not (tmp_path / "off" / "tensorboard").exists()
    reader = accumulator.EventAccumulator(str(tmp_path / "on" / "tensorboard"))
    reader.Reload()
    assert reader.Tags()["images"] == [PICTURE]
    events = reader.Images(PICTURE)
    assert [event.step for event in events] == [10, 20]
    images = [decode(event.encoded_image_string) for event in events]
    for event, image in zip(events, images, strict=True):
        assert (event.height, event.width) == image.shape[:2]
    assert images[0].shape == images[1].shape and (images[0] != images[1]).any()
    pictures = make_pictures(Builder.of(runs["on"].config))
    assert pictures is not None
    last = pictures.draw(runs["on"].learner.acting_weights(), 20)
    np.testing.assert_array_equal(images[1], last)
    # To be looked at changes nothing.
    left, right = (open_checkpoint(tmp_path / name) for name in ("on", "off"))
    for name, value in left.tensors("learner").items():
        assert torch.equal(value, right.tensors("learner")[name]), name


def test_games_without_a_drawn_board_have_no_pictures():
    assert make_pictures(Builder.of(compose(["experiment=cartpole", "debug=smoke"]))) is None
    text = compose(["env=open_spiel", "env.game=nim", "debug=smoke"])
    assert make_pictures(Builder.of(text)) is None


@pytest.mark.parametrize("option", ["search.dynamics=rules", "evaluation.stop_early=true"])
def test_every_kind_of_search_can_be_shown(option):
    builder = Builder.of(compose([*SMALL, option, "evaluation.num_simulations=0"]))
    pictures = make_pictures(builder)
    assert pictures is not None
    network, search = pictures._agent.policies(
        pictures._observation, pictures._legal, pictures.states
    )
    for policy in (network, search):
        np.testing.assert_allclose(policy.sum(axis=1), 1, atol=1e-5)
        assert not policy[~pictures._legal].any()
    assert not pictures._agent.settings.stop_early
