"""What a switch port's queue does: buffer, ECN thresholds, and where operators write them down.

The marking law is the one of switches (domain facts: HPCC switch-mmu.cc, sonic-mgmt's ECN test plan):
P(q) = 0 below Kmin, Pmax·(q−Kmin)/(Kmax−Kmin) between, 1 from Kmax on, q the instantaneous queue in bytes.
Kmin = Kmax is a step.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from emu.errors import UsageError, unknown

MARKING_MODES = {"ecn_all", "ecn_green", "ecn_green_yellow", "ecn_green_red"}  # the SONiC modes that mark green packets


@dataclass(frozen=True, kw_only=True)
class EcnProfile:
    """Kmin, Kmax in bytes, Pmax as a share (0…1) reached at Kmax."""

    kmin_bytes: int
    kmax_bytes: int
    pmax: float

    def __post_init__(self) -> None:
        if self.kmin_bytes < 0 or self.kmax_bytes < self.kmin_bytes or self.kmax_bytes == 0:
            raise UsageError(
                f"ECN thresholds kmin_bytes={self.kmin_bytes} kmax_bytes={self.kmax_bytes}: "
                "want 0 <= kmin_bytes <= kmax_bytes and kmax_bytes > 0"
            )
        if not 0 < self.pmax <= 1:
            raise UsageError(f"pmax={self.pmax:g} is not a marking probability; want 0 < pmax <= 1")

    @property
    def is_step(self) -> bool:
        return self.kmin_bytes == self.kmax_bytes

    def probability(self, queue_bytes: float) -> float:
        """P(mark) for a packet that finds `queue_bytes` in the queue."""
        if queue_bytes >= self.kmax_bytes:
            return 1.0
        if queue_bytes < self.kmin_bytes:
            return 0.0
        return self.pmax * (queue_bytes - self.kmin_bytes) / (self.kmax_bytes - self.kmin_bytes)


@dataclass(frozen=True, kw_only=True)
class QueueProfile:
    """One egress queue of a switch port: `buffer_bytes` is where tail drop begins; ecn=None marks nothing."""

    buffer_bytes: int
    ecn: EcnProfile | None = None

    def __post_init__(self) -> None:
        if self.buffer_bytes <= 0:
            raise UsageError(f"buffer_bytes={self.buffer_bytes} holds no packet; want at least one MTU")
        if self.ecn and self.buffer_bytes <= self.ecn.kmax_bytes:
            raise UsageError(
                f"buffer_bytes={self.buffer_bytes} ends before kmax_bytes={self.ecn.kmax_bytes}: the queue would drop "
                "before it marks every packet; want buffer_bytes > kmax_bytes"
            )


def from_sonic(spec: str) -> EcnProfile:
    """FILE or FILE:NAME, a SONiC CONFIG_DB JSON with a WRED_PROFILE table; NAME may be left out if there is one.

    The green thresholds (bytes) and green_drop_probability (percent) are used: RoCE data is coloured green.
    UsageError: no such file, no JSON, no such profile, a profile that doesn't mark green packets, a field missing.
    """
    path, _, name = spec.rpartition(":") if _names_a_profile(spec) else (spec, "", "")
    profiles = _wred_profiles(path)
    if not name and len(profiles) > 1:
        raise UsageError(f"{path} has {len(profiles)} WRED profiles; name one as {path}:NAME ({', '.join(profiles)})")
    name = name or next(iter(profiles))
    if name not in profiles:
        raise unknown(f"WRED profile of {path}", name, profiles)
    return _green_profile(f"{path}:{name}", profiles[name])


def _names_a_profile(spec: str) -> bool:
    return ":" in spec and not os.path.exists(spec)


def _wred_profiles(path: str) -> dict[str, object]:
    try:
        config = json.loads(Path(path).read_text())
    except OSError as error:
        raise UsageError(f"ecn_profile={path}: {error.strerror}; want a SONiC CONFIG_DB JSON file") from None
    except ValueError as error:
        raise UsageError(f"ecn_profile={path} is not JSON ({error}); want a SONiC CONFIG_DB JSON file") from None
    profiles = config.get("WRED_PROFILE") if isinstance(config, dict) else None
    if not isinstance(profiles, dict) or not profiles:
        raise UsageError(f"ecn_profile={path} has no WRED_PROFILE table; want a SONiC CONFIG_DB JSON file")
    return profiles


def _green_profile(where: str, fields: object) -> EcnProfile:
    if not isinstance(fields, dict):
        raise UsageError(f"{where} is {fields!r}; want a table of fields (ecn, green_min_threshold, …)")
    mode = fields.get("ecn", "ecn_none")
    if not isinstance(mode, str) or mode not in MARKING_MODES:
        raise UsageError(f"{where}: ecn is {mode!r}, which marks no green packet; want {', '.join(sorted(MARKING_MODES))}")

    def number(key: str) -> int:
        try:
            return int(fields[key])
        except KeyError:
            raise UsageError(f"{where} lacks {key}; want it beside the other green_ fields") from None
        except (ValueError, TypeError):
            raise UsageError(f"{where}: {key} is {fields[key]!r}; want a whole number") from None

    kmin_bytes, kmax_bytes = number("green_min_threshold"), number("green_max_threshold")
    percent = number("green_drop_probability")
    try:
        return EcnProfile(kmin_bytes=kmin_bytes, kmax_bytes=kmax_bytes, pmax=percent / 100)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
