"""Layers over actions that are tuples of choices, so that actions which share a choice share what is learned of it.

An action number is read in mixed radix, the first factor most significant: with the factors (2, 26, 26) of OpenSpiel's
backgammon, action `a` is the order `a // 676`, and the points `a // 26 % 26` and `a % 26` of two checkers.

Letters: `B` positions, `A` actions, `F` the sum of the factors, `W` columns.
"""

from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def choices_of(num_actions: int, factors: tuple[int, ...]) -> Tensor:
    """`[A, F]` the choices of every action: a one for each factor.

    Raises:
        ValueError: The product of the factors is not the number of actions.
    """
    if prod(factors) != num_actions:
        raise ValueError(
            f"action_factors={factors} make {prod(factors)} actions, and there are {num_actions}; "
            "leave them empty, or let their product be the number of actions"
        )
    rest = torch.arange(num_actions)
    columns: list[Tensor] = []
    for factor in reversed(factors):
        columns.insert(0, F.one_hot(rest % factor, factor))
        rest = rest // factor
    return torch.cat(columns, 1).float()


class FactoredRows(nn.Module):
    """A row per action, as `nn.Embedding` has them: the sum of a row for each of its choices and one of its own.

    The own rows begin at 0; `init_rows` draws those of the choices.
    """

    choices: Tensor

    def __init__(self, num_actions: int, num_columns: int, factors: tuple[int, ...]):
        super().__init__()
        self.register_buffer("choices", choices_of(num_actions, factors), persistent=False)
        self.own = nn.Parameter(torch.zeros(num_actions, num_columns))
        self.shared = nn.Parameter(torch.zeros(sum(factors), num_columns))
        self.num_factors = len(factors)

    @property
    def weight(self) -> Tensor:
        """`[A, W]` all rows."""
        return torch.addmm(self.own, self.choices, self.shared)

    def forward(self, action: Tensor) -> Tensor:
        """Actions `[B]` (int64) -> rows `[B, W]`."""
        return torch.addmm(F.embedding(action, self.own), self.choices[action], self.shared)


class FactoredLinear(nn.Linear):
    """A linear layer whose first `A` outputs belong to actions: to each is added what its choices say.

    `weight` and `bias` are those of the own outputs; `whole_weight` is the layer's as it acts.
    """

    choices: Tensor

    def __init__(
        self, num_inputs: int, num_outputs: int, num_actions: int, factors: tuple[int, ...]
    ):
        super().__init__(num_inputs, num_outputs)
        choices = F.pad(choices_of(num_actions, factors), (0, 0, 0, num_outputs - num_actions))
        self.register_buffer("choices", choices, persistent=False)
        self.shared = nn.Parameter(torch.zeros(sum(factors), num_inputs))

    def whole_weight(self) -> Tensor:
        """`[A + ..., inputs]` the matrix that the layer multiplies by."""
        return torch.addmm(self.weight, self.choices, self.shared)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, inputs]` -> `[B, outputs]`."""
        return F.linear(x, self.whole_weight(), self.bias)


def action_rows(
    num_actions: int, num_columns: int, factors: tuple[int, ...]
) -> nn.Embedding | FactoredRows:
    """A row per action, shared along `factors` where there are any."""
    if factors:
        return FactoredRows(num_actions, num_columns, factors)
    return nn.Embedding(num_actions, num_columns)


def init_rows(rows: nn.Embedding | nn.Linear | FactoredRows, std: float) -> None:
    """Draw rows of deviation `std`."""
    if isinstance(rows, FactoredRows):
        nn.init.normal_(rows.shared, std=std / rows.num_factors**0.5)
    else:
        nn.init.normal_(rows.weight, std=std)


def action_outputs(
    num_inputs: int, num_outputs: int, num_actions: int, factors: tuple[int, ...]
) -> nn.Linear:
    """A linear layer whose first outputs are `num_actions` logits, shared along `factors` where there are any."""
    if factors:
        return FactoredLinear(num_inputs, num_outputs, num_actions, factors)
    return nn.Linear(num_inputs, num_outputs)


def weight_of(layer: nn.Linear) -> Tensor:
    """The matrix that a layer multiplies by, factored or not."""
    return layer.whole_weight() if isinstance(layer, FactoredLinear) else layer.weight
