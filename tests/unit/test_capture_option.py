"""Promises about `--set capture=`: what can't be captured is refused before anything is built, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from emu.errors import UsageError
from emu.scenario import capture, parameters
from emu.topology.queue_profile import QueueProfile
from emu.topology.spine_leaf import SpineLeaf

TOPOLOGY = SpineLeaf(servers=2, gpus_per_server=1, wiring="rail", leaf_down=2, leaf_up=0, rate_bps=400_000_000_000,
                     queue=QueueProfile(buffer_bytes=1 << 20)).topology()


def asked(text: str):
    return next(parameters.select("mtu").choose([f"capture={text}"]).combinations())


def test_ports_of_the_cluster_joined_by_plus_are_accepted_and_none_is_the_default():
    capture.check(asked("srv0:rail0+leaf0:down1"), TOPOLOGY, Path("out"))
    capture.check(next(parameters.select("mtu").choose().combinations()), TOPOLOGY, None)


@pytest.mark.parametrize(("text", "out", "said"), [
    ("srv0:rail0", None, "give the folder with --out DIR"),
    ("srv0:rail1", Path("out"), "no port 'srv0:rail1'; ports are NODE:INTERFACE joined by +, such as 'srv0:rail0'"),
    ("srv0:rail0+", Path("out"), "no port ''"),
    ("nonsense", Path("out"), "no port 'nonsense'"),
])
def test_what_cannot_be_captured_is_refused_in_one_line(text, out, said):
    with pytest.raises(UsageError) as caught:
        capture.check(asked(text), TOPOLOGY, out)
    assert said in str(caught.value) and "\n" not in str(caught.value)
