"""Promises about the messages that make queues: what is encoded is what the kernel reads, at any rate to 1.6 Tb/s."""

from __future__ import annotations

import struct

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from emu.fabric import queue, sched_netem, sched_red, sched_tbf
from emu.units import gbps

U32_MAX = (1 << 32) - 1
BURST_BYTES, LIMIT_BYTES = 4174, 16 << 20
RED = {"limit": 1 << 24, "qmin": 100_000, "qmax": 400_000, "max_p": 429_496_730, "ecn": True}


def through_the_wire(kind: str, options: dict) -> tcmsg:
    """The message as bytes and decoded from them, by the plugins that emu.fabric.queue has registered with pyroute2."""
    assert queue.plugins[kind] in (sched_netem, sched_red, sched_tbf), f"{kind} is not our plugin"
    sent = tcmsg()
    sent["index"], sent["handle"], sent["parent"] = 7, queue.TBF_HANDLE, 0xFFFFFFFF
    sent["attrs"] = [("TCA_KIND", kind), ("TCA_OPTIONS", options)]
    sent.encode()
    received = tcmsg(sent.data)
    received.decode()
    assert (received["index"], received["handle"], received.get_attr("TCA_KIND")) == (7, queue.TBF_HANDLE, kind)
    return received.get_attr("TCA_OPTIONS")


def tbf(rate_bytes: int) -> tcmsg:
    return through_the_wire(
        "tbf", sched_tbf.get_parameters({"rate": rate_bytes, "burst": BURST_BYTES, "limit": LIMIT_BYTES})
    )


@pytest.mark.parametrize("rate_gbps", [1, 10, 34, 35, 40, 100, 400, 800, 1600])
def test_a_line_rate_keeps_every_byte_a_second(rate_gbps):
    """34.4 Gb/s is where bytes/s leave 32 bits: above it the 64-bit attribute is there, and the old field is full."""
    rate_bytes = gbps(rate_gbps) // 8
    options = tbf(rate_bytes)
    rate, rate64 = options.get_attr("TCA_TBF_PARMS")["rate"], options.get_attr("TCA_TBF_RATE64")
    assert (rate, rate64) == ((rate_bytes, None) if rate_gbps <= 34 else (U32_MAX, rate_bytes))


@pytest.mark.parametrize(("rate_bytes", "rate64"), [(U32_MAX - 1, None), (U32_MAX, None), (U32_MAX + 1, U32_MAX + 1)])
def test_the_64_bit_rate_begins_exactly_where_32_bits_end(rate_bytes, rate64):
    options = tbf(rate_bytes)
    assert options.get_attr("TCA_TBF_RATE64") == rate64
    assert options.get_attr("TCA_TBF_PARMS")["rate"] == min(rate_bytes, U32_MAX)


def test_burst_and_limit_are_bytes_to_the_last_one():
    options = tbf(50_000_000)
    assert options.get_attr("TCA_TBF_BURST") == BURST_BYTES
    assert options.get_attr("TCA_TBF_PARMS")["limit"] == LIMIT_BYTES


@pytest.mark.parametrize("rate_bytes", [1, 125_000, 50_000_000, gbps(1600) // 8])
def test_the_bucket_in_ticks_is_never_smaller_than_the_burst(rate_bytes):
    """Rounded down, a burst of one frame would not hold the frame and nothing would ever be sent."""
    ticks = tbf(rate_bytes).get_attr("TCA_TBF_PARMS")["buffer"]
    assert ticks == U32_MAX or ticks * sched_tbf.NS_PER_TICK * rate_bytes >= BURST_BYTES * 1_000_000_000, ticks


def test_the_tbf_structure_is_as_long_as_the_kernels():
    """struct tc_tbf_qopt: two struct tc_ratespec of 12 bytes and three words. Source: uapi/linux/pkt_sched.h."""
    assert struct.calcsize("=" + "".join(letter for _, letter in sched_tbf.options.tbf_parms.fields)) == 12 + 12 + 3 * 4


def test_red_keeps_thresholds_probability_and_the_ecn_flag_and_follows_the_queue_at_once():
    options = through_the_wire("red", sched_red.get_parameters(RED))
    parms = dict(options.get_attr("TCA_RED_PARMS"))
    want = {"limit": 1 << 24, "qth_min": 100_000, "qth_max": 400_000, "wlog": 0, "flags": sched_red.TC_RED_ECN}
    assert {knob: parms[knob] for knob in want} == want
    assert options.get_attr("TCA_RED_MAX_P") == 429_496_730
    assert options.get_attr("TCA_RED_STAB") == bytes([31]) * 256


def test_red_without_ecn_has_no_flag():
    parms = through_the_wire("red", sched_red.get_parameters(RED | {"ecn": False})).get_attr("TCA_RED_PARMS")
    assert parms["flags"] == 0


def test_the_red_structures_are_as_long_as_the_kernels():
    """struct tc_red_qopt: three words and four bytes; struct tc_red_xstats: four words."""
    lengths = [
        struct.calcsize("=" + "".join(letter for _, letter in structure.fields))
        for structure in (sched_red.options.red_parms, sched_red.stats)
    ]
    assert lengths == [16, 16]


@pytest.mark.parametrize("delay_ns", [1, 63, 50_123, 10**10])
def test_a_delay_is_kept_to_the_nanosecond(delay_ns):
    """pyroute2's own plugin counts in microseconds, the kernel's older field in ticks of 64 ns up to 275 s."""
    options = through_the_wire("netem", sched_netem.get_parameters({"delay_ns": delay_ns, "limit": 1000}))
    assert (options.get_attr("TCA_NETEM_LATENCY64"), options["limit"]) == (delay_ns, 1000)


@pytest.mark.parametrize("plugin", [sched_tbf, sched_red, sched_netem], ids=["tbf", "red", "netem"])
def test_a_delete_needs_no_options(plugin):
    assert plugin.get_parameters({}) == {"attrs": []}


@pytest.mark.parametrize(
    ("plugin", "ours"),
    [(sched_tbf, {"rate": 1, "burst": 2, "limit": 3}), (sched_red, RED), (sched_netem, {"delay_ns": 1, "limit": 2})],
    ids=["tbf", "red", "netem"],
)
def test_a_request_keeps_only_what_the_message_itself_has_a_field_for(plugin, ours):
    request = {"index": 7, "handle": 0x10000} | ours
    plugin.fix_request(request)
    assert request == {"index": 7, "handle": 0x10000}
