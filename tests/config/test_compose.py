"""Every option of every group and every experiment composes, converts and passes the checks."""

import dataclasses
import typing
from pathlib import Path

import pytest

from muzero.config.compose import compose
from muzero.config.effect import warnings
from muzero.config.limits import RANGES
from muzero.config.schema import Config
from muzero.config.store import config_dir, config_groups
from muzero.config.suggest import setting_names
from muzero.config.validate import check, settings
from muzero.envs.registry import make_spec

GROUPS = config_groups()
MANDATORY = {"open_spiel": "env.game=hex", "gym": "env.id=Acrobot-v1", "atari": "env.game=pong"}
FROZEN = Path(__file__).with_name("options.txt")


def choose(group: str, option: str) -> list[str]:
    needed = [MANDATORY[option]] if group == "env" and option in MANDATORY else []
    return [f"{group}={option}", *needed]


PARTS = {
    group: options for group, options in GROUPS.items() if group not in ("experiment", "debug")
}


@pytest.mark.parametrize("number", range(max(map(len, PARTS.values()))))
def test_every_option_composes(number: int) -> None:
    """Each option at least once, those of different groups together: composing one by one takes long."""
    chosen = {group: options[number % len(options)] for group, options in PARTS.items()}
    config = compose([part for group, option in chosen.items() for part in choose(group, option)])
    assert isinstance(config, Config)
    assert config.network.kind == chosen["network"].partition("_")[0]
    assert config.search.kind == chosen["search"]
    assert all(value != "???" for _, value in settings(config))


@pytest.mark.parametrize("experiment", GROUPS["experiment"])
def test_a_recipe_stands_another_network_and_search(experiment: str) -> None:
    own = compose([f"experiment={experiment}"])
    network = "resnet" if own.network.kind == "mlp" else "mlp"
    other = compose([f"experiment={experiment}", f"network={network}", "search=puct"])
    assert (other.network.kind, other.search.kind) == (network, "puct")


@pytest.mark.parametrize("experiment", ["tictactoe", "pong"])
def test_a_recipe_stands_the_smoke_profile(experiment: str) -> None:
    config = compose([f"experiment={experiment}", "debug=smoke"])
    assert (config.learner.num_steps, config.learner.batch_size) == (20, 16)
    assert warnings(config) == []


@pytest.mark.parametrize(
    "experiment",
    [
        pytest.param(name, marks=[pytest.mark.atari] if name == "pong" else [])
        for name in GROUPS["experiment"]
    ],
)
def test_recipes_fit_their_environment_and_set_nothing_in_vain(experiment: str) -> None:
    config = compose([f"experiment={experiment}"])
    spec = make_spec(config.env)
    facts = {
        "num_players": spec.num_players,
        "return_bounds": spec.return_bounds,
        "max_episode_steps": spec.max_episode_steps,
        "turn_order": spec.turn_order,
    }
    check(config, **facts)
    assert warnings(config, **facts) == []


def test_an_environment_brings_what_suits_it() -> None:
    atari = compose(["env=atari", "env.game=pong"])
    assert (atari.network.kind, atari.network.downsample) == ("resnet", 16)
    assert (atari.targets.discount, atari.replay.prioritized) == (0.997, True)
    board = compose(["env=open_spiel", "env.game=connect_four"])
    assert (board.targets.discount, board.network.value_support_max) == (1.0, None)
    assert board.evaluation.opponents == ["random"]
    gym = compose(["env=gym", "env.id=Acrobot-v1"])
    assert (gym.network.kind, gym.network.support_transform) == ("mlp", True)
    assert gym.evaluation.opponents == []


def test_experiment_wins_over_environment_and_command_line_over_both() -> None:
    assert compose(["targets.td_steps=4", "experiment=tictactoe"]).targets.td_steps == 4
    assert compose(["targets=outcome", "env=atari", "env.game=pong"]).targets.discount == 1.0
    config = compose(["experiment=tictactoe", "env=connect_four"])
    assert (config.env.name, config.search.num_simulations) == ("connect_four", 16)


def test_free_form_settings_need_no_plus() -> None:
    config = compose(["env=open_spiel", "env.game=hex", "env.parameters.board_size=5"])
    assert config.env.parameters == {"board_size": 5}
    config = compose(["env=gym", "env.id=CartPole-v1", "env.kwargs.sutton_barto_reward=true"])
    assert config.env.kwargs == {"sutton_barto_reward": True}


def _zeros() -> dict[str, int | float | bool]:
    """0, 0.0 or False for every setting that may have it and can be set under the defaults."""
    zeros: dict[str, int | float | bool] = {}
    hints = {
        f"{section.name}.{name}": hint
        for section in dataclasses.fields(Config)
        if dataclasses.is_dataclass(section.type)
        for name, hint in typing.get_type_hints(section.type).items()
    }
    for name, hint in hints.items():
        kinds = {hint, *typing.get_args(hint)}
        if bool in kinds:
            zeros[name] = False
        elif (
            list not in map(typing.get_origin, kinds)
            and kinds & {int, float}
            and name in RANGES
            and RANGES[name].holds(0)
        ):
            zeros[name] = 0
    # 0 contradicts other settings here: a range of values, the weight's projection
    for name in ("search.value_min", "search.value_max"):
        zeros.pop(name)
    return zeros


def test_zero_and_false_are_honoured_for_every_setting() -> None:
    zeros = _zeros()
    assert len(zeros) > 30
    values = dict(
        settings(compose([f"{name}={str(value).lower()}" for name, value in zeros.items()]))
    )
    assert {name: values[name] for name in zeros} == zeros


def test_null_unsets_an_optional_setting() -> None:
    assert compose(["experiment=cartpole", "env.return_bounds=null"]).env.return_bounds is None


def test_names_of_options_and_settings_are_frozen() -> None:
    """Users' scripts hold these names: a change here belongs into the changelog."""
    options = [f"{group}={option}" for group, names in GROUPS.items() for option in names]
    names = sorted(set(setting_names(Config)) - set(GROUPS))
    assert [*options, *names] == FROZEN.read_text(encoding="utf-8").split()


def test_own_folder_beside_ours(tmp_path: Path) -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir

    experiment = tmp_path / "experiment" / "mine.yaml"
    experiment.parent.mkdir()
    experiment.write_text(
        "# @package _global_\ndefaults:\n  - tictactoe\nlearner:\n  num_steps: 7\n"
    )
    with initialize_config_dir(config_dir(), version_base="1.3"):
        composed = hydra_compose(
            "config", overrides=[f"hydra.searchpath=[file://{tmp_path}]", "experiment=mine"]
        )
    assert (composed.learner.num_steps, composed.search.num_simulations) == (7, 16)


def test_yaml_files_quote_what_yaml_would_take_for_something_else() -> None:
    """`on`, `off`, `yes` and `no` are booleans to YAML, `010` is 8."""
    for path in Path(config_dir()).rglob("*.yaml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            value = line.partition(": ")[2].split("#")[0].strip()
            assert value not in {"on", "off", "yes", "no", "On", "Off"}, f"{path.name}: {line}"
