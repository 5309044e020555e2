"""The controller of path navigation: it is told every connection before the first packet, and gives each its uplink.

    controller = PathController(fabric.plan, messages)
    with controller.mode.install(fabric) as lb:
        controller.follow(lb)           # then it may also be a follower of LinkEvents

Each direction of a connection that carries data is a flow of its own; acknowledgements and credits take the way back of
the data's path, so that they meet no other flow either. Source: reference article (the collective library reports its
connections to the controller at set-up).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emu.errors import TopologyError
from emu.nic.message import Message, Messages
from emu.nic.work_request import ends_of
from emu.switch.flow_table import FlowPath, FlowTable, set_paths
from emu.switch.leaves import Leaf, leaf_of_nic, leaves
from emu.switch.mode import Installed
from emu.switch.path_navigation import Connection, Navigation, Uplinks, navigate, reroute
from emu.topology.plan import Plan, Route

DATA_MIN_BYTES = 4096  # a direction with less in all is credits: it goes back where the data came from


class PathController:
    """`connections` as reported; `uplinks`: which are up; `navigation`: the paths now, with the load that they promise;
    `moved`: how many flows have been moved since the start."""

    def __init__(self, plan: Plan, messages: Sequence[Message]) -> None:
        self._leaves: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves(plan)}
        self._leaf_of = leaf_of_nic(self._leaves.values())
        reported = Messages.of(messages)
        self._ends = ends_of(reported)
        self.connections = list(self._report(reported))
        self.uplinks = _uplinks(self._leaves)
        self._installed: Installed | None = None
        self.navigation: Navigation = navigate(self.connections, self.uplinks)
        self.moved = 0

    @property
    def mode(self) -> FlowTable:
        return FlowTable(tuple(self._flow_paths(self._ends)))

    def follow(self, installed: Installed) -> None:
        """Tell this switch program of later changes."""
        self._installed = installed

    def reroute(self, routes: Mapping[str, Sequence[Route]]) -> None:
        """Routes have changed because links went down or came up: move the flows whose path is dead, or back."""
        failed = set(self.uplinks.failed)
        for name, leaf in self._leaves.items():
            if name in routes:
                alive = {ifname for route in routes[name] for ifname in route.via}
                failed -= {(name, slot) for slot in range(len(leaf.up))}
                failed |= {(name, slot) for slot, port in enumerate(leaf.up) if port.port.ifname not in alive}
        if failed == self.uplinks.failed:
            return
        self.uplinks = Uplinks(self.uplinks.per_leaf, self.uplinks.spines, frozenset(failed))
        self.navigation = reroute(self.navigation, self.connections, self.uplinks)
        self.moved += len(self.navigation.moved)
        if self._installed:
            keys = {key for source, target, channel in self.navigation.moved
                    for key in ((source, target, channel), (target, source, channel))}
            set_paths(self._installed.tables, self.mode, self._flow_paths(key for key in self._ends if key in keys))

    def _report(self, messages: Messages):
        sizes = messages.connection_bytes
        for key, size_bytes in sizes.items():
            if size_bytes >= DATA_MIN_BYTES or (key[1], key[0], key[2]) not in sizes:
                yield Connection(key, self._leaf_of[key[0]], self._leaf_of[key[1]], size_bytes)

    def _flow_paths(self, keys):
        """Both directions of every connection among `keys` that leaves its leaf."""
        paths = self.navigation.paths
        for key in keys:
            source, target, channel = key
            path = paths.get(key) or paths.get((target, source, channel))
            if path:
                uplink = self._leaves[self._leaf_of[source]].up[path.uplink].port
                back = self._ends[target, source, channel]
                yield FlowPath(source=source, target=target, source_qp=self._ends[key].qpn, target_qp=back.qpn, uplink=uplink)


def _uplinks(by_name: Mapping[str, Leaf]) -> Uplinks:
    """TopologyError unless every leaf has as many uplinks to the same spines."""
    spines = {tuple(port.peer.node for port in leaf.up) for leaf in by_name.values()}
    if len(spines) != 1:
        raise TopologyError("lb=path wants a Spine-Leaf fabric whose leaves all have the same uplinks; use lb=ecmp or spray here")
    only = next(iter(spines))
    return Uplinks(per_leaf=len(only), spines=len(set(only)))
