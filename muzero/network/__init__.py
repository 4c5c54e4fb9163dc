"""Representation, dynamics and prediction networks, and how they are built."""

from muzero.network.base import MuZeroNetwork, NetworkOutput, NetworkSpec
from muzero.network.factory import make_network
from muzero.network.support import Support

__all__ = ["MuZeroNetwork", "NetworkOutput", "NetworkSpec", "Support", "make_network"]
