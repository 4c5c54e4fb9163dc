"""`muzero-play`: play against a run's agent, or watch it, in the terminal or on a page."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omegaconf import MISSING

from muzero.config.arguments import check_checkpoint, run_command
from muzero.config.runs import run_folder

if TYPE_CHECKING:
    from muzero.play.session import Session


@dataclass(kw_only=True, slots=True)
class PlayArguments:
    """Play a run's agent, in the terminal or on a page, and look into its search."""

    run: str = MISSING
    """Run folder, of one of OpenSpiel's board games, or `builtin:connect_four`: the agent that comes with the package."""
    web: bool = False
    """Serve a page instead of playing in the terminal."""
    host: str = "127.0.0.1"
    """`web`: address to listen on; there is no password, so leave it on this machine unless everybody who can reach it may play."""
    port: int = 8600
    """`web`: port; 0 takes a free one."""
    side: str = "first"
    """Whom you play: `first`, `second`, `both`, or `watch`, where the agent plays by itself."""
    simulations: int | None = None
    """Simulations per move; null takes the run's setting."""
    checkpoint: str = "newest"
    """`newest`, or `best`: the one that did best in training's evaluations."""
    step: int | None = None
    """Learner step of the checkpoint; null leaves it to `checkpoint`."""
    time_limit: float = 30.0
    """Seconds per search; one that takes longer ends with the simulations it has made."""
    chance_seed: int = 0
    """Seed of chance's moves, in games that have some."""
    threads: int = 1
    """CPU threads of torch."""


def main() -> None:
    """Entry point of the command."""
    run_command(play, PlayArguments, program="muzero-play")


def play(arguments: PlayArguments, overrides: list[str]) -> None:
    """Play until the person quits."""
    from muzero.config.schema import OpenSpielConfig  # torch takes seconds, and `--help` should not
    from muzero.config.store import load_config
    from muzero.config.validate import check_for_playing
    from muzero.play.analyst import Analyst, RunCheckpoints
    from muzero.play.refusal import Refusal
    from muzero.play.session import Session
    from muzero.runtime.build import Builder, configure_torch
    from muzero.runtime.players import open_checkpoint

    check_checkpoint(arguments.checkpoint, arguments.step)
    configure_torch(arguments.threads)
    run_dir = run_folder(arguments.run)
    config = load_config(run_dir, overrides)
    if not isinstance(config.env, OpenSpielConfig):
        raise ValueError(
            f"run={run_dir} is of env.kind={config.env.kind}; only OpenSpiel's games can be played: "
            "muzero-evaluate runs an agent through episodes of others"
        )
    check_for_playing(config)
    step = arguments.step
    if step is None:
        step = open_checkpoint(run_dir, best=arguments.checkpoint == "best").step
    simulations = arguments.simulations
    if (
        simulations is None
    ):  # evaluation may have none at all, and then there is no search to look into
        simulations = config.evaluation.num_simulations or config.search.num_simulations
    analyst = Analyst(Builder.of(config), RunCheckpoints(run_dir), time_limit=arguments.time_limit)
    try:
        session = Session(
            analyst,
            config.env,
            side=arguments.side,
            step=step,
            num_simulations=simulations,
            seed=arguments.chance_seed,
        )
    except Refusal as refusal:  # here a setting, not a click
        raise ValueError(str(refusal)) from refusal
    # The first search of a process compiles or loads its kernels, which is no part of anybody's thinking time.
    analyst.analyse(session.position.state, step, simulations)
    print(f"{config.env.name}, learner step {step}, {simulations} simulations per move", flush=True)
    try:
        if arguments.web:
            _serve(session, arguments.host, arguments.port)
        else:
            from muzero.play.terminal import Terminal

            Terminal(session).run()
    except KeyboardInterrupt:
        print()


def _serve(session: "Session", host: str, port: int) -> None:
    from muzero.play.web import PlayServer

    with PlayServer(session, host, port) as server:
        print(f"play at {server.url} (Ctrl-C ends)", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
