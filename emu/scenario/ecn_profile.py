"""The queue a run asks for: its buffer, and the ECN law of a SONiC file or of the three numbers."""

from __future__ import annotations

from emu.scenario.choice import Values
from emu.topology.queue_profile import EcnProfile, QueueProfile, from_sonic


def ecn_profile(p: Values) -> EcnProfile:
    """From `ecn_profile` if it is given, else from kmin_bytes, kmax_bytes and pmax; UsageError for what can't be a law."""
    if p.ecn_profile:
        return from_sonic(p.ecn_profile)
    return EcnProfile(kmin_bytes=p.kmin_bytes, kmax_bytes=p.kmax_bytes, pmax=p.pmax)


def queue_profile(p: Values) -> QueueProfile:
    """buffer_bytes and the law."""
    return QueueProfile(buffer_bytes=p.buffer_bytes, ecn=ecn_profile(p))
