"""The config of a run: saved once, loaded for resume and evaluation."""

import dataclasses
import tempfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from muzero.config.compose import compose
from muzero.config.store import first, folder_name, load_config, save_config

RECIPES = ["experiment=tictactoe", "experiment=cartpole", "experiment=pong"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_saved_config_comes_back(recipe: str, tmp_path: Path) -> None:
    config = compose([recipe, "seed=3"])
    save_config(config, tmp_path / "run")
    loaded = load_config(tmp_path / "run")
    assert loaded.run_dir == str(tmp_path / "run")
    assert dataclasses.replace(loaded, run_dir=config.run_dir) == config
    assert type(loaded.env) is type(config.env)


def test_saved_config_is_plain_and_names_no_machine(tmp_path: Path) -> None:
    config = compose(["experiment=tictactoe"], run_dir=str(tmp_path))
    path = save_config(config, tmp_path, header="muzero-train experiment=tictactoe\nsecond line")
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# muzero-train experiment=tictactoe\n# second line\nseed: 0\n")
    assert str(tmp_path) not in text
    assert "${" not in text
    assert "???" not in text
    assert OmegaConf.load(path).env.name == "tictactoe"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.yaml"]


def test_a_run_is_never_overwritten(tmp_path: Path) -> None:
    config = compose(["seed=1"])
    save_config(config, tmp_path)
    config.seed = 2
    with pytest.raises(ValueError, match="already holds a run: continue it with resume="):
        save_config(config, tmp_path)
    assert load_config(tmp_path).seed == 1
    assert [file.name for file in tmp_path.iterdir()] == ["config.yaml"]


@pytest.fixture(scope="module")
def saved() -> str:
    overrides = ["env=open_spiel", "env.game=hex", "env.parameters.board_size=5"]
    with tempfile.TemporaryDirectory() as folder:
        path = save_config(compose([*overrides, "learner.num_steps=11"]), folder)
        return path.read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path, saved: str) -> Path:
    (tmp_path / "config.yaml").write_text(saved, encoding="utf-8")
    return tmp_path


def test_a_moved_run_knows_its_new_place(run: Path) -> None:
    moved = run.rename(run.with_name("moved"))
    assert load_config(moved).run_dir == str(moved)


def test_single_settings_change(run: Path) -> None:
    overrides = [
        "learner.num_steps=20",
        "search.max_depth=null",
        "evaluation.opponents=[random,rollout:50]",
        "seed=0",
    ]
    config = load_config(run, [*overrides, "replay.samples_per_insert=2", f"resume={run}"])
    assert (config.learner.num_steps, config.replay.samples_per_insert) == (20, 2.0)
    assert config.evaluation.opponents == ["random", "rollout:50"]
    assert isinstance(config.replay.samples_per_insert, float)
    assert config.env.parameters == {"board_size": 5}
    assert load_config(run).learner.num_steps == 11


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("env.game=go", "env.game cannot change"),
        ("env.parameters.board_size=7", "env.parameters.board_size cannot change"),
        ("env=tictactoe", "env cannot change"),
        ("network.num_blocks=3", "network.num_blocks cannot change"),
        ("network=resnet", "network cannot change"),
        ("search=puct", "search cannot change"),
        ("experiment=tictactoe", "experiment cannot change"),
        ("learner.nm_steps=3", "did you mean learner.num_steps"),
        ("learner.num_steps=abc", "'abc'.*could not be converted to Integer"),
        ("learner.num_steps=null", "learner.num_steps"),
        ("+learner.x=3", "only plain section.setting=value"),
        ("~learner.num_steps", "only plain section.setting=value"),
        ("learner.num_steps=1,2", "only plain section.setting=value"),
        ("learner.num_steps", "cannot be read"),
    ],
)
def test_other_changes_are_refused(run: Path, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_config(run, [override])


def test_what_is_no_run_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no run folder: it has no config"):
        load_config(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text",
    ["", "{", "env: 3", "env: {kind: chess}\nnetwork: {kind: mlp}", "[1, 2]", "learner: {x: 1}"],
)
def test_a_damaged_config_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"config\.yaml cannot be read"):
        load_config(tmp_path)


def test_a_config_of_another_version_names_the_setting(run: Path) -> None:
    path = run / "config.yaml"
    path.write_text(path.read_text().replace("  optimizer: adam", "  optimiser: adam"))
    with pytest.raises(
        ValueError, match=r"config\.yaml cannot be read: Key 'optimiser' not in 'LearnerConfig'"
    ):
        load_config(run)


def test_missing_game_is_told_by_name() -> None:
    with pytest.raises(
        ValueError, match=r"^env\.game has no value; give one with env\.game=\.\.\.$"
    ):
        compose(["env=atari"])


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("ALE/Pong-v5", "ALE-Pong-v5"),
        ("my.module:Env-v0", "my.module-Env-v0"),
        ("../..", "unnamed"),
        ("go (9x9)", "go-9x9"),
        ("", "unnamed"),
    ],
)
def test_folder_names_are_safe(name: str, folder: str) -> None:
    assert folder_name("env.name", _root_=OmegaConf.create({"env": {"name": name}})) == folder


def test_folder_name_survives_a_missing_value() -> None:
    root = OmegaConf.create({"env": {"name": "${env.game}", "game": "???"}})
    assert folder_name("env.name", _root_=root) == "unnamed"


def test_first() -> None:
    assert first(None, "", "b", "c") == "b"
    assert first(0, 1) == 0
    assert first(None) is None
