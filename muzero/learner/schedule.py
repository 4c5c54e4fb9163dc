"""Learning rates as pure functions of the learner step: nothing to save, nothing to restore."""

import math

from muzero.config.schema import LearnerConfig

SCHEDULES = ("constant", "cosine", "step")


def learning_rate(config: LearnerConfig, step: int) -> float:
    """Rate of the update after `step` updates.

    Update number `s + 1` of a warm-up of `w` takes `(s + 1) / w` of the rate, so that no update is wasted on a rate of
    0. The cosine runs from the end of the warm-up to `num_steps` and stays at its end behind it.
    """
    rate = config.learning_rate
    if step < config.warmup_steps:
        return rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return rate
    if config.schedule == "cosine":
        return rate * cosine(
            step - config.warmup_steps,
            config.num_steps - config.warmup_steps,
            config.final_learning_rate_fraction,
        )
    if config.schedule == "step":
        return rate * config.decay_rate ** (step // config.decay_steps)
    raise ValueError(
        f"learner.schedule is {config.schedule!r}; choose one of {', '.join(SCHEDULES)}"
    )


def cosine(step: int, num_steps: int, final: float) -> float:
    """1 at step 0, `final` from `num_steps` on, half a cosine between."""
    progress = min(step / num_steps, 1.0) if num_steps > 0 else 1.0
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * progress))
