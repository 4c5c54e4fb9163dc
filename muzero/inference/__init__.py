"""Models that a search can call."""

from muzero.inference.batching import BatchingRule
from muzero.inference.local import LocalModel
from muzero.inference.messages import CallReply, CallRequest, CallTransport, RingTicket, ServerInfo
from muzero.inference.remote import RemoteModel, RingTransport
from muzero.inference.ring import ServerLost
from muzero.inference.rules import NetworkRulesModel, RulesModel
from muzero.inference.server import InferenceServer
from muzero.inference.stochastic import StochasticLocalModel
from muzero.inference.valuation import NetworkValuation, RolloutValuation, Valuation

__all__ = [
    "BatchingRule",
    "CallReply",
    "CallRequest",
    "CallTransport",
    "InferenceServer",
    "LocalModel",
    "NetworkRulesModel",
    "NetworkValuation",
    "RemoteModel",
    "RingTicket",
    "RingTransport",
    "RolloutValuation",
    "RulesModel",
    "ServerInfo",
    "ServerLost",
    "StochasticLocalModel",
    "Valuation",
]
