"""Checks of the settings that change with the stages of training."""

from collections.abc import Iterator
from itertools import pairwise

from muzero.config.schema import SearchConfig, SelfPlayConfig


def temperature_problems(config: SelfPlayConfig) -> Iterator[str]:
    """What is wrong with the temperatures, one sentence each."""
    stages, steps = len(config.temperatures), config.temperature_steps
    if stages == 0:
        yield "selfplay.temperatures is empty; give at least one temperature, such as [1.0]"
    elif len(steps) != stages - 1:
        yield (
            f"selfplay.temperature_steps has {len(steps)} entries for {stages} selfplay.temperatures; it must have "
            f"{stages - 1}, the learner step at which each next temperature begins"
        )
    if _does_not_increase(steps):
        yield f"selfplay.temperature_steps is {steps}; its steps must increase"


def simulation_problems(config: SelfPlayConfig, search: SearchConfig) -> Iterator[str]:
    """What is wrong with progressive simulations, one sentence each."""
    stages, steps = config.progressive_simulations, config.progressive_steps
    if len(steps) != len(stages):
        yield (
            f"selfplay.progressive_steps has {len(steps)} entries for {len(stages)} selfplay.progressive_simulations; it must "
            "have as many, the learner step at which each of these stages ends"
        )
    if _does_not_increase(steps):
        yield f"selfplay.progressive_steps is {steps}; its steps must increase"
    if _does_not_increase(stages):
        yield (
            f"selfplay.progressive_simulations is {stages}; its numbers must increase from stage to stage"
        )
    own = config.num_simulations
    name = "search.num_simulations" if own is None else "selfplay.num_simulations"
    final = search.num_simulations if own is None else own
    if stages and max(stages) >= final:
        yield (
            f"selfplay.progressive_simulations is {stages}; all must be below {name}, {final}, which holds when the last of "
            "these stages is over and is what the search has room for; raise it, or leave the large ones out"
        )


def _does_not_increase(numbers: list[int]) -> bool:
    return any(later <= earlier for earlier, later in pairwise(numbers))
