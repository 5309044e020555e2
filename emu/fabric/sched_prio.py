"""Two bands for a NIC's queue: control before everything else.

The bands' own queues are as long as the interface's (txqueuelen), which only they use.
Source: linux/net/sched/sch_prio.c, uapi/linux/pkt_sched.h (struct tc_prio_qopt).
"""

from __future__ import annotations

BANDS, DATA_CLASS = 2, 2
TC_PRIO_CONTROL = 7  # nic.h, PRIORITY_CONTROL
PRIORITIES = 16
QUEUE_PACKETS = 1 << 20
OPTIONS = {"bands": BANDS, "priomap": tuple(0 if priority == TC_PRIO_CONTROL else 1 for priority in range(PRIORITIES))}
