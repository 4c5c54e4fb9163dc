"""`muzero-inspect`: what is in a run's folder: checkpoints, config, stored games, a search tree."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import MISSING, OmegaConf

from muzero.config.arguments import run_command
from muzero.config.runs import saved_run

if TYPE_CHECKING:
    from muzero.evaluation.arena import GameRecord

_SHOWS = ("summary", "config", "checkpoints", "games", "game", "tree")


@dataclass(kw_only=True, slots=True)
class InspectArguments:
    """Look into a run's folder."""

    run: str = MISSING
    """Run folder, or `builtin:connect_four`: the agent that comes with the package."""
    show: str = "summary"
    """`summary`, `config`, `checkpoints`, `games`, `game` (a stored one) or `tree` (a search at a position)."""
    file: str | None = None
    """`games`, `game`: file of games; null takes the newest of the run's evaluation folder."""
    index: int = 0
    """`game`: number of the game in its file."""
    moves: list[int] = field(default_factory=list)
    """`tree`: actions from the initial position."""
    step: int | None = None
    """`tree`: learner step of the checkpoint; null takes the newest."""
    simulations: int | None = None
    """`tree`: simulations; null takes the run's setting."""
    format: str = "text"
    """`tree`: `text`, `json` or `dot`; `game` and `games`: `text`, or `sgf` for games of Go."""
    depth: int = 3
    """`tree`: levels that the text shows."""


def main() -> None:
    """Entry point of the command."""
    run_command(inspect, InspectArguments, program="muzero-inspect", overrides=False)


def inspect(arguments: InspectArguments, overrides: list[str]) -> None:
    """Print what is asked for."""
    if arguments.show not in _SHOWS:
        raise ValueError(f"show={arguments.show!r} must be one of {', '.join(_SHOWS)}")
    run_dir = saved_run(arguments.run)
    actions = {
        "summary": lambda: _summary(run_dir),
        "config": lambda: print((run_dir / "config.yaml").read_text(encoding="utf-8"), end=""),
        "checkpoints": lambda: _checkpoints(run_dir),
        "games": lambda: _games(run_dir, arguments),
        "game": lambda: _game(run_dir, arguments),
        "tree": lambda: _tree(run_dir, arguments),
    }
    actions[arguments.show]()


def _summary(run_dir: Path) -> None:
    from muzero.metrics import read_rows

    saved = OmegaConf.load(run_dir / "config.yaml")
    print(f"run {run_dir}: env {saved.env.kind}, network {saved.network.kind}, seed {saved.seed}")
    rows = read_rows(run_dir / "metrics.jsonl") if (run_dir / "metrics.jsonl").is_file() else []
    if rows:
        print(f"newest metrics, at learner step {rows[-1]['learner_step']}:")
        for name, value in rows[-1].items():
            print(f"  {name}: {value}")
    _checkpoints(run_dir)
    print(f"more: {', '.join(f'show={show}' for show in _SHOWS[1:])}")


def _checkpoints(run_dir: Path) -> None:
    from muzero.checkpoint import CheckpointError, CheckpointManager

    manager = CheckpointManager(run_dir / "checkpoints", owner=False)
    if not manager.steps():
        print("no checkpoints yet")
    for step in manager.steps():
        try:
            checkpoint = manager.load(step)
        except CheckpointError as error:
            print(f"checkpoint {step}: DAMAGED ({error})")
            continue
        size = sum(file.stat().st_size for file in checkpoint.path.rglob("*") if file.is_file())
        best = ", marked best" if step == manager.best_step else ""
        print(
            f"checkpoint {step}: sound, {size:,} bytes, parts {', '.join(checkpoint.parts)}{best}"
        )


def _games_file(run_dir: Path, file: str | None) -> Path:
    if file is not None:
        return Path(file)
    found = sorted(
        (run_dir / "evaluation").glob("*/games_*.jsonl"), key=lambda path: path.stat().st_mtime
    )
    if not found:
        raise ValueError(f"{run_dir}/evaluation holds no games yet; name a file with file=...")
    return found[-1]


def _games(run_dir: Path, arguments: InspectArguments) -> None:
    from muzero.evaluation.arena import read_records

    path = _games_file(run_dir, arguments.file)
    records = read_records(path)
    if _wants_sgf(arguments):
        _print_sgf(run_dir, records)
        return
    print(path)
    for number, record in enumerate(records):
        result = "won" if record.score > 0 else "lost" if record.score < 0 else "drawn"
        print(f"{number:4d}  seat {record.setup.first_seat}  {result:5}  {list(record.actions)}")


def _game(run_dir: Path, arguments: InspectArguments) -> None:
    from muzero.evaluation.arena import read_records

    path, index = _games_file(run_dir, arguments.file), arguments.index
    records = read_records(path)
    if not 0 <= index < len(records):
        raise ValueError(f"index={index}: {path} holds games 0 to {len(records) - 1}")
    record = records[index]
    if _wants_sgf(arguments):
        _print_sgf(run_dir, [record])
        return
    state = _initial_state(run_dir)
    print(
        f"{path}, game {index}: the agent has seat {record.setup.first_seat}, score {record.score}"
    )
    for number, action in enumerate(record.actions):
        opening = " (opening)" if number < len(record.setup.opening) else ""
        mover = state.current_player()
        print(f"\n{state}\n{number + 1}. player {mover}: {state.action_to_string(action)}{opening}")
        state.apply_action(action)
    print(f"\n{state}")


def _wants_sgf(arguments: InspectArguments) -> bool:
    if arguments.format not in ("text", "sgf"):
        raise ValueError(
            f"format={arguments.format!r} must be text or sgf with show={arguments.show}"
        )
    return arguments.format == "sgf"


def _print_sgf(run_dir: Path, records: "list[GameRecord]") -> None:
    from muzero.evaluation.sgf import to_sgf

    game = _initial_state(run_dir).get_game()
    for record in records:
        print(to_sgf(record, game, names=(str(run_dir), "opponent")))


def _initial_state(run_dir: Path) -> Any:
    from muzero.config.environments import OpenSpielConfig
    from muzero.config.store import load_config

    config = load_config(run_dir).env
    if not isinstance(config, OpenSpielConfig):
        raise ValueError(
            f"{run_dir} is of env.kind={config.kind}; only OpenSpiel's games can be replayed"
        )
    from muzero.envs.open_spiel import load_game

    return load_game(config).new_initial_state()


def _tree(run_dir: Path, arguments: InspectArguments) -> None:
    """Search the position behind `moves` and print the tree."""
    from mcts import export, run
    from muzero.config.store import load_config
    from muzero.inference.rules import plant_roots
    from muzero.runtime.build import Builder
    from muzero.runtime.players import acting_weights, agent_player, open_checkpoint

    state = _initial_state(run_dir)
    for number, action in enumerate(arguments.moves):
        legal = [] if state.is_terminal() else state.legal_actions()
        if action not in legal:
            raise ValueError(
                f"moves: action {action} (number {number}) is not legal; legal are {legal}"
            )
        state.apply_action(action)
    if state.is_terminal():
        raise ValueError("moves: the game is over there, nothing can be searched")
    builder = Builder.of(load_config(run_dir))
    agent = builder.agent(1, arguments.simulations)
    if agent.settings is None:
        raise ValueError("simulations=0 makes no tree; give at least 1")
    agent.model.load(*acting_weights(open_checkpoint(run_dir, arguments.step)))
    player = agent_player(builder, agent)
    search = builder.search(1, agent.settings)
    root = plant_roots(agent.model, player.observations([state]), [state])
    output = run(search, agent.model, root, player.legal([state]))
    # Deeper moves are imagined and may be illegal in truth; only the root's have names for sure.
    names = {action: state.action_to_string(action) for action in state.legal_actions()}
    tree, depth = search.tree, arguments.depth

    def name(action: int) -> str:
        return names.get(action, str(action))

    if arguments.format == "json":
        print(json.dumps(export.to_dict(tree)))
    elif arguments.format == "dot":
        print(export.to_dot(tree, max_depth=depth, action_names=name))
    elif arguments.format == "text":
        print(f"{state}\n\nplayer {state.current_player()} to move, value {output.value[0]:+.4f}")
        print(export.to_text(tree, max_depth=depth, action_names=name))
        variation = " ".join(name(action) for action in export.principal_variation(tree))
        print(f"principal variation: {variation}")
    else:
        raise ValueError(f"format={arguments.format!r} must be text, json or dot")


if __name__ == "__main__":
    main()
