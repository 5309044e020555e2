"""Carrying out a plan: one netlink batch per namespace and step, then everything read back and compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

from emu.errors import FabricError
from emu.fabric import link, netns, queue, routes
from emu.fabric.netlink import Batch, Netlink
from emu.fabric.queue import QueueSetting
from emu.fabric.wait import wait_until_empty
from emu.topology.model import Port
from emu.topology.plan import NodePlan, Plan

# A kernel before 6.11 has no per-namespace seed; the fidelity check says so where it matters (ECMP over two tiers)
OPTIONAL_KNOBS = frozenset({"ipv4/fib_multipath_hash_seed", "core/rps_default_mask"})
MISMATCHES_SHOWN = 3
UP_TIMEOUT_S, UP_PORT_S = 30.0, 0.02  # the kernel activates a hundred a second at worst (net/core/link_watch.c)
Sockets = dict[str, Netlink]
LinkStates = dict[str, dict[int, link.LinkState]]  # node -> interface number -> state


def make_namespaces(plan: Plan, run_id: str, undo: ExitStack) -> Sockets:
    """A namespace and its netlink socket per node, with the knobs that must be set before the first link."""
    sockets: Sockets = {}
    for node in plan.nodes:
        name = netns.name_of(run_id, node.name)
        netns.create(name)
        undo.callback(netns.remove, name)
        with netns.inside(name):
            refuse(routes.set_knobs(routes.knobs(node), OPTIONAL_KNOBS), node.name)
        sockets[node.name] = undo.enter_context(Netlink(name))
    return sockets


def plug_cables(plan: Plan, sockets: Sockets, advance: Callable[[int], None]) -> None:
    """Every veth pair, sent in the namespace of its first end."""
    ports = plan.ports
    batches = {node.name: Batch() for node in plan.nodes}
    with ExitStack() as open_namespaces:
        descriptors = {name: _namespace(netlink, open_namespaces) for name, netlink in sockets.items()}
        for cable in plan.topology.links:
            a, b = ports[cable.a], ports[cable.b]
            link.create_pair(batches[cable.a.node], a, b, descriptors[cable.b.node], plan.link_mtu_bytes)
        for name, batch in batches.items():
            sockets[name].run(batch)
            advance(len(batch))


def configure(plan: Plan, settings: dict[Port, QueueSetting], sockets: Sockets, advance: Callable[[int], None]) -> None:
    """Addresses, neighbours, queues, routes and rules, and offloads off."""
    for node in plan.nodes:
        batch = Batch()
        link.bring_up(batch, link.LO_IFINDEX, "lo")
        for port in node.ports:
            queue.install(batch, settings[port.port], str(port.port))  # while down: no grace period to wait for
            link.bring_up(batch, port.ifindex, str(port.port))
            routes.address_and_neighbour(batch, port)
        for route in node.routes:
            routes.route(batch, node, route)
        for rail, table in node.rail_tables:
            routes.rail_rules(batch, rail, table)
        sockets[node.name].run(batch)
        with netns.inside(sockets[node.name].netns):
            link.offloads_off(port.port.ifname for port in node.ports)
        advance(len(node.ports))


def wait_until_running(plan: Plan, sockets: Sockets) -> LinkStates:
    """The kernel activates a port's queue in the background once both ends of its cable are up, up to a second later.

    Returns every node's links as they were when its last one came up.
    """
    states: LinkStates = {}
    waiting = list(plan.nodes)

    def not_running() -> list[str]:
        states.update({node.name: link.read(sockets[node.name]) for node in waiting})
        down = {node: link.not_running(node.ports, states[node.name]) for node in waiting}
        waiting[:] = [node for node, ports in down.items() if ports]
        return [port for ports in down.values() for port in ports]

    wait_until_empty(not_running, UP_TIMEOUT_S + UP_PORT_S * len(plan.ports), "ports up")
    return states


def read_back(plan: Plan, settings: dict[Port, QueueSetting], sockets: Sockets, links: LinkStates) -> int:
    """Compare every link, queue and route with the plan; FabricError names the first that differ. Returns how many."""
    compared = 0
    for node in plan.nodes:
        differences = _differences(plan, node, settings, sockets[node.name], links[node.name])
        refuse(list(differences), node.name)
        compared += 2 * len(node.ports) + len(node.routes)
    return compared


def _differences(
    plan: Plan, node: NodePlan, settings: dict[Port, QueueSetting], netlink: Netlink, links: Mapping[int, link.LinkState]
) -> Iterator[str]:
    names = {port.ifindex: str(port.port) for port in node.ports}
    yield from link.mismatches(node.ports, links, plan.link_mtu_bytes)
    yield from queue.mismatches([settings[port.port] for port in node.ports], queue.read(netlink), names)
    yield from routes.mismatches(node, netlink)


def refuse(lines: list[str], node: str) -> None:
    """FabricError that shows the first of `lines`; nothing if there are none."""
    if lines:
        more = f" (and {len(lines) - MISMATCHES_SHOWN} more)" if len(lines) > MISMATCHES_SHOWN else ""
        raise FabricError(f"{node} is not as planned: {'; '.join(lines[:MISMATCHES_SHOWN])}{more}")


def _namespace(netlink: Netlink, open_namespaces: ExitStack) -> int:
    descriptor = os.open(netns.NETNS_DIR / netlink.netns, os.O_RDONLY | os.O_CLOEXEC)
    open_namespaces.callback(os.close, descriptor)
    return descriptor
