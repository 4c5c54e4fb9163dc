"""What to refresh next, and how much of it."""

from muzero.config.schema import ReanalyzeConfig
from muzero.replay.buffer import ReplayBuffer


class Schedule:
    """Decides how many positions are due for a refresh.

    The stalest positions are due while the share of fresh targets is below `fresh_fraction`, and as long as
    reanalyze has not taken more than `max_share` of all positions searched. Both are functions of counters alone, so the
    decision is the same in every run of one seed.
    """

    def __init__(self, config: ReanalyzeConfig) -> None:
        self._config = config

    def due(self, replay: ReplayBuffer, *, learner_step: int, refreshed: int, played: int) -> int:
        """Number of positions to refresh now, at most a batch; 0 if nothing is due.

        Args:
            refreshed: Positions searched by reanalyze so far.
            played: Positions searched by self-play so far.
        """
        config = self._config
        if config.fresh_fraction <= 0.0 or replay.size == 0:
            return 0
        allowed = played * config.max_share / (1.0 - config.max_share) - refreshed
        if allowed < config.batch_size:
            return 0
        fresh = replay.fresh_fraction(learner_step, config.max_target_age)
        return config.batch_size if fresh < config.fresh_fraction else 0
