"""How much a network that computes in lower precision changes what its searches find.

Letters: `B` positions, `A` actions, `*O` observation shape.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mcts import Search, SearchOutput, SearchSettings, run
from mcts.base import BoolArray
from muzero.inference.local import LocalModel


@dataclass(frozen=True, slots=True)
class Calibration:
    """Two searches of the same roots, compared."""

    roots: int
    """Positions compared: those with a choice."""
    same_most_visited: float
    """Share of them whose most visited action is the same; of equally visited ones, the lower."""
    same_choice: float
    """Share of them whose `best_action` is the same."""
    visit_variation: float
    """Mean total variation distance of the visit fractions: 0 alike, 1 nothing in common."""
    policy_variation: float
    """The same of the policy targets; under Gumbel visits follow a fixed schedule and say less."""
    value_difference: float
    """Mean absolute difference of the search values of the roots."""

    def as_dict(self) -> dict[str, float]:
        """For a report."""
        return asdict(self)


def compare_outputs(first: SearchOutput, second: SearchOutput, legal: BoolArray) -> Calibration:
    """Compare the searches of `B` roots with legal actions `[B, A]`.

    Raises ValueError if no root has a choice.
    """
    has_choice = legal.sum(axis=1) > 1
    count = int(has_choice.sum())
    if count == 0:
        raise ValueError("none of the positions has more than one legal action: nothing to compare")
    outputs = (first, second)
    visits = [output.visits[has_choice] for output in outputs]
    fractions = [each / each.sum(axis=1, keepdims=True) for each in visits]
    policies = [output.policy[has_choice] for output in outputs]
    choices = [output.best_action[has_choice] for output in outputs]
    values = [output.value[has_choice] for output in outputs]
    return Calibration(
        roots=count,
        same_most_visited=float((visits[0].argmax(axis=1) == visits[1].argmax(axis=1)).mean()),
        same_choice=float((choices[0] == choices[1]).mean()),
        visit_variation=_variation(*fractions),
        policy_variation=_variation(*policies),
        value_difference=float(np.abs(values[0] - values[1]).mean()),
    )


def _variation(first: npt.NDArray[np.floating], second: npt.NDArray[np.floating]) -> float:
    """Mean over rows of half the summed absolute differences."""
    return float(0.5 * np.abs(first - second).sum(axis=1).mean())


def calibrate(
    exact: LocalModel,
    rough: LocalModel,
    settings: SearchSettings,
    observation: npt.NDArray[Any],
    legal: BoolArray,
) -> Calibration:
    """Search the positions `[B, *O]` with either model, without noise; both have room for `B` trees."""
    num_rows, num_actions = legal.shape
    first, second = (
        run(
            Search(settings, batch_size=num_rows, num_actions=num_actions),
            model,
            model.roots(observation),
            legal,
        )
        for model in (exact, rough)
    )
    return compare_outputs(first, second, legal)
