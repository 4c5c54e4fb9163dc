"""Evaluation: players, matches, exact play, statistics, reports."""

from muzero.evaluation.agent import Agent
from muzero.evaluation.arena import (
    GameRecord,
    MatchResult,
    Setup,
    draw_setups,
    play_games,
    play_match,
    read_records,
    write_records,
)
from muzero.evaluation.episodes import evaluate_episodes, evaluate_versus_random
from muzero.evaluation.evaluator import (
    evaluate_board,
    evaluate_exhaustively,
    evaluate_opponents,
    make_opponent,
)
from muzero.evaluation.exact import ExhaustiveReport, Solution, exhaustive, solve
from muzero.evaluation.players import (
    AgentPlayer,
    PerfectPlayer,
    Player,
    RandomPlayer,
    RolloutPlayer,
)

__all__ = [
    "Agent",
    "AgentPlayer",
    "ExhaustiveReport",
    "GameRecord",
    "MatchResult",
    "PerfectPlayer",
    "Player",
    "RandomPlayer",
    "RolloutPlayer",
    "Setup",
    "Solution",
    "draw_setups",
    "evaluate_board",
    "evaluate_episodes",
    "evaluate_exhaustively",
    "evaluate_opponents",
    "evaluate_versus_random",
    "exhaustive",
    "make_opponent",
    "play_games",
    "play_match",
    "read_records",
    "solve",
    "write_records",
]
