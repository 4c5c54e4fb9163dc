"""Models that a search can call."""

from muzero.inference.local import LocalModel

__all__ = ["LocalModel"]
