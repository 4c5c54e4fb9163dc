import builtins
import subprocess
import sys

import pytest

from muzero.config.environments import AtariConfig, EnvConfig, GymConfig, OpenSpielConfig
from muzero.envs import make_env, make_spec


def test_an_unknown_kind_is_told():
    with pytest.raises(ValueError, match=r"env.kind='chess' must be one of open_spiel, gym, atari"):
        make_env(EnvConfig(kind="chess", name="x"), 1)


def test_a_batch_needs_a_row():
    with pytest.raises(ValueError, match="batch_size=0 must be at least 1"):
        make_env(OpenSpielConfig(game="tic_tac_toe", name="x"), 0)


@pytest.mark.parametrize(
    "config",
    [OpenSpielConfig(game="connect_four", name="x"), GymConfig(id="CartPole-v1", name="x")],
)
def test_make_spec_tells_what_the_environment_has(config):
    env = make_env(config, 1)
    assert make_spec(config) == env.spec
    env.close()


@pytest.mark.parametrize(
    ("config", "unwanted"),
    [
        ("OpenSpielConfig(game='tic_tac_toe', name='x')", ["gymnasium", "ale_py", "torch"]),
        ("GymConfig(id='CartPole-v1', name='x')", ["pyspiel", "open_spiel", "ale_py", "torch"]),
    ],
)
def test_an_environment_imports_only_what_it_needs(config, unwanted):
    program = (
        "import sys; from muzero.config.schema import *; from muzero.envs import make_env; "
        f"make_env({config}, 1).reset(0); print([name for name in {unwanted} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("config", "package", "message"),
    [
        (
            AtariConfig(game="pong", name="x"),
            "ale_py",
            r"ale_py, which is missing: pip install muzero-trainer\[atari\]",
        ),
        (
            GymConfig(id="CartPole-v1", name="x"),
            "gymnasium",
            "gymnasium, which is missing: pip install gymnasium",
        ),
    ],
)
def test_a_missing_package_names_what_to_install(config, package, message, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *args, **kwargs)

    for name in [
        name for name in sys.modules if name.startswith(("muzero.envs.gym", "muzero.envs.atari"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=message):
        make_env(config, 1)


def test_missing_box2d_names_its_extra(monkeypatch):
    import gymnasium

    def make(*args, **kwargs):
        raise gymnasium.error.DependencyNotInstalled(
            'Box2D is not installed, run `pip install "gymnasium[box2d]"`'
        )

    monkeypatch.setattr(gymnasium, "make", make)
    with pytest.raises(ValueError, match=r"pip install muzero-trainer\[box2d\]"):
        make_env(GymConfig(id="LunarLander-v3", name="x"), 1)
