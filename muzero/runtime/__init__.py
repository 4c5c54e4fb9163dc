"""Runtimes: the same role classes in one process (`local`) or, later, as a fleet."""
