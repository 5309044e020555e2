"""The live fabric: a mininet.net.Mininet whose nodes and links are made from a plan through netlink batches.

    with Fabric(make_plan(topology, seed), scale) as fabric:
        fabric.get("srv0").cmd("ping -c 1 10.0.0.3")

Leaving the block, an exception, Ctrl-C or a build that fails half-way removes everything; `railbed clean` does the same for
a process that was killed.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from mininet.net import Mininet

from emu.bpf.loader import Bpf
from emu.errors import MissingFeature
from emu.fabric import build, clean, host, queue, registry
from emu.fabric.marker import attach_markers, read_depths, read_marks
from emu.fabric.netlink import Netlink
from emu.fabric.nodes import FabricIntf, FabricLink, FabricNode
from emu.fabric.probe import probe, require_root
from emu.fabric.undisturbed import undisturbed
from emu.scale import Scale
from emu.topology.model import Port
from emu.topology.plan import Plan, PortPlan

Advance = Callable[[int], None]
Made = Callable[[], Mapping[str, int]]  # switch -> packets


class Fabric(Mininet):
    """Servers are Mininet hosts, switches Mininet switches; `ports` and `settings` give plan and queue by Port.

    made: packets that programs on a switch have made so far, less those they have taken in, as a cell fabric's do.
    """

    made: Made = dict

    def __init__(
        self, plan: Plan, scale: Scale, *, advance: Advance = lambda _steps: None, elided: bool = False, paced: bool = False
    ) -> None:
        """elided: frames may travel without payload (payload=elided); paced: NICs keep departure times, where fq exists."""
        require_root()
        Mininet.inited = True  # its init() would raise limits of the whole machine
        super().__init__(topo=None, build=False, controller=None)
        self.plan, self.scale, self._advance = plan, scale, advance
        self.run_id = registry.new_run_id()
        self.ports: dict[Port, PortPlan] = plan.ports
        self.marker = choose_marker(plan)
        require_delays(plan)
        self.elided, self.paced = elided, paced and probe().works("sch_fq")
        self.settings = {
            port: queue.setting(
                port_plan, scale, plan.frame_bytes, self.marker == "red", elided=plan.elided_sizes if elided else None,
                paced=self.paced and port_plan.queue is None,
                control_first=port_plan.queue is None and probe().works("sch_prio"),
            )
            for port, port_plan in self.ports.items()
        }
        self.knobs_compared = 0
        self._undo = ExitStack()

    def __enter__(self) -> Fabric:
        try:  # all is booked before it is done, and kept where stop() finds it: Ctrl-C may come between any two steps
            atexit.register(self.stop)  # for a Ctrl-C between the end of the block and stop()
            self._undo.callback(atexit.unregister, self.stop)
            self._undo.callback(host.restore_backlog)
            self._undo.callback(clean.remove_run, self.run_id)
            registry.register(self.run_id)
            host.raise_backlog()
            self._build(self._undo)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the fabric; a second call does nothing."""
        with undisturbed(), self._undo:
            for node in self.hosts + self.switches:
                node.terminate()

    @property
    def dilation(self) -> int:
        return self.scale.dilation

    def netlink(self, node: str) -> Netlink:
        """The netlink socket of a node's namespace."""
        return self._sockets[node]

    def bpf(self) -> Bpf:
        """Programs and maps of this run; what is loaded through it goes when the fabric goes."""
        return self._bpf

    def marks(self) -> dict[int, int]:
        """Interface number -> packets the BPF marker has marked; empty where RED marks and counts by itself."""
        return read_marks(self._bpf) if self.marker == "bpf" else {}

    def depths_found(self, port: Port) -> tuple[int, ...]:
        """Packets that found the queue of `port` in each depth bucket; empty where RED marks, which keeps no such account."""
        return read_depths(self._bpf, self.ports[port].ifindex) if self.marker == "bpf" else ()

    def limit_nic(self, nic: Port, rate_bps: int) -> None:
        """Make a NIC send at `rate_bps` (nominal): the rate limiter of the NIC's hardware, read back."""
        limited = queue.with_rate(self.settings[nic], self.scale.kernel_bps(rate_bps) // 8)
        queue.change_rate(self.netlink(nic.node), limited, str(nic))
        wrong = queue.mismatches([limited], queue.read(self.netlink(nic.node)), {limited.ifindex: str(nic)})
        build.refuse(wrong, nic.node)
        self.settings[nic] = limited

    def _build(self, undo: ExitStack) -> None:
        self._sockets = build.make_namespaces(self.plan, self.run_id, undo)
        self._bpf = undo.enter_context(Bpf(self.run_id))
        build.plug_cables(self.plan, self._sockets, self._advance)
        build.configure(self.plan, self.settings, self._sockets, self._advance)
        if self.marker == "bpf":
            attach_markers(self._bpf, self.plan, self._sockets)
        links = build.wait_until_running(self.plan, self._sockets)
        self.knobs_compared = build.read_back(self.plan, self.settings, self._sockets, links)
        self._register_with_mininet()
        host.fresh_randomness()

    def _register_with_mininet(self) -> None:
        intfs: dict[Port, FabricIntf] = {}
        for planned in self.plan.nodes:
            node = FabricNode(planned.name, run_id=self.run_id, role=planned.role)
            (self.switches if planned.forwards else self.hosts).append(node)
            self.nameToNode[planned.name] = node
            intfs |= {port.port: FabricIntf(node, port) for port in planned.ports}
        self.links = [FabricLink(intfs[cable.a], intfs[cable.b]) for cable in self.plan.topology.links]


def require_delays(plan: Plan) -> None:
    """MissingFeature if a link has a delay and this kernel has no netem to make it."""
    delayed = next((link for link in plan.topology.links if link.delay_ns), None)
    if delayed and (lacks := probe().lacks("sch_netem")):
        raise MissingFeature(
            f"link {delayed.a} - {delayed.b} has delay_ns={delayed.delay_ns}, but this kernel has no sch_netem ({lacks}); "
            "use delay_ns=0, or --clock virtual"
        )


def choose_marker(plan: Plan) -> str:
    """What marks ECN here: "red", "bpf", or "none" where no queue asks for marks; MissingFeature if nothing can."""
    if not any(port.queue and port.queue.ecn for node in plan.nodes for port in node.ports):
        return "none"
    found = probe()
    if found.works("sch_red"):
        return "red"
    if found.works("bpf_marker"):
        return "bpf"
    raise MissingFeature(
        f"this kernel cannot mark ECN: no sch_red ({found.lacks('sch_red')}), no BPF marker ({found.lacks('bpf_marker')}); "
        "use --clock virtual"
    )
