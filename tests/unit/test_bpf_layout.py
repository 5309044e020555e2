"""Promises of the BPF build and of the layout read from it: maps.h is the only description, and built once."""

from __future__ import annotations

import shutil
import struct
import threading

import pytest

from emu.bpf import bpffs, build, layout, loader, marker, tools
from emu.bpf.layout import Field, Layout
from emu.errors import FabricError, MissingFeature, UsageError

U64, U32 = 8, 4


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A copy of the sources that a test may change, with the two programs that compile fast, and a cache of its own."""
    copy = tmp_path / "sources"
    left_out = ("*.py", "__pycache__", "nic.bpf.c", "switch.bpf.c", "ddc.bpf.c")
    shutil.copytree(build.SOURCES, copy, ignore=shutil.ignore_patterns(*left_out))
    monkeypatch.setattr(build, "SOURCES", copy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return copy


@pytest.fixture(scope="module")
def maps():
    return layout.read_maps(build.object_path("marker")) | layout.read_maps(build.object_path("counter"))


@pytest.mark.parametrize(
    "name, size, first, last",
    [
        ("port_config", 24, Field("rng_state", 0, U64), Field("bucket_bytes", 20, U32)),
        ("port_counters", 80, Field("packets", 0, U64), Field("depth_max_bytes", 72, U64)),
        ("port_depth", 1024, Field("seen", 0, U64, 64), Field("chosen", 512, U64, 64)),
        ("nic_config", 4, Field("pass_roce", 0, U32), Field("pass_roce", 0, U32)),
        ("nic_counters", 88, Field("packets", 0, U64), Field("last_ns", 80, U64)),
    ],
)
def test_every_map_is_laid_out_as_the_c_structure(maps, name, size, first, last):
    value = maps[name].value
    assert (maps[name].key_size, value.size) == (U32, size)
    assert (value.fields[0], value.fields[-1]) == (first, last)
    assert sum(field.size for field in value.fields) == size, f"{name} has padding"


def test_there_is_no_map_without_a_layout(maps):
    assert set(maps) == {"port_config", "port_counters", "port_depth", "nic_config", "nic_counters"}


def test_values_are_packed_as_the_compiler_lays_them_out(maps):
    value = maps["port_config"].value
    fields = {"rng_state": 1 << 63, "kmin_bytes": 2, "kmax_bytes": 3, "pmax": (1 << 32) - 1, "bucket_bytes": 5}
    packed = struct.pack("=QIIII", 1 << 63, 2, 3, (1 << 32) - 1, 5)
    assert value.pack(**fields) == packed
    assert value.unpack(packed)._asdict() == fields
    assert value.pack(pmax=7) == struct.pack("=QIIII", 0, 0, 0, 7, 0), "a field that isn't named must be 0"


def test_padding_and_arrays_keep_their_places():
    gaps = Layout("gaps", 24, (Field("a", 0, 1), Field("b", 4, 2, 3), Field("c", 16, 4)))
    packed = gaps.pack(a=1, b=[2, 3, 4], c=5)
    assert packed == b"\1\0\0\0" + struct.pack("=3H", 2, 3, 4) + bytes(6) + struct.pack("=I", 5) + bytes(4)
    assert gaps.unpack(packed) == (1, (2, 3, 4), 5)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"kmin_bytes": 1 << 32}, r"port_config.kmin_bytes=4294967296 does not fit; want 0 to 4294967295"),
        ({"kmin_bytes": -1}, r"port_config.kmin_bytes=-1 does not fit"),
        ({"kmin_byte": 1}, r"unknown field of port_config 'kmin_byte' \(did you mean 'kmin_bytes'\?\)"),
    ],
)
def test_a_value_that_the_structure_cannot_hold_is_refused(maps, fields, message):
    with pytest.raises(UsageError, match=message):
        maps["port_config"].value.pack(**fields)


def test_an_array_of_the_wrong_length_is_refused(maps):
    with pytest.raises(UsageError, match="port_depth.seen has 63 items; want 64"):
        maps["port_depth"].value.pack(seen=[0] * 63)


def test_python_follows_a_change_of_the_header(sources):
    header = sources / "maps.h"
    header.write_text(header.read_text().replace("__u32 pass_roce;", "__u64 added; __u32 pass_roce;"))
    value = layout.read_maps(build.object_path("counter"))["nic_config"].value
    assert (value.size, value.fields) == (16, (Field("added", 0, U64), Field("pass_roce", 8, U32)))


def test_a_header_field_that_python_would_misread_is_refused(sources):
    header = sources / "maps.h"
    header.write_text(header.read_text().replace("__u32 pass_roce;", "__s32 pass_roce;"))
    with pytest.raises(FabricError, match="nic_config.pass_roce in maps.h is no unsigned integer"):
        layout.read_maps(build.object_path("counter"))


def test_only_the_marker_leans_on_the_kernels_own_types():
    """The counter and the NIC must load into a kernel without BTF; kernel functions and relocated structures would need it."""
    kernel_types = {"sk_buff", "net_device", "Qdisc", ".ksyms"}
    leans = {
        name: {entry.get("name") for entry in layout.read_btf(build.object_path(name)).values()} & kernel_types
        for name in build.names()
    }
    assert leans == {"counter": set(), "marker": kernel_types, "nic": set(), "switch": set(), "ddc": set()}


def test_a_second_build_compiles_nothing(sources, monkeypatch):
    first = build.build()
    assert sorted(path.name for path in first.iterdir()) == ["counter.o", "marker.o"]
    monkeypatch.setattr(tools, "run", lambda *_: pytest.fail("something was run for a build that has nothing to do"))
    assert build.build() == first


@pytest.mark.parametrize("name", ["maps.h", "packet.h", "marker.bpf.c"])
def test_a_changed_source_is_built_anew_beside_the_old(sources, name):
    before = build.build()
    (sources / name).write_text((sources / name).read_text() + "\n")
    after = build.build()
    assert after != before and before.is_dir() and (after / "marker.o").is_file()


def test_a_failed_build_leaves_nothing_and_shows_the_first_error(sources):
    (sources / "marker.bpf.c").write_text("int broken(void) { return missing; }\n")
    with pytest.raises(FabricError, match=r"marker.bpf.c does not compile: .*:1:\d+: error: .*'missing'"):
        build.build()
    assert list(build.cache_dir().iterdir()) == []


def test_builds_at_the_same_time_end_with_one_whole_folder(sources):
    results = []
    builders = [threading.Thread(target=lambda: results.append(build.build())) for _ in range(4)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert len(results) == 4 and list(build.cache_dir().iterdir()) == [results[0]]
    assert sorted(path.name for path in results[0].iterdir()) == ["counter.o", "marker.o"]


def test_a_missing_compiler_is_named_with_the_command_that_installs_it(sources, monkeypatch):
    monkeypatch.setattr(tools, "ADMIN_PATH", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingFeature, match=r"clang is not installed; .*\./lab setup"):
        build.build()


def test_an_unknown_program_is_met_with_the_known_ones():
    with pytest.raises(UsageError, match="unknown BPF program 'markr'.*allowed: counter, ddc, marker"):
        build.object_path("markr")


@pytest.mark.parametrize(
    "log, words",
    [
        (
            "libbpf: prog 'bad': BPF program load failed: Permission denied\n"
            "libbpf: prog 'bad': -- BEGIN PROG LOAD LOG --\n0: (71) r0 = *(u8 *)(r1 +0)\n"
            "R1 invalid mem access 'scalar'\nprocessed 2 insns (limit 1000000) max_states_per_insn 0\n"
            "-- END PROG LOAD LOG --\nlibbpf: failed to load program 'bad'\nError: failed to load object file\n",
            "R1 invalid mem access 'scalar'",
        ),
        (
            "libbpf: extern (func ksym) 'bpf_cast_to_kern_ctx': not found in kernel or module BTFs\n"
            "libbpf: failed to load object 'marker.o'\nError: failed to load object file\n",
            "extern (func ksym) 'bpf_cast_to_kern_ctx': not found in kernel or module BTFs",
        ),
        ("mount: /sys/fs/bpf: permission denied.\n", "mount: /sys/fs/bpf: permission denied."),
        ("", "bpftool gave no reason"),
    ],
)
def test_the_last_words_of_a_refusal_are_the_ones_that_say_why(log, words):
    assert loader.last_words(log) == words


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "../etc", "A", "x" * 33])
def test_a_run_id_that_would_lead_out_of_our_folder_is_refused(run_id):
    with pytest.raises(UsageError, match="run id"):
        bpffs.pins_of(run_id)
    assert bpffs.pins_of("0a1b2c").name == "bpf-0a1b2c"


@pytest.mark.parametrize(
    "pmax, units", [(0, 0), (2**-32, 1), (0.05, 214_748_365), (0.5, 1 << 31), (1, (1 << 32) - 1)]
)
def test_the_probability_reaches_the_marker_in_units_of_2_to_the_minus_32(pmax, units):
    assert marker.probability_units(pmax) == units


@pytest.mark.parametrize("pmax", [-0.1, 1.1, float("nan")])
def test_what_is_no_probability_is_refused(pmax):
    with pytest.raises(UsageError, match="pmax=.*want 0 to 1"):
        marker.probability_units(pmax)
