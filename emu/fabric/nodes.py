"""Mininet's Node, Intf and Link over namespaces and veths that exist already; a shell starts when somebody asks for one.

Stock Mininet starts a shell per node and several processes per link, about 40 ms a host. Here a node is a name and a
namespace until its first command.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import socket
import struct
import termios
from typing import Any

from mininet.link import Intf, Link
from mininet.node import Node

from emu.fabric.netns import inside, name_of
from emu.fabric.registry import RUN_ENV
from emu.topology.plan import PortPlan

SIOCGIFFLAGS, IFF_UP = 0x8913, 1
SENTINEL = chr(127)  # Mininet's prompt: a command is done when it shows


class FabricNode(Node):
    """A server or switch. `netns` is the namespace's name."""

    def __init__(self, name: str, *, run_id: str, role: str) -> None:
        self.run_id, self.role = run_id, role
        self.netns = name_of(run_id, name)
        super().__init__(name, inNamespace=True)

    def startShell(self, mnopts: str | None = None) -> None:  # noqa: N802, ARG002 (Mininet's name)
        """Nothing yet: see `shell_started`."""

    def shell_started(self) -> None:
        """Start the node's shell unless it runs; Mininet's own, in a pty, but inside our namespace."""
        if self.shell:
            return
        command = ["nsenter", f"--net=/run/netns/{self.netns}", "mnexec", "-cd", "env", f"PS1={SENTINEL}",
                   f"{RUN_ENV}={self.run_id}", "bash", "--norc", "--noediting", "-is", f"mininet:{self.name}"]
        self.master, self.slave = pty.openpty()
        _no_echo(self.slave)
        self.shell = self._popen(command, stdin=self.slave, stdout=self.slave, stderr=self.slave, close_fds=False,
                                 env=os.environ | {RUN_ENV: self.run_id})
        self.stdin = self.stdout = os.fdopen(self.master, "r")
        self.pid = self.shell.pid
        self.pollOut = select.poll()
        self.pollOut.register(self.stdout)
        self.outToNode[self.stdout.fileno()] = self.inToNode[self.stdin.fileno()] = self
        self.readbuf = ""
        while not self.readbuf.endswith(SENTINEL):
            self.pollOut.poll()
            self.readbuf += self.decoder.decode(os.read(self.stdout.fileno(), 1024))
        self.readbuf, self.waiting = "", False
        self.cmd("unset HISTFILE; set +m")

    def sendCmd(self, *args: Any, **kwargs: Any) -> None:  # noqa: N802
        self.shell_started()
        super().sendCmd(*args, **kwargs)

    def cmd(self, *args: Any, **kwargs: Any) -> str | None:
        self.shell_started()
        return super().cmd(*args, **kwargs)

    def popen(self, *args: Any, **kwargs: Any) -> Any:
        """A process in the node's namespace that carries the run id; arguments as Mininet's popen."""
        kwargs.setdefault("env", os.environ | {RUN_ENV: self.run_id})
        kwargs["mncmd"] = ["nsenter", f"--net=/run/netns/{self.netns}"]
        return super().popen(*args, **kwargs)

    def defaultIntf(self) -> Intf | None:  # noqa: N802
        return self.intfs[min(self.intfs)] if self.intfs else None

    def terminate(self) -> None:
        if self.shell and self.shell.poll() is None:
            self.shell.kill()
        self.cleanup()


class FabricIntf(Intf):
    """A port that exists already; nothing is configured from here."""

    def __init__(self, node: FabricNode, plan: PortPlan) -> None:
        self.plan = plan
        self.node, self.name, self.link = node, plan.port.ifname, None
        self.mac, self.ip, self.prefixLen, self.params = plan.mac, plan.address, 31, {}
        node.addIntf(self, port=len(node.intfs), moveIntfFn=lambda *_args: None)

    def updateIP(self) -> str:  # noqa: N802
        """The plan's address: Mininet would start ifconfig for it."""
        return self.ip

    def isUp(self, setUp: bool = False) -> bool:  # noqa: N802, N803, ARG002
        with inside(self.node.netns), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            answer = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sH14x", self.name.encode(), 0))
        return bool(struct.unpack_from("H", answer, 16)[0] & IFF_UP)

    def status(self) -> str:
        return "OK" if self.isUp() else "DOWN"


class FabricLink(Link):
    """Two ports that are plugged together already."""

    def __init__(self, intf1: FabricIntf, intf2: FabricIntf) -> None:
        self.intf1, self.intf2 = intf1, intf2
        intf1.link = intf2.link = self

    def __str__(self) -> str:
        return f"{self.intf1.plan.port}<->{self.intf2.plan.port}"

    def delete(self) -> None:
        """Links go with their namespaces."""

    stop = delete


def _no_echo(terminal: int) -> None:
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
