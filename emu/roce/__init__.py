"""RoCEv2 on the wire: headers, invariant CRC, PSN arithmetic, packet builders and the receiving side.

Importing this package stays cheap: only `headers` and `packets` import Scapy (0.3 s), the rest reads and writes bytes.
"""
