"""Reanalyze: stored targets refreshed by new searches with newer weights (MuZero, appendix H)."""

from reanalyze.refresh import Refreshed, Refresher
from reanalyze.schedule import Schedule
from reanalyze.worker import Lease, ReanalyzeWorker

__all__ = ["Lease", "ReanalyzeWorker", "Refreshed", "Refresher", "Schedule"]
