"""Positions with exact scores: files, labels, and what counts as a mistake."""

import numpy as np
import pytest

from muzero.evaluation.connect_four import ConnectFourSolver
from muzero.evaluation.positions import (
    BUILTIN,
    FULL,
    STAGES,
    Answers,
    describe,
    grade,
    label,
    read_positions,
)


@pytest.fixture(scope="module")
def solver():
    pytest.importorskip("bitbully", reason="needs the extra `solver`")
    return ConnectFourSolver()


def write(folder, text):
    path = folder / "some.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_become_positions(tmp_path):
    positions = read_positions(write(tmp_path, "44444 -1\n\n1  5\n"))
    assert [p.columns for p in positions] == [(3, 3, 3, 3, 3), (0,)]
    assert [p.score for p in positions] == [-1, 5]
    assert positions[1].place == f"{tmp_path}/some.txt, line 3"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("4448 1", "'4448' must be columns from 1 to 7"),
        ("44a 1", "'44a' must be columns"),
        ("444", "'' must be the score"),
        ("444 1 2", "'1 2' must be the score"),
        ("444 1.5", "'1.5' must be the score"),
        ("444 22", "score 22 must lie between -21 and 21"),
    ],
)
def test_bad_lines_are_named(tmp_path, line, words):
    path = write(tmp_path, f"1 5\n{line}\n")
    with pytest.raises(ValueError, match=rf"some\.txt, line 2: {words}"):
        read_positions(path)


def test_files_without_positions_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"some\.txt holds no positions"):
        read_positions(write(tmp_path, "\n"))
    with pytest.raises(ValueError, match=r"none\.txt cannot be read"):
        read_positions(tmp_path / "none.txt")
    (tmp_path / "some.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"some\.txt cannot be read"):
        read_positions(tmp_path / "some.txt")


def test_labels_score_every_open_column(tmp_path, solver):
    scores = label(read_positions(write(tmp_path, "444444 1\n434343 18\n")), solver)
    assert scores.tolist() == [[-1, 0, 1, FULL, 1, 0, -1], [*scores[1, :3], 18, *scores[1, 4:]]]
    assert scores[1, :3].max() < 18


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("444444 2", "the score is 2, but the solver says 1"),
        ("4444444 1", "stone 7 cannot be put into column 3"),
        ("1212121 1", "the game is over after 7 stones"),
        ("12121213 1", "the game is over after 7 stones of 8"),
    ],
)
def test_labels_hold_lines_against_the_solver(tmp_path, solver, line, words):
    positions = read_positions(write(tmp_path, f"1 -1\n{line}\n"))
    with pytest.raises(ValueError, match=rf"some\.txt, line 2: {words}"):
        label(positions[1:], solver)


def test_grades_by_hand():
    scores = np.array(
        [
            [5, 3, 0, -2, FULL, FULL, FULL],
            [5, 3, 0, -2, FULL, FULL, FULL],
            [0, -1, FULL, FULL, FULL, FULL, FULL],
            [-2, -9, FULL, FULL, FULL, FULL, FULL],
        ],
        np.int8,
    )
    # The best; a slower win; a draw thrown away; a sooner loss, which loses anyhow.
    answers = Answers(
        np.array([0, 1, 1, 1], np.int32), np.array([1.0, 0.5, -0.5, -1.0], np.float32)
    )
    assert grade(scores, answers) == {
        "mistake_rate": 0.25,
        "perfect_move_rate": 0.25,
        "value_error": 0.25,
    }
    line = describe("search", grade(scores, answers), 4)
    assert "mistakes 0.250 [0.046, 0.699]" in line  # Wilson's interval of 1 in 4


@pytest.mark.parametrize("stage", STAGES)
def test_the_packages_positions_are_sound(stage, solver):
    positions = read_positions(BUILTIN / f"{stage}.txt")
    fewest, most = STAGES[stage]
    assert len(positions) == 100
    assert all(fewest <= len(position.columns) <= most for position in positions)
    some = positions[::25] if stage == "begin" else positions[::10]  # early ones take longer
    scores = label(some, solver)  # raises where a line's score is wrong
    best, worst = scores.max(axis=1), np.where(scores == FULL, 99, scores).min(axis=1)
    assert (best > worst).all()
    assert (np.sign(best) > np.sign(worst))[best >= 0].all()


def test_the_packages_positions_differ():
    columns = [p.columns for stage in STAGES for p in read_positions(BUILTIN / f"{stage}.txt")]
    assert len(set(columns)) == 300
    scores = [p.score for stage in STAGES for p in read_positions(BUILTIN / f"{stage}.txt")]
    lost, drawn, won = np.bincount(np.sign(scores) + 1)
    assert lost == 90
    assert min(drawn, won) >= 15
