"""Unknown settings get the right suggestion."""

import pytest

from muzero.config.store import config_groups
from muzero.config.suggest import explain_unknown, free_form_parent


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("learner.learning_rat=1", "learner.learning_rate"),
        ("learner.lerning_rate=1", "learner.learning_rate"),
        ("learning_rate=1", "learner.learning_rate"),
        ("batch_size=64", "learner.batch_size or reanalyze.batch_size"),
        ("search.simulations=8", "search.num_simulations"),
        ("num_simulation=8", "search.num_simulations"),
        ("serch.num_simulations=8", "search.num_simulations"),
        ("learner.td_steps=5", "targets.td_steps"),
        ("replay.learning_rate=1", "learner.learning_rate"),
        ("serch=puct", "search"),
        ("experimnt=tictactoe", "experiment"),
        ("env.gme=hex", "env.game"),
        ("network.hidden_size=3", "network.hidden_sizes"),
        ("network.num_chanels=3", "network.num_channels"),
        ("learner=default learner.bach_size=1", "learner.batch_size"),
    ],
)
def test_suggestion(argument: str, expected: str) -> None:
    message = explain_unknown(argument.split(), groups=config_groups())
    assert message is not None
    assert "did you mean " in message
    first = message.partition("did you mean ")[2].removesuffix("?")
    assert first == expected or expected in first.split(" or ")


@pytest.mark.parametrize(
    "argument",
    [
        "learner.learning_rate=1",
        "env=tictactoe",
        "experiment=tictactoe",
        "env.parameters.anything=1",
        "env.kwargs.a.b=1",
        "network.num_blocks=3",
        "network.hidden_sizes=[3,4]",
        "hydra.run.dir=x",
        "hydra/sweeper=optuna",
        "seed=1,2,3",
        "resume=runs/x",
        "+anything=1",
        "~anything",
        "--cfg",
        "job",
        "search@search=puct",
    ],
)
def test_known_arguments_pass(argument: str) -> None:
    assert explain_unknown([argument], groups=config_groups()) is None


def test_hopeless_names_list_what_there_is() -> None:
    message = explain_unknown(["targets.zzz=1"])
    assert message == (
        "no setting named 'targets.zzz'; the section targets has bootstrap, discount, td_lambda, td_steps"
    )
    message = explain_unknown(["zzz.qqq=1"])
    assert message is not None
    assert message.startswith(
        "no setting named 'zzz.qqq'; the sections are env, evaluation, gatekeeping"
    )


def test_free_form_parent() -> None:
    assert free_form_parent("env.parameters.board_size=5") == "env.parameters"
    assert free_form_parent("env.parameters={board_size: 5}") is None
    assert free_form_parent("learner.batch_size=5") is None
    assert free_form_parent("--help") is None
