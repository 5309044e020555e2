"""Scenarios: a question about a fabric, as one file that says what is built, what is run and what is expected.

A scenario file needs only what is named here.
"""

from emu.measure.metric import Check, Metric, Series
from emu.report.result import Result
from emu.report.table import Column
from emu.scenario import parameters
from emu.scenario.cluster import scale_out, spine_leaf
from emu.scenario.command import main
from emu.scenario.ecn_profile import ecn_profile, queue_profile
from emu.scenario.load_balancing import balancing
from emu.scenario.outcome import Outcome
from emu.scenario.parameter import Parameter
from emu.scenario.transport import transport

__all__ = [
    "Check", "Column", "Metric", "Outcome", "Parameter", "Result", "Series", "balancing", "ecn_profile", "main", "parameters",
    "queue_profile", "scale_out", "spine_leaf", "transport",
]
