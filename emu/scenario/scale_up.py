"""The scale-up domains that the common parameters describe."""

from __future__ import annotations

from emu.scenario.choice import Values
from emu.topology.scale_up import ScaleUp
from emu.topology.scale_up_profiles import profile


def described(p: Values) -> ScaleUp | None:
    """From `scale_up`, `technology`, `domain_gpus`, `planes` and `spines`; None for scale_up=none: nothing is built."""
    if p.scale_up == "none":
        return None
    return ScaleUp(kind=p.scale_up, technology=profile(p.technology), gpus_per_server=p.gpus_per_server,
                   domain_gpus=p.domain_gpus, planes=p.planes, spines=p.spines)
