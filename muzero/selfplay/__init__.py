"""Self-play: games played for training."""

from muzero.selfplay.selfplay import SelfPlay
from muzero.selfplay.tally import Totals

__all__ = ["SelfPlay", "Totals"]
