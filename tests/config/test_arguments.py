"""The command line of the smaller commands."""

from dataclasses import dataclass, field

import pytest
from omegaconf import MISSING

from muzero.config.arguments import help_text, parse_arguments, run_command


@dataclass(kw_only=True, slots=True)
class Arguments:
    """Do something with a run.

    More words.
    """

    run: str = MISSING
    """Run folder."""
    games: int | None = None
    """Games to play."""
    quiet: bool = False
    """Say nothing."""
    moves: list[int] = field(default_factory=list)
    """Moves made already."""


def parse(*arguments: str) -> tuple[Arguments, list[str]]:
    return parse_arguments(arguments, Arguments, program="muzero-try")


def test_values_are_typed() -> None:
    settings, overrides = parse("run=runs/a", "games=0", "quiet=true", "moves=[3,4]")
    assert settings == Arguments(run="runs/a", games=0, quiet=True, moves=[3, 4])
    assert overrides == []


def test_dotted_keys_are_overrides_of_the_run() -> None:
    settings, overrides = parse("run=a", "search.num_simulations=4", "seed=3", "games=null")
    assert settings.games is None
    assert overrides == ["search.num_simulations=4", "seed=3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run=a", "game=3"], "no setting named 'game'; did you mean games?"),
        (["run=a", "search.num_simulation=3"], "did you mean search.num_simulations?"),
        (["run=a", "games=many"], "games=many: Value 'many'.*could not be converted to Integer"),
        (["run=a", "--quiet"], "'--quiet' is not understood; write key=value"),
        (["runs/a"], "'runs/a' is not understood"),
        (["run=a(b"], "cannot be read.*quote a value"),
        (["games=3"], r"run has no value; give one with run=\.\.\. \(Run folder\)"),
    ],
)
def test_mistakes(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(*arguments)


def test_overrides_can_be_refused() -> None:
    with pytest.raises(ValueError, match="no setting named"):
        parse_arguments(
            ["run=a", "search.num_simulations=3"], Arguments, program="x", overrides=False
        )


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse("--help")
    assert caught.value.code == 0
    assert capsys.readouterr().out.splitlines() == [
        "muzero-try run=... [setting=value ...]",
        "",
        "Do something with a run.",
        "",
        "  run    Run folder. [str, required]",
        "  games  Games to play. [int or null, default null]",
        "  quiet  Say nothing. [bool, default false]",
        "  moves  Moves made already. [list[int], default []]",
        "",
        "Settings of the run's config can be changed too: search.num_simulations=64",
    ]
    assert "config" not in help_text(Arguments, "x", overrides=False)


def test_mistakes_are_told_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def task(settings: Arguments, overrides: list[str]) -> None:
        raise ValueError(f"{settings.run} is empty")

    for arguments, message in (
        (["run=a"], "a is empty"),
        (["rn=a"], "no setting named 'rn'; did you mean run?"),
    ):
        with pytest.raises(SystemExit) as caught:
            run_command(task, Arguments, program="x", arguments=arguments)
        assert caught.value.code == 2
        assert capsys.readouterr().err == message + "\n"


def test_our_own_mistakes_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def task(settings: Arguments, overrides: list[str]) -> None:
        raise UnicodeError("not a user's")

    with pytest.raises(UnicodeError):
        run_command(task, Arguments, program="x", arguments=["run=a"])

    def other(settings: Arguments, overrides: list[str]) -> None:
        raise ValueError("wanted in full")

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError, match="wanted in full"):
        run_command(other, Arguments, program="x", arguments=["run=a"])
