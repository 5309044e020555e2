"""Railbed: a packet-level emulator of AI-cluster fabrics on real Linux networking.

Folders in reading order, which is import order (a test enforces it): topology, roce (both pure), fabric, bpf,
nic, measure, report, scenario, lab, and the command line last.
"""

__version__ = "0.1.0"
