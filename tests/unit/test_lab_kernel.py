"""Promises of the lab kernel's build that hold without compiling anything: `make` is a script of the test's own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from emu.errors import FabricError, MissingFeature, UsageError
from emu.lab import build, guest, kernel, memory, source
from emu.lab.patches import PATCHES, Patch, apply_patch

PATCH = Patch(name="finer", file="a/time.h", old="#define DELTA 500\n", new="#define DELTA 1\n", why="test")
WAIT_S = 20
FAKE_MAKE = """#!/bin/sh
for word; do case $word in
  KCONFIG_ALLCONFIG=*) cp "${word#*=}" .config ;;
  linux) echo linux >>"$CALLS_FILE"; MODE_COMMANDS ;;
esac; done
"""


def tree_with(tmp_path: Path, text: str) -> Path:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "time.h").write_text(text)
    return tmp_path


def test_a_patch_that_fits_changes_its_text_and_nothing_else(tmp_path):
    tree = tree_with(tmp_path, "before\n#define DELTA 500\nafter\n")
    apply_patch(tree, "6.1", PATCH)
    assert (tree / "a/time.h").read_text() == "before\n#define DELTA 1\nafter\n"


@pytest.mark.parametrize("text, why", [
    ("#define DELTA 250\n", "occurs 0 times"),
    ("#define DELTA 500\n#define DELTA 500\n", "occurs 2 times"),
    ("#define DELTA 1\n", "already applied"),
], ids=["changed upstream", "twice", "applied before"])
def test_a_patch_that_does_not_fit_is_refused_by_name_and_the_file_stays(tmp_path, text, why):
    tree = tree_with(tmp_path, text)
    with pytest.raises(MissingFeature) as refusal:
        apply_patch(tree, "6.99.1", PATCH)
    message = str(refusal.value)
    assert all(part in message for part in ("6.99.1", "finer", "a/time.h", why)) and "\n" not in message, message
    assert (tree / "a/time.h").read_text() == text


def test_a_kernel_that_can_do_it_by_itself_is_left_alone(tmp_path):
    tree = tree_with(tmp_path, "#define DELTA_BY_NAME 1\n")
    apply_patch(tree, "6.12", replace(PATCH, superseded="DELTA_BY_NAME"))
    assert (tree / "a/time.h").read_text() == "#define DELTA_BY_NAME 1\n"
    with pytest.raises(MissingFeature, match="occurs 0 times"):
        apply_patch(tree, "6.12", replace(PATCH, superseded="DELTA_BY_NUMBER"))


def test_a_patch_for_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MissingFeature, match="no such file"):
        apply_patch(tmp_path, "6.1", PATCH)


def test_the_cache_key_changes_with_version_fragment_and_patches_and_only_with_them():
    base = kernel.cache_key("6.1.1", "CONFIG_NET=y\n", (PATCH,))
    others = {kernel.cache_key("6.1.2", "CONFIG_NET=y\n", (PATCH,)),
              kernel.cache_key("6.1.1", "CONFIG_NET=n\n", (PATCH,)),
              kernel.cache_key("6.1.1", "CONFIG_NET=y\n", PATCHES)}
    assert len(others | {base}) == 4, (base, others)
    assert base == kernel.cache_key("6.1.1", "CONFIG_NET=y\n", (PATCH,))


def test_every_option_asked_for_is_read_back_and_the_missing_ones_are_named():
    fragment = "# comment\nCONFIG_NET=y\nCONFIG_VETH=y\nCONFIG_STACK=4\n"
    build.read_back(fragment, "CONFIG_STACK=4\nCONFIG_VETH=y\nCONFIG_NET=y\n", "6.1")
    with pytest.raises(FabricError, match=r"6\.1: kernel options not granted: CONFIG_VETH=y CONFIG_STACK=4;"):
        build.read_back(fragment, "CONFIG_NET=y\n# CONFIG_VETH is not set\nCONFIG_STACK=2\n", "6.1")


def test_the_newest_source_is_chosen_by_number_and_the_environment_overrules(tmp_path, monkeypatch):
    monkeypatch.delenv(source.SOURCE_ENV, raising=False)
    assert source.find_source(tmp_path, tmp_path) is None
    for name in ("linux-source-6.1.tar.xz", "linux-source-6.12.tar.xz", "linux-source-6.9.tar.xz"):
        (tmp_path / name).touch()
    assert source.find_source(tmp_path, tmp_path).version == "6.12"
    monkeypatch.setenv(source.SOURCE_ENV, str(tmp_path / "linux-source-6.1.tar.xz"))
    assert source.find_source(tmp_path, tmp_path).version == "6.1"
    monkeypatch.setenv(source.SOURCE_ENV, str(tmp_path / "none.tar.xz"))
    with pytest.raises(MissingFeature, match="none.tar.xz: no such file"):
        source.find_source(tmp_path, tmp_path)


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A source that every patch fits, an empty cache, and a function that installs a fake make."""
    tarball, bin_dir = tmp_path / "linux-source-6.1.tar.xz", tmp_path / "bin"
    texts = {"Kbuild": ""}
    for patch in reversed(PATCHES):         # a patch may contain the text of another, which then must come first
        if patch.old not in texts.get(patch.file, ""):
            texts[patch.file] = texts.get(patch.file, "") + patch.old
    with tarfile.open(tarball, "w:xz") as archive:
        for name, text in texts.items():
            member = tarfile.TarInfo(f"linux-source-6.1/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    bin_dir.mkdir()
    for tool in build.TOOLS:
        if tool not in ("tar", "xz"):
            script(bin_dir / tool, "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(source.SOURCE_ENV, str(tarball))

    def install(mode: str) -> None:
        text = FAKE_MAKE.replace("$CALLS_FILE", str(tmp_path / "calls"))
        script(bin_dir / "make", text.replace("MODE_COMMANDS", mode))

    return install


def script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


GOOD, BROKEN, HANGING = "cp /bin/true linux", "echo 'a.c:1: error: no such thing'; exit 2", "echo CC; exec sleep 1000"


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def leftovers() -> list[str]:
    return [path.name for path in kernel.cache_dir().iterdir() if path.name != ".lock"]


def test_a_kernel_is_built_once_and_found_after(workshop, tmp_path):
    workshop(GOOD)
    steps: list[float] = []
    assert kernel.path() is None and kernel.info().path is None
    built = kernel.build(lambda fraction, step: steps.append(fraction))
    assert built == kernel.path() == kernel.build() and built.is_file() and (built.parent / "config").is_file()
    assert calls(tmp_path) == 1 and steps == sorted(steps) and steps[0] == 0.0, steps
    assert leftovers() == [kernel.info().key]


def test_a_failed_build_says_why_in_one_line_and_leaves_nothing(workshop):
    workshop(BROKEN)
    with pytest.raises(FabricError, match="make linux: a.c:1: error: no such thing"):
        kernel.build()
    assert leftovers() == [] and kernel.path() is None


def test_a_build_interrupted_from_the_keyboard_leaves_nothing(workshop):
    workshop(HANGING)

    def interrupt(fraction: float, step: str) -> None:
        if step == "compiling":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kernel.build(interrupt)
    assert leftovers() == []


def test_a_build_killed_outright_is_swept_by_the_next_one(workshop, tmp_path):
    workshop(HANGING)
    code = "from emu.lab import kernel; kernel.build(lambda fraction, step: print(step, flush=True))"
    with subprocess.Popen([sys.executable, "-c", code], cwd=guest.PACKAGE_ROOT, stdout=subprocess.PIPE,
                          text=True) as killed:
        assert any("compiling" in line for line in killed.stdout), "the build did not come to compiling"
        killed.send_signal(signal.SIGKILL)
    assert [name for name in leftovers() if name.startswith(".build-")], "the kill came too late to prove anything"
    workshop(GOOD)
    kernel.build()
    assert leftovers() == [kernel.info().key]


def test_two_builds_at_once_make_one_kernel(workshop, tmp_path):
    workshop(GOOD)
    built: list[Path] = []
    builders = [threading.Thread(target=lambda: built.append(kernel.build())) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(WAIT_S)
    assert len(built) == 2 and len(set(built)) == 1 and calls(tmp_path) == 1, (built, calls(tmp_path))


def test_missing_tools_are_named_with_the_command_that_installs_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingFeature, match=r"apt install make gcc binutils flex bison bc tar xz-utils"):
        build.need_tools()


def test_other_machines_are_refused_with_the_alternative(monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    for asked in (kernel.build, kernel.need_path):
        with pytest.raises(MissingFeature, match="aarch64: use `--clock real`"):
            asked()


def test_too_little_and_too_much_guest_memory_are_refused_before_the_boot():
    with pytest.raises(FabricError, match="64 MiB is too little: at least"):
        memory.memory_folder(64 << 20)
    with pytest.raises(FabricError, match=r"needs \d+ MiB of memory, this host has \d+ MiB available"):
        memory.memory_folder(1 << 50)


def test_a_container_limit_counts_as_available_memory(tmp_path):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 8000 kB\n")
    assert memory.available_bytes(meminfo, tmp_path / "none") == 8000 * 1024
    (tmp_path / "memory.current").write_text("1000\n")
    for limit, expected in (("max", 8000 * 1024), ("5000", 4000)):
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        assert memory.available_bytes(meminfo, tmp_path) == expected, limit


def test_the_guest_sees_an_allow_list_of_the_environment():
    env = guest.guest_env({"PATH": "/bin", "SSH_AUTH_SOCK": "/x", "LANG": "C"}, {"EXTRA": "1"}, seed=5)
    assert env["PATH"].startswith("/bin:"), env
    assert (env["LANG"], env["EXTRA"], env["PYTHONHASHSEED"]) == ("C", "1", "0"), env
    assert "SSH_AUTH_SOCK" not in env, env


def test_the_kernel_command_line_holds_no_path_and_changes_with_seed_memory_and_clock():
    base = guest.kernel_arguments(1, 1 << 30, "virtual")
    assert "railbed.seed=1" in base and "mem=1048576K" in base and "time-travel=inf-cpu" in base
    assert not [word for word in base if str(guest.PACKAGE_ROOT) in word or "/tmp" in word], base
    for other in ((2, 1 << 30, "virtual"), (1, 1 << 29, "virtual"), (1, 1 << 30, "real")):
        assert guest.kernel_arguments(*other) != base, other


def test_host_folders_below_the_guest_s_own_are_shown_once():
    shown = guest.hidden_folders([Path("/tmp/a/b"), Path("/tmp/a"), Path("/home/x"), Path("/dev/shm/c")])
    assert shown == ["/dev/shm/c", "/tmp/a"]


def test_a_guest_in_a_guest_is_refused(monkeypatch):
    monkeypatch.setenv("RAILBED_LAB", "1")
    with pytest.raises(MissingFeature, match="cannot boot another one inside itself"):
        guest.run(["true"], seed=1, mem_bytes=1 << 30)


def test_a_folder_that_is_to_be_shown_but_is_not_there_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("RAILBED_LAB", raising=False)
    monkeypatch.setattr(kernel, "need_path", lambda: Path("/nonexistent/linux"))
    with pytest.raises(UsageError, match="missing: no such folder"):
        guest.run(["true"], seed=1, mem_bytes=1 << 30, host_folders=[tmp_path / "missing"])


def test_an_unknown_clock_is_refused_with_the_allowed_ones():
    with pytest.raises(UsageError, match="unknown clock 'virtul'.*real, virtual"):
        guest.run(["true"], seed=1, mem_bytes=1 << 30, clock="virtul")
