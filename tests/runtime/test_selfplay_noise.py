"""Noise and scores of self-play (peers, rows 28 and 46), and the quiet of evaluation (row 27)."""

from itertools import pairwise

import numpy as np
import pytest

import muzero.selfplay.searching as searching
from muzero.config.compose import compose
from muzero.metrics import read_rows
from muzero.runtime.build import Builder
from muzero.runtime.local import LocalRuntime

SMALL = ("experiment=tictactoe", "debug=smoke", "selfplay.num_games=5", "search.num_simulations=6")


@pytest.mark.parametrize("kind", ["puct", "gumbel"])
def test_noise_is_drawn_once_per_move_over_legal_actions_and_used(kind, monkeypatch):
    selfplay = Builder.of(compose([*SMALL, f"search={kind}"])).selfplay()
    draw, begin = searching.draw_noise, selfplay.search.begin
    drawn, begun = [], []

    def drawing(settings, legal, rng):
        drawn.append((legal.copy(), draw(settings, legal, rng)))
        return drawn[-1][1]

    def beginning(root, legal, noise=None, **options):
        begun.append(noise)
        return begin(root, legal, noise, **options)

    monkeypatch.setattr(searching, "draw_noise", drawing)
    monkeypatch.setattr(selfplay.search, "begin", beginning)
    for move in range(4):
        searched = ~selfplay._openings.running
        legal = selfplay.legal[searched]
        selfplay.play(0)
        assert len(drawn) == len(begun) == move + 1
        assert np.array_equal(drawn[-1][0], legal)
        assert begun[-1] is drawn[-1][1] and begun[-1].any()
    for before, after in pairwise(begun):
        assert not np.array_equal(before, after)


@pytest.mark.parametrize(
    ("kind", "loudness"), [("puct", "root_exploration_fraction"), ("gumbel", "gumbel_scale")]
)
def test_agents_do_not_depend_on_the_settings_of_noise(kind, loudness):
    """Row 27, with the agent as the builder makes it."""
    builders = [
        Builder.of(compose([*SMALL, f"search={kind}", f"search.{loudness}={value}"]))
        for value in (0, 1)
    ]
    rng = np.random.default_rng(0)
    shape = builders[0].spec.observation_shape
    observation = rng.random((64, *shape)) < 0.5
    legal = rng.random((64, 9)) < 0.6
    legal[:, 4] = True
    quiet, loud = (builder.agent(64) for builder in builders)
    assert np.array_equal(quiet.act(observation, legal), loud.act(observation, legal))
    assert np.array_equal(loud.act(observation, legal), loud.act(observation, legal))


def test_reported_scores_are_those_of_the_environment(tmp_path):
    """Row 46: rewards are scaled for training and nowhere else, in self-play's metric and in the evaluation's."""
    rows = []
    for scale in (1.0, 0.01):
        run_dir = tmp_path / str(scale)
        config = compose(
            [
                "experiment=cartpole",
                "debug=smoke",
                "learner.num_steps=1",
                "replay.min_size=64",
                f"env.reward_scale={scale}",
                "env.return_bounds=null",
                "logger.progress=none",
                "logger.tensorboard=false",
            ],
            run_dir=str(run_dir),
        )
        LocalRuntime(config, run_dir).train()
        rows.append(read_rows(run_dir / "metrics.jsonl")[-1])
    for row in rows:
        assert row["selfplay/score"] == pytest.approx(row["selfplay/game_length"])
        assert row["evaluation/score_mean"] >= 8.0  # CartPole never falls earlier
