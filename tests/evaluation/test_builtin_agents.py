"""The agents that come with the package: they load, and they play as docs/results.md says they do."""

import pyspiel
import pytest

from muzero.config.runs import builtin_agents, run_folder
from muzero.config.store import load_config
from muzero.evaluation.evaluator import evaluate_board, make_opponent
from muzero.evaluation.players import AgentPlayer
from muzero.runtime.build import Builder
from muzero.runtime.players import agent_player, load_agent, open_checkpoint


@pytest.fixture(scope="module")
def player() -> AgentPlayer:
    agent = load_agent("builtin:connect_four", num_simulations=64)
    return agent_player(Builder.of(load_config(run_folder("builtin:connect_four"))), agent)


def test_they_are_small_and_sound() -> None:
    assert builtin_agents() == ["connect_four"]
    for name in builtin_agents():
        folder = run_folder(f"builtin:{name}")
        assert open_checkpoint(folder).parts == ["acting"]
        assert sum(path.stat().st_size for path in folder.rglob("*")) < 2_000_000


@pytest.mark.parametrize(
    ("moves", "best"),
    [
        ([], {3}),  # the only winning move
        ([3, 0, 3, 1, 3, 1], {3}),  # four in a column
        ([3, 0, 3, 1, 3], {3}),  # the only move that does not lose at once
        ([3, 3, 4, 4], {2, 5}),  # three in a row, open at both ends
    ],
)
def test_it_finds_what_decides(player: AgentPlayer, moves: list[int], best: set[int]) -> None:
    state = pyspiel.load_game("connect_four").new_initial_state()
    for move in moves:
        state.apply_action(move)
    assert player.select([state], [0])[0] in best


def test_it_beats_rollouts(player: AgentPlayer) -> None:
    game = pyspiel.load_game("connect_four")
    report = evaluate_board(
        player,
        "rollout:50",
        make_opponent("rollout:50", game),
        game,
        games=12,
        max_opening_moves=0,
        seed=1,
    )
    assert report["losses"] == 0
    assert report["wins"] >= 11
