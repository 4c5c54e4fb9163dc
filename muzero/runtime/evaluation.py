"""Evaluation of a run's weights: the agent against its opponents, or its episodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from muzero.config.environments import AtariConfig, OpenSpielConfig
from muzero.config.schema import EvaluationConfig
from muzero.envs.registry import make_env
from muzero.evaluation.agent import Agent
from muzero.evaluation.episodes import evaluate_episodes, evaluate_versus_random
from muzero.evaluation.evaluator import evaluate_opponents, make_opponent
from muzero.evaluation.pictures import NUM_POSITIONS, PolicyPictures, can_draw
from muzero.runtime.build import Builder, Role, role_seed
from muzero.runtime.players import agent_player, load_player

PICTURE = "policies/network_and_search"
"""Name of the pictures in TensorBoard."""
_MAX_ROWS = 256
_PICTURE_BRANCH = 2**31 + 1  # of the evaluation's seed; the ladder has 2**31
_RATES = {"wins": "win_rate", "draws": "draw_rate", "losses": "loss_rate"}
_SCORES = {"mean": "score_mean", "std": "score_std", "min": "score_min", "iqm": "score_iqm"}


class RunEvaluator:
    """Evaluates weights as `EvaluationConfig` says; the same weights and seed give the same report.

    Example:
        >>> reports = RunEvaluator(builder).evaluate(weights, version=100)
        >>> reports[0]["opponent"], reports[0]["losses"]

    Raises:
        ValueError: If an opponent cannot be had for this game.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder, self._config = builder, builder.config.evaluation
        env = builder.config.env
        self._board = isinstance(env, OpenSpielConfig) and builder.spec.num_players == 2
        rows = _MAX_ROWS if self._board else min(max(self._config.games, 1), _MAX_ROWS)
        self._agent: Agent = builder.agent(rows)
        if isinstance(env, OpenSpielConfig) and self._board:
            from muzero.envs.open_spiel import load_game  # other games need no OpenSpiel

            self._game = load_game(env)
            self._player = agent_player(builder, self._agent)
            self._rivals = {
                name: make_opponent(name, self._game, load_player)
                for name in self._config.opponents
            }

    def evaluate(
        self,
        weights: dict[str, Tensor],
        version: int,
        folder: Path | None = None,
        *,
        fresh_seed: int | None = None,
    ) -> list[dict[str, Any]]:
        """One report per opponent, or one of the episodes of a single-agent environment, as JSON types.

        `simulations_per_move` is the mean over all positions that this evaluation searched, those of forced moves left
        out.

        Args:
            folder: Where the games are written, one JSON object a line.
            fresh_seed: None plays with the seed that all evaluations of a training run share; a number of at least 0 takes a
                branch of the run's seed that none of them uses.
        """
        self._agent.model.load(weights, version)
        before = replace(self._agent.effort)
        reports = self._reports(folder, self._seed(fresh_seed))
        effort = self._agent.effort
        searches = effort.searches - before.searches
        simulations = effort.simulations - before.simulations
        mean = simulations / searches if searches > 0 else 0.0
        return [report | {"simulations_per_move": mean} for report in reports]

    def _seed(self, fresh_seed: int | None) -> int:
        sequence = role_seed(self._builder.config, Role.EVALUATION)
        if fresh_seed is not None:
            branch = (*sequence.spawn_key, fresh_seed)
            sequence = np.random.SeedSequence(sequence.entropy, spawn_key=branch)
        return int(sequence.generate_state(1)[0])

    def _reports(self, folder: Path | None, seed: int) -> list[dict[str, Any]]:
        builder, config = self._builder, self._config
        if self._board:
            if folder is not None:
                folder.mkdir(parents=True, exist_ok=True)
            return evaluate_opponents(
                self._player,
                self._rivals,
                self._game,
                games=config.games,
                max_opening_moves=config.max_opening_moves,
                seed=seed,
                exhaustive=config.exhaustive,
                max_moves=config.max_episode_steps,
                folder=folder,
            )
        env_config = builder.config.env
        if isinstance(env_config, AtariConfig):
            # A score is that of a whole game, whatever ends an episode for the learner.
            env_config = replace(env_config, episodic_life=False)
        if config.max_episode_steps is not None:
            env_config = replace(env_config, max_episode_steps=config.max_episode_steps)
        env = make_env(env_config, self._agent.batch_size)
        try:
            if builder.spec.num_players == 2:
                games = config.games
                return [evaluate_versus_random(env, self._agent, games=games, seed=seed)]
            return [evaluate_episodes(env, self._agent, episodes=config.games, seed=seed)]
        finally:
            env.close()


def make_pictures(builder: Builder) -> PolicyPictures | None:
    """What draws a run's policies, searched as in self-play; None if the game is not drawn as cells."""
    config = builder.config
    if not isinstance(config.env, OpenSpielConfig):
        return None
    from muzero.envs.open_spiel import OpenSpielFrames, load_game  # other games need no OpenSpiel

    game = load_game(config.env)
    if not can_draw(game):
        return None
    # A search that ends early leaves its policy unfinished.
    whole = replace(config, evaluation=replace(config.evaluation, stop_early=False))
    simulations = config.selfplay.num_simulations or config.search.num_simulations
    agent = replace(builder, config=whole).agent(NUM_POSITIONS, simulations)
    rng = np.random.default_rng(role_seed(config, Role.EVALUATION, _PICTURE_BRANCH))
    return PolicyPictures(agent, game, OpenSpielFrames(game, config.env), rng)


def as_metrics(reports: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The scalars of evaluation reports, under the names of the metrics reference."""
    metrics: dict[str, float] = {}
    for report in reports:
        if "simulations_per_move" in report:
            metrics["evaluation/simulations_per_move"] = report["simulations_per_move"]
        if "episodes" in report:
            metrics |= {f"evaluation/{name}": report[key] for key, name in _SCORES.items()}
            continue
        opponent = Path(str(report["opponent"])).name.replace(":", "_")
        for result, name in _RATES.items():
            metrics[f"evaluation/{opponent}/{name}"] = report[result] / report["games"]
        metrics[f"evaluation/{opponent}/distinct_games"] = report["games"]
        for name in ("optimal_move_rate", "losing_lines"):
            if name in report:
                metrics[f"evaluation/{name}"] = report[name]
    return metrics


def objective(metrics: Mapping[str, float]) -> float | None:
    """How good an evaluation is, higher is better: mean score, or mean win rate with draws as halves; None without one."""
    if "evaluation/score_mean" in metrics:
        return metrics["evaluation/score_mean"]
    results = {
        name: value * (1.0 if name.endswith("/win_rate") else 0.5)
        for name, value in metrics.items()
        if name.startswith("evaluation/") and name.endswith(("/win_rate", "/draw_rate"))
    }
    opponents = sum(name.endswith("/win_rate") for name in results)
    return sum(results.values()) / opponents if opponents else None


def too_few_distinct(reports: Sequence[dict[str, Any]], config: EvaluationConfig) -> str | None:
    """What is wrong if fewer games differ than `evaluation.min_distinct_games` asks for, and the way out; None if nothing is."""
    wished = config.min_distinct_games
    found = [
        f"only {report['games']} of {report['games_played']} games against {report['opponent']} differ"
        for report in reports
        if wished is not None and "games_played" in report and report["games"] < wished
    ]
    if not found:
        return None
    return (
        f"evaluation.min_distinct_games={wished}, but {', '.join(found)}; raise evaluation.max_opening_moves (now "
        f"{config.max_opening_moves}) or evaluation.games (now {config.games}), or ask for fewer"
    )
