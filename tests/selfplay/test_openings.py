"""How games begin: forks repeat a game of before up to one move and leave it there."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest

from muzero.config.compose import compose
from muzero.config.schema import SelfPlayConfig
from muzero.runtime.build import Builder
from muzero.selfplay import SelfPlay
from muzero.selfplay.openings import NUM_SOURCES, Openings

NUM_GAMES, NUM_ACTIONS, LENGTH = 5, 4, 9
Game = tuple[int, ...]


class Played:
    """Games without rules, all of `LENGTH` moves, whose moves outside openings come from `choose`."""

    def __init__(self, config: SelfPlayConfig, *, legal: npt.NDArray[np.bool_], choose) -> None:
        self.openings, self.rng = Openings(NUM_GAMES, config), np.random.default_rng(3)
        self.legal, self.choose = legal, choose
        self.moves = np.zeros(NUM_GAMES, np.int64)
        self.rows: list[list[int]] = [[] for _ in range(NUM_GAMES)]
        self.opened = np.zeros(NUM_GAMES, np.int64)
        self.openings.draw(np.ones(NUM_GAMES, np.bool_), self.rng)

    def games(self, number: int) -> Iterator[tuple[Game, int]]:
        """Finished games in order, each with the number of its opening moves."""
        while number > 0:
            running = self.openings.running
            action = np.array([self.choose(len(row)) for row in self.rows])
            legal = np.tile(self.legal, (int(running.sum()), 1))
            action[running] = self.openings.actions(legal, self.moves, self.rng)
            assert self.legal[action[running]].all()
            self.opened += running
            for row, move in zip(self.rows, action, strict=True):
                row.append(int(move))
            ended = np.array([len(row) == LENGTH for row in self.rows])
            self.openings.advance(action, self.moves, ended)
            self.moves += 1
            for row in np.flatnonzero(ended):
                yield tuple(self.rows[row]), int(self.opened[row])
                number -= 1
                self.rows[row], self.moves[row], self.opened[row] = [], 0, 0
            self.openings.draw(ended, self.rng)


EVERY = np.ones(NUM_ACTIONS, np.bool_)


def test_a_fork_repeats_an_earlier_game_up_to_one_move_and_leaves_it_there() -> None:
    played = Played(
        SelfPlayConfig(fork_fraction=0.6, max_fork_moves=6), legal=EVERY, choose=lambda _: 0
    )
    finished, lengths = list(played.games(400)), set()
    assert {opened for game, opened in finished[:NUM_GAMES]} == {0}  # nothing to fork from yet
    # Whoever began later is not in `before`: games are as long as each other, so they end as they began.
    for number, (game, opened) in enumerate(finished):
        before = {source for source, _ in finished[:number]}
        lengths.add(opened)
        if opened == 0:
            assert game == (0,) * LENGTH
            continue
        assert any(game[: opened - 1] == source[: opened - 1] for source in before)
        assert any(
            game[: opened - 1] == source[: opened - 1] and game[opened - 1] != source[opened - 1]
            for source in before
        )
        assert game[opened:] == (0,) * (LENGTH - opened)
    assert lengths == set(range(7))
    share = np.mean([opened > 0 for _, opened in finished[NUM_GAMES:]])
    assert share == pytest.approx(0.6, abs=0.08)


def test_forks_of_forks_leave_play_at_several_moves() -> None:
    played = Played(
        SelfPlayConfig(fork_fraction=0.6, max_fork_moves=6), legal=EVERY, choose=lambda _: 0
    )
    assert max(np.count_nonzero(game) for game, _ in played.games(400)) > 2


def test_games_that_began_with_random_moves_are_not_forked() -> None:
    config = SelfPlayConfig(
        opening_fraction=0.5, max_opening_moves=3, fork_fraction=0.3, max_fork_moves=6
    )
    played = Played(config, legal=EVERY, choose=lambda _: 0)
    # The first games are forks of nothing or plain ones, or began randomly: those differ from 0 at their first moves.
    finished = list(played.games(200))
    arrays = played.openings.state()
    number = int(arrays["fork_count"][0])
    assert 0.3 * len(finished) < number < 0.7 * len(finished)
    sources = {tuple(game) for game in arrays["fork_sources"][:number].tolist()}
    assert sources <= {game[:6] for game, _ in finished}
    # A source differs from the games that it goes back to, all zeros at first, by one move for each fork: in every chain
    # one of one move less is there. Games that began with several random moves have no such chain.
    for source in sources - {(0,) * 6}:
        last = max(at for at in range(6) if source[at] != 0)
        assert any(
            other[:last] == source[:last] and other[last] != source[last] for other in sources
        )


def test_a_forced_move_is_repeated() -> None:
    forced = np.array([False, True, False, False])
    played = Played(
        SelfPlayConfig(fork_fraction=1.0, max_fork_moves=4), legal=forced, choose=lambda _: 1
    )
    games = list(played.games(40))
    assert {game for game, _ in games} == {(1,) * LENGTH}
    assert max(opened for _, opened in games) == 4


def test_an_opening_ends_where_the_repeated_move_is_illegal() -> None:
    played = Played(
        SelfPlayConfig(fork_fraction=1.0, max_fork_moves=5), legal=EVERY, choose=lambda _: 0
    )
    list(played.games(NUM_GAMES))
    played.legal = np.array([False, True, True, True])  # as after another chance event
    games = list(played.games(NUM_GAMES))
    assert [opened for _, opened in games] == [1] * NUM_GAMES


def test_only_the_newest_games_are_forked() -> None:
    openings = Openings(1, SelfPlayConfig(fork_fraction=1.0, max_fork_moves=1))
    rng, always = np.random.default_rng(0), np.ones(1, np.bool_)
    for game in range(NUM_SOURCES + 10):
        openings.advance(np.array([game]), np.zeros(1, np.int64), always)
    sources = openings.state()["fork_sources"][:, 0]
    assert sorted(sources) == list(range(10, NUM_SOURCES + 10))
    openings.draw(always, rng)
    assert openings.running[0]


FORKED = (
    "experiment=tictactoe",
    "debug=smoke",
    "selfplay.num_games=12",
    "selfplay.opening_fraction=0.2",
    "selfplay.max_opening_moves=3",
    "selfplay.fork_fraction=0.6",
    "selfplay.max_fork_moves=6",
)


def make(*overrides: str) -> SelfPlay:
    return Builder.of(compose([*FORKED, *overrides])).selfplay()


def segments_of(selfplay: SelfPlay, moves: int) -> list[list[int]]:
    return [
        [*segment.action.tolist(), *segment.frame.sum(axis=(1, 2, 3)).tolist()]
        for _ in range(moves)
        for segment in selfplay.play(0)
    ]


def test_forks_are_continued_where_they_were_saved() -> None:
    ours, theirs = make(), make("seed=7")
    segments_of(ours, 23)
    arrays, meta = ours.state()
    theirs.restore(arrays, meta)
    assert segments_of(theirs, 40) == segments_of(ours, 40)
    assert ours.totals == theirs.totals


def test_what_a_run_without_forks_saved_goes_on_with_them() -> None:
    plain, forked = make("selfplay.fork_fraction=0"), make()
    segments_of(plain, 23)
    forked.restore(*plain.state())
    assert len(segments_of(forked, 60)) > 20
    assert forked.totals.opening_steps > plain.totals.opening_steps
    shorter = make("selfplay.max_fork_moves=4")
    shorter.restore(*forked.state())
    assert len(segments_of(shorter, 40)) > 10
