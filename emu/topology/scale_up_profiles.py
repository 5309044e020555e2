"""Scale-up technologies as figures: what one accelerator has of links, how fast, how late, and who says so.

Rates are of one direction, as everywhere here; data sheets of NVLink and Infinity Fabric add both. `link_ns` is from one
device's link layer to the next's, through both SerDes, their FEC and the cable; `switch_ns` is a switch, first bit in to
first bit out. What nobody publishes is assumed, and says so: a read or write then takes what its path adds up to.
Source: domain facts, section 9; UALink Consortium, 200G 1.0 webinar Q&A (2025) for its switch.
"""

from __future__ import annotations

from dataclasses import dataclass

from emu.errors import unknown
from emu.units import gbps


@dataclass(frozen=True, kw_only=True)
class Technology:
    """`links` ports of `link_gbps` (nominal, one direction) per accelerator, in domains of up to `domain_max`."""

    name: str
    title: str
    links: int
    link_gbps: int
    link_ns: int
    switch_ns: int
    domain_max: int
    packet: str
    source: str
    latency_source: str

    @property
    def rate_bps(self) -> int:
        """What an accelerator sends through all its links together."""
        return gbps(self.links * self.link_gbps)

    @property
    def both_ways_gbytes(self) -> float:
        """As data sheets of NVLink have it: GB/s, both directions added."""
        return 2 * self.links * self.link_gbps / 8


NVLINK_PACKET = "16-byte flits, up to 256 bytes of data in a packet"
ASSUMED = "assumed: nobody publishes it"
ETHERNET_PHY = "FEC of a 200G lane"


def _nvlink(generation: int, title: str, links: int, link_gbps: int, domain_max: int, source: str) -> Technology:
    """PAM4 with FEC from the fourth generation on, which costs time."""
    return Technology(
        name=f"nvlink{generation}", title=title, links=links, link_gbps=link_gbps, domain_max=domain_max,
        link_ns=100 if generation < 4 else 150, switch_ns=100, packet=NVLINK_PACKET, source=source, latency_source=ASSUMED,
    )


PROFILES = {
    profile.name: profile
    for profile in (
        _nvlink(1, "NVLink 1, P100, 2016", 4, 160, 8, "160 GB/s both ways, 4 links; 8 in a cube mesh"),
        _nvlink(2, "NVLink 2, V100, 2017", 6, 200, 16, "300 GB/s both ways, 6 links; 16 behind the first NVSwitch"),
        _nvlink(3, "NVLink 3, A100, 2020", 12, 200, 8, "600 GB/s both ways, 12 links; 8 behind NVSwitch 2"),
        _nvlink(4, "NVLink 4, H100, 2022", 18, 200, 256, "900 GB/s both ways, 18 links; 8, or 256 with external switches"),
        _nvlink(5, "NVLink 5, B200, 2024", 18, 400, 576, "1,800 GB/s both ways, 18 links; 72 in a rack, 576 at most"),
        _nvlink(6, "NVLink 6, Rubin, 2026", 36, 400, 72, "3,600 GB/s both ways, 36 links; 72 in a rack"),
        Technology(
            name="ualink200", title="UALink 200G 1.0, 2025", links=12, link_gbps=800, link_ns=150, switch_ns=150, domain_max=1024,
            packet="64-byte TL flits in 640-byte DL flits; requests of 64 to 256 bytes",
            source="stations of 4 x 200G; how many is the accelerator's choice: 12 as with SUE; 10-bit identifiers",
            latency_source=f"switch of 25T: up to 150 ns; link assumed ({ETHERNET_PHY}), such that a round trip is under 1 us",
        ),
        Technology(
            name="sue", title="Broadcom Scale-Up Ethernet, 2025", links=12, link_gbps=800, link_ns=150, switch_ns=250,
            domain_max=1024, packet="Ethernet with a header of 10 bytes (AFH)",
            source="12 instances of 800G: 9.6 Tb/s between a pair of XPUs",
            latency_source=f"Tomahawk Ultra: 250 ns; link assumed ({ETHERNET_PHY}); the whole round trip is under 2 us",
        ),
        Technology(
            name="ub", title="Huawei UB, CloudMatrix384, 2025", links=14, link_gbps=224, link_ns=100, switch_ns=100,
            domain_max=384, packet="not published",
            source="392 GB/s one way from each NPU; two tiers of switches in 7 planes",
            latency_source="both assumed, such that a two-tier path is under the 1 us between nodes that Huawei states",
        ),
        Technology(
            name="infinity_fabric", title="AMD Infinity Fabric, MI300X, 2023", links=7, link_gbps=512, link_ns=100, switch_ns=100,
            domain_max=8, packet="not published", source="896 GB/s both ways, 7 links of 128; full mesh of 8, no switch",
            latency_source=ASSUMED,
        ),
    )
}


def profile(name: str) -> Technology:
    """UsageError if there is none of that name."""
    if name not in PROFILES:
        raise unknown("scale-up technology", name, PROFILES)
    return PROFILES[name]
