"""A MuZero trainer: self-play with batched search, reanalyze, replay, learner, evaluation."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "load_agent"]

if TYPE_CHECKING:
    from muzero.runtime.players import load_agent


def __getattr__(name: str) -> Any:
    # Loaded on first use: importing torch takes seconds, and a look at the version should not.
    if name == "load_agent":
        from muzero.runtime.players import load_agent

        return load_agent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
