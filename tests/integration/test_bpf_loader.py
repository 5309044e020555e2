"""Promises of the BPF loader: what it loads carries the run id and goes with it; a refusal says why in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emu.bpf import bpffs, build, loader
from emu.bpf.loader import Bpf
from emu.errors import MissingFeature, RailbedError, UsageError

pytestmark = pytest.mark.needs_root

READS_PAST_THE_PACKET = """
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("tc") int bad(struct __sk_buff *skb) { return *(unsigned char *)(long)skb->data; }
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""
DIES_LOADED = """
import os, signal, sys
from emu.bpf.loader import Bpf
Bpf(sys.argv[1]).load("counter")
os.kill(os.getpid(), signal.SIGKILL)
"""


def mounts() -> str:
    return Path("/proc/self/mounts").read_text()


def test_leaving_a_run_removes_its_pins_and_no_other_runs(run_id):
    with Bpf(f"{run_id}b") as other:
        other.load("counter")
        with Bpf(run_id) as ours:
            ours.load("counter")
            assert (bpffs.pins_of(run_id) / "counter" / "maps" / "nic_counters").exists()
        left = bpffs.pins_of(run_id).exists(), (bpffs.pins_of(other.run_id) / "counter").is_dir()
        assert left == (False, True), f"(ours still there, other still there) = {left}"
    assert run_id not in mounts()


def test_what_a_killed_process_had_loaded_is_removed_by_run_id(run_id):
    died = subprocess.run([sys.executable, "-c", DIES_LOADED, run_id], timeout=60, cwd=Path(build.__file__).parents[2])
    assert died.returncode == -signal.SIGKILL
    assert (bpffs.pins_of(run_id) / "counter").is_dir(), "the test must leave something to remove"
    loader.remove_pins(run_id)
    assert (bpffs.pins_of(run_id).exists(), run_id in mounts()) == (False, False)
    loader.remove_pins(run_id)  # nothing there is fine


def test_an_object_is_loaded_once_per_run(run_id):
    with Bpf(run_id) as bpf:
        assert bpf.load("counter") is bpf.load("counter")


def test_closing_gives_back_every_descriptor(run_id):
    before = os.listdir("/proc/self/fd")
    with Bpf(run_id) as bpf:
        bpf.load("counter")
        assert len(os.listdir("/proc/self/fd")) == len(before) + 3  # a program and two maps
    assert os.listdir("/proc/self/fd") == before


def test_a_program_that_the_verifier_refuses_is_reported_with_its_last_words(run_id, tmp_path, monkeypatch):
    (tmp_path / "bad.bpf.c").write_text(READS_PAST_THE_PACKET)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    verdict = "'bad': R1 offset is outside of the packet"
    with Bpf(run_id) as bpf, pytest.raises(MissingFeature, match=verdict) as refusal:
        bpf.load("bad")
    assert "\n" not in str(refusal.value)
    assert not bpffs.pins_of(run_id).exists()


@pytest.mark.parametrize(
    "ask, message",
    [
        (lambda bpf: bpf.load("countr"), "did you mean 'counter'"),
        (lambda bpf: bpf.load("counter").program_fd("count"), "did you mean 'counter'"),
        (lambda bpf: bpf.load("counter").map("nic_counter"), "did you mean 'nic_counters'"),
    ],
)
def test_a_name_that_is_not_there_is_met_with_the_nearest_that_is(run_id, ask, message):
    with Bpf(run_id) as bpf, pytest.raises(UsageError, match=message):
        ask(bpf)


def test_map_entries_come_back_as_they_were_set_however_many(run_id):
    """5,000 are several batches."""
    with Bpf(run_id) as bpf:
        counters = bpf.load("counter").map("nic_counters")
        assert (counters.read_all(), counters.read(7)) == ({}, None)
        for key in range(1, 5001):
            counters.update(key, packets=key, last_ns=(1 << 64) - key)
        found = counters.read_all()
        assert len(found) == 5000
        wrong = [key for key, value in found.items() if (value.packets, value.last_ns) != (key, (1 << 64) - key)]
        assert not wrong, f"{len(wrong)} of 5000 entries differ, first {wrong[0]}"
        assert counters.read(4242) == found[4242]


def test_a_map_whose_size_in_the_kernel_differs_from_the_header_is_refused(run_id, monkeypatch):
    sizes = loader.syscall.map_sizes
    monkeypatch.setattr(loader.syscall, "map_sizes", lambda fd: (sizes(fd)[0], sizes(fd)[1] + 8))
    with Bpf(run_id) as bpf, pytest.raises(RailbedError, match="maps.h says"):
        bpf.load("counter")


def test_asking_for_the_marker_leaves_no_trace():
    before = mounts(), sorted(os.listdir("/run/railbed")) if Path("/run/railbed").exists() else []
    reason = loader.marker_supported()
    assert reason is None or ("\n" not in reason and reason), reason
    after = mounts(), sorted(os.listdir("/run/railbed")) if Path("/run/railbed").exists() else []
    assert after == before
