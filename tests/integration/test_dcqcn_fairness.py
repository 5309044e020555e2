"""Promises of the scenario dcqcn_fairness as a user runs it: parameters reach the NICs, and what is drawn is what happened."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs_red  # and with it, in the lab kernel, fq and the virtual clock
KMAX_BYTES = 3_200_000
SHORT = ("size_bytes=64MiB", "flows=8")


def rows_of(run_scenario, *settings):
    exit_code, result = run_scenario("dcqcn_fairness", *settings)
    assert result.valid, f"exit {exit_code}: {[check.name for check in result.failed_checks]}"
    return result.rows


def test_dcqcn_keeps_the_queue_under_kmax_and_without_it_the_same_flows_do_not(run_scenario):
    settings = (*SHORT, "window_packets=128", "cc=dcqcn,none")
    controlled, free = rows_of(run_scenario, *settings)
    assert controlled["depth_max_bytes"] < KMAX_BYTES < free["depth_max_bytes"], (
        f"deepest after the start: {controlled['depth_max_bytes']} with, {free['depth_max_bytes']} without DCQCN")
    assert controlled["cnp_packets"] > 0 and free["cnp_packets"] == 0, (controlled["cnp_packets"], free["cnp_packets"])
    assert controlled["used_share"] >= 0.95, f"{controlled['used_share']:.1%} of the line used"


def test_go_back_n_repeats_what_had_arrived_and_selective_repeat_what_was_lost(run_scenario):
    settings = (*SHORT, "cc=none", "buffer_bytes=2MiB", "kmax_bytes=1600000", "transport=gbn,sr", "rto_us=200")
    gbn, sr = rows_of(run_scenario, *settings)
    needless = sr["retransmitted_packets"] / sr["dropped_packets"] - 1
    assert 0 <= needless < 0.02, f"sr: {sr['retransmitted_packets']} sent again for {sr['dropped_packets']} dropped"
    assert gbn["retransmitted_packets"] > 1.5 * gbn["dropped_packets"] > 0, (
        f"gbn: {gbn['retransmitted_packets']} sent again for {gbn['dropped_packets']} dropped")


def test_payload_elided_and_full_give_the_same_figures_to_the_digit(run_scenario):
    elided, full = rows_of(run_scenario, "size_bytes=16MiB", "flows=8", "payload=elided,full")
    assert elided.pop("payload") != full.pop("payload")
    different = {key: (elided[key], full[key]) for key in elided if elided[key] != full[key]}
    assert not different, different


@pytest.mark.needs_tshark
def test_a_captured_port_shows_every_packet_that_its_queue_sent(run_scenario, tmp_path: Path):
    row, = rows_of(run_scenario, "size_bytes=1MiB", "flows=1", "sample_us=1", "capture=srv0:rail0")
    asked = ["tshark", "-r", str(tmp_path / "srv0-rail0.pcapng"), "-Y", "infiniband.bth.opcode == 11", "-T", "fields", "-e",
             "frame.time_relative", "-e", "frame.len"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]
    times_s, lengths = zip(*(line.split("\t") for line in shown), strict=True)
    assert len(shown) == row["delivered_packets"] == 256, f"{len(shown)} captured, {row['delivered_packets']} delivered"
    assert set(lengths) == {"4174"}, f"original lengths {set(lengths)}"
    took_us = 1e6 * (float(times_s[-1]) - float(times_s[0]))
    wanted_us = 255 * 4174 * 8 / 400e3
    assert abs(took_us / wanted_us - 1) < 0.01, f"last packet {took_us} us after the first, want {wanted_us} us"
