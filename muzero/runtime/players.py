"""Trained agents from run folders: for opponents in evaluation, and for use in three lines of Python."""

from pathlib import Path

from torch import Tensor

from muzero.checkpoint import Checkpoint, CheckpointError, CheckpointManager
from muzero.config.environments import OpenSpielConfig
from muzero.config.runs import run_folder
from muzero.config.store import load_config
from muzero.evaluation.agent import Agent
from muzero.evaluation.players import AgentPlayer
from muzero.runtime.build import Builder


def open_checkpoint(run_dir: Path, step: int | None = None, *, best: bool = False) -> Checkpoint:
    """The checkpoint of a run at a learner step, the one that did best in training's evaluations, or the newest sound one.

    Reads only.

    Raises:
        ValueError: If the run has none, or that one is damaged.
    """
    manager = CheckpointManager(run_dir / "checkpoints", owner=False)
    if best:
        step = manager.best_step
        if step is None:
            raise ValueError(
                f"{run_dir} has no checkpoint marked as the best: training marks one at each evaluation that is better than all "
                "before; take the newest, or one of the steps " + str(manager.steps())
            )
    if step is not None:
        if step not in manager.steps():
            raise ValueError(
                f"{run_dir} has no checkpoint of learner step {step}; it has {manager.steps() or 'none'}"
            )
        try:
            return manager.load(step)
        except CheckpointError as error:
            raise ValueError(f"{error}; there are checkpoints of {manager.steps()}") from error
    checkpoint = manager.newest_valid()
    if checkpoint is None:
        damaged = manager.steps()
        reason = f"all of {damaged} are damaged" if damaged else "it has none yet"
        raise ValueError(f"{run_dir} has no checkpoint that can be used: {reason}")
    return checkpoint


def acting_weights(checkpoint: Checkpoint) -> tuple[dict[str, Tensor], int]:
    """The weights that a checkpoint acts with (averaged, if the run averages), and their version."""
    return checkpoint.tensors("acting"), checkpoint.step


def load_agent(
    run_dir: str | Path,
    *,
    step: int | None = None,
    num_simulations: int | None = None,
    batch_size: int = 64,
    device: str = "auto",
) -> Agent:
    """The agent of a run, ready to act.

    Example:
        >>> agent = load_agent("runs/tictactoe/2026-01-31_12-00-00")
        >>> actions = agent.act(observation, legal)  # [B, *O], [B, A] -> [B]

    Args:
        run_dir: Run folder, or `builtin:connect_four`: the agent that comes with the package.
        step: Learner step of the checkpoint; None takes the newest.
        num_simulations: Simulations per move; None takes the run's evaluation setting, 0 acts by the network alone.
        batch_size: Positions searched at once; more are cut into pieces.
    """
    folder = run_folder(run_dir)
    config = load_config(folder)
    config.runtime.device = device
    weights, version = acting_weights(open_checkpoint(folder, step))
    agent = Builder.of(config).agent(batch_size, num_simulations)
    agent.model.load(weights, version)
    return agent


def agent_player(builder: Builder, agent: Agent) -> AgentPlayer:
    """An agent as a player of its OpenSpiel game."""
    from muzero.envs.open_spiel import OpenSpielFrames, load_game  # other games need no OpenSpiel

    config = builder.config.env
    if not isinstance(config, OpenSpielConfig):
        raise ValueError(
            f"env.kind={config.kind}: only OpenSpiel's games can be played against others"
        )
    frames = OpenSpielFrames(load_game(config), config)
    return AgentPlayer(agent, frames)


def load_player(run_dir: Path) -> AgentPlayer:
    """A run's newest agent as a player of its OpenSpiel game."""
    builder = Builder.of(load_config(run_dir))
    return agent_player(builder, load_agent(run_dir))
