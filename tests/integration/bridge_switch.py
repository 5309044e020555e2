"""`mn --custom bridge_switch.py --switch bridge`: a switch that needs `ip` alone, no Open vSwitch and no brctl."""

from mininet.net import Mininet
from mininet.node import Switch

Mininet.inited = True  # its init() would raise limits of the whole machine


class Bridge(Switch):
    def start(self, _controllers):
        self.cmd(f"ip link add {self.name} type bridge && ip link set {self.name} up")
        for port in self.intfList():
            if port.name != "lo":
                self.cmd(f"ip link set {port.name} master {self.name} up")

    def stop(self, deleteIntfs=True):  # noqa: N803 (Mininet's name)
        self.cmd(f"ip link delete {self.name}")
        super().stop(deleteIntfs)


switches = {"bridge": Bridge}
