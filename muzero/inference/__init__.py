"""Models that a search can call."""

from muzero.inference.local import LocalModel
from muzero.inference.rules import NetworkRulesModel, RulesModel
from muzero.inference.valuation import NetworkValuation, RolloutValuation, Valuation

__all__ = [
    "LocalModel",
    "NetworkRulesModel",
    "NetworkValuation",
    "RolloutValuation",
    "RulesModel",
    "Valuation",
]
