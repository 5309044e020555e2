"""What the descriptions of fat trees, tori and dragonflies have in common: every NIC of a server goes to one switch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emu.errors import TopologyError
from emu.topology.model import Link, Port, Server, Switch, Topology, nic
from emu.topology.naming import ifname
from emu.topology.queue_profile import QueueProfile


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rates in bit/s, delays in ns, one way; the same for every cable."""

    gpus_per_server: int
    rate_bps: int
    queue: QueueProfile
    delay_ns: int = 0
    path_mtu_bytes: int = 4096

    def need_at_least(self, **minimums: int | None) -> None:
        """TopologyError for a field that is smaller."""
        for field, minimum in minimums.items():
            if getattr(self, field) < minimum:
                raise TopologyError(f"{field}={getattr(self, field)}; want at least {minimum}")

    def need_whole_servers(self, what: str, nics: int) -> None:
        """TopologyError if the `nics` under one switch, which the field `what` says, are no whole servers."""
        if nics % self.gpus_per_server:
            raise TopologyError(
                f"{what} puts {nics} NICs under a switch, no multiple of gpus_per_server={self.gpus_per_server}: a server's "
                f"NICs all go to one switch; {max(1, nics // self.gpus_per_server) * self.gpus_per_server} would fit"
            )

    def link(self, a: Port, b: Port, cost: int = 1) -> Link:
        return Link(a=a, b=b, rate_bps=self.rate_bps, delay_ns=self.delay_ns, cost=cost)

    def built(self, name: str, switches: Iterable[Switch], nics: Mapping[str, int], cables: Iterable[Link]) -> Topology:
        """Servers in the order of `nics` (switch -> NICs under it); links in the order NICs, `cables`."""
        under = [(switch, place) for switch, count in nics.items() for place in range(count)]
        gpus = self.gpus_per_server
        return Topology(
            name=name,
            servers=tuple(Server(name=f"srv{number}", gpus=gpus) for number in range(len(under) // gpus)),
            switches=tuple(switches),
            links=(
                *(self.link(nic(*divmod(number, gpus)), Port(switch, ifname("down", place)))
                  for number, (switch, place) in enumerate(under)),
                *cables,
            ),
            queue=self.queue,
            path_mtu_bytes=self.path_mtu_bytes,
        )
