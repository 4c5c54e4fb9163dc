"""The ladder's schedule, its count of games, its table and files."""

import csv
from collections import Counter

import numpy as np
import pytest

from muzero.evaluation.arena import GameRecord, Setup
from muzero.evaluation.elo import fit
from muzero.evaluation.ladder import Entrant, Ladder, as_table, make_schedule, write_csv, write_png


def entrants(num_checkpoints, *fixed):
    return [
        *(Entrant(f"step {n}", n) for n in range(num_checkpoints)),
        *(Entrant(name) for name in fixed),
    ]


def records(scores):
    setup = Setup(opening=(), first_seat=0, seed=0)
    return [GameRecord(setup=setup, actions=(n,), score=s) for n, s in enumerate(scores)]


@pytest.mark.parametrize("num_checkpoints", [0, 1, 2, 3, 8, 30])
@pytest.mark.parametrize("fixed", [(), ("random",), ("random", "perfect", "rollout:10")])
def test_a_schedule_is_sparse_and_links_all(num_checkpoints, fixed):
    players = entrants(num_checkpoints, *fixed)
    pairs = make_schedule(players)
    assert all(first != second for first, second in pairs)
    assert len({frozenset(pair) for pair in pairs}) == len(pairs)
    assert len(pairs) <= 2 * num_checkpoints + 3 * len(fixed) + len(fixed) ** 2
    if len(players) > 1:
        points = np.zeros((len(players), len(players)))
        for first, second in pairs:
            points[first, second] = points[second, first] = 1.0
        fit([p.name for p in players], points, anchor=players[0].name)  # raises if it is not linked


def test_whom_they_meet():
    met = Counter(frozenset(pair) for pair in make_schedule(entrants(5, "random", "perfect")))
    expected = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 2), (1, 3), (2, 4)]
    expected += [(0, 5), (2, 5), (4, 5), (0, 6), (2, 6), (4, 6), (5, 6)]
    assert met == Counter(map(frozenset, expected))


@pytest.fixture
def ladder():
    made = Ladder(entrants(2, "random"), "random")
    made.add(1, 0, records([1.0] * 6 + [0.0] * 2 + [-1.0] * 2))
    made.add(0, 2, records([1.0] * 3 + [-1.0] * 1))
    made.add(1, 2, records([2.0] * 5))
    return made


def test_games_become_points(ladder):
    expected = fit(
        ["step 0", "step 1", "random"], [[0, 3, 3], [7, 0, 5], [1, 0, 0]], anchor="random"
    )
    assert ladder.ratings().elo.tolist() == expected.elo.tolist()
    first, second, anchor = ladder.standings()
    assert (anchor.elo, anchor.interval) == (0.0, (0.0, 0.0))
    assert second.elo > first.elo > 0.0
    assert first.interval[0] < first.elo < first.interval[1]
    report = first.to_json()
    assert (report["games"], report["wins"], report["draws"], report["losses"]) == (14, 5, 2, 7)
    assert report["win_rate_interval"][0] < 5 / 14 < report["win_rate_interval"][1]
    assert (report["player"], report["learner_step"]) == ("step 0", 0)
    assert anchor.to_json()["losses"] == 8


def test_the_table_begins_with_the_strongest(ladder):
    header, *lines = as_table(ladder.standings()).splitlines()
    assert "95 % interval" in header
    assert [line[:6] for line in lines] == ["step 1", "step 0", "random"]
    assert lines[-1].split()[-4:] == ["9", "1", "0", "8"]


def test_the_csv_has_a_row_for_everyone(ladder, tmp_path):
    write_csv(tmp_path / "elo.csv", ladder.standings())
    rows = list(csv.DictReader((tmp_path / "elo.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["player"] for row in rows] == ["step 0", "step 1", "random"]
    assert [row["learner_step"] for row in rows] == ["0", "1", ""]
    assert rows[1]["wins"] == "11"
    assert float(rows[0]["elo_low"]) < float(rows[0]["elo"]) < float(rows[0]["elo_high"])
    assert rows[2]["elo"] == "0.0"


def test_the_picture_is_one(ladder, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    write_png(tmp_path / "elo.png", ladder.standings(), "a title")
    content = (tmp_path / "elo.png").read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) > 5_000


def test_slips_are_told():
    with pytest.raises(ValueError, match="one comes twice"):
        Ladder(entrants(1, "random", "random"), "random")
    with pytest.raises(ValueError, match="anchor='rndom' is none of the players step 0, random"):
        Ladder(entrants(1, "random"), "rndom")
    with pytest.raises(ValueError, match="no games link step 0 to the anchor random"):
        Ladder(entrants(1, "random"), "random").ratings()
