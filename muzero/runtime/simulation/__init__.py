"""A discrete-event simulation of the fleet: what a cluster of some size would do, without the cluster.

The real limiter and the real controller decide; costs are measured ones. `scripts/simulate_cluster.py` is its command.
"""

from muzero.runtime.simulation.cluster import Simulation
from muzero.runtime.simulation.report import Report
from muzero.runtime.simulation.scenario import Costs, Scenario

__all__ = ["Costs", "Report", "Scenario", "Simulation"]
