"""RDMA NICs: what puts packets on the wire. `crafted` sends packets that Scapy made; open loop, no reaction to marks."""
