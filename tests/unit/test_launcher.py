"""Promises of the launcher and of the project's own files that can be kept without network, root or a set-up."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")          # Debian policy 5.6.1
PINNED = re.compile(r"[A-Za-z0-9._-]+ == [0-9][0-9a-z.]*")


def lab(*words: str, root: Path = ROOT, cwd: Path = Path("/"), **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([root / "lab", *words], cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60)


def settings() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def lines(value: str) -> list[str]:
    return [line for line in value.splitlines() if line]


def debian_packages() -> list[str]:
    """What the two lists in `lab` hold, as bash itself reads them."""
    lists = re.findall(r"^(?:kernel_)?packages=\(.*?^\)", (ROOT / "lab").read_text(), re.MULTILINE | re.DOTALL)
    assert len(lists) == 2, f"expected 2 lists of packages in lab, found {len(lists)}"
    script = "\n".join([*lists, 'printf "%s\\n" "${packages[@]}" "${kernel_packages[@]}"'])
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The launcher in a checkout that was never set up."""
    root = tmp_path / "fresh checkout"
    shutil.copytree(ROOT / "emu", root / "emu", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("lab", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    return root


@pytest.mark.parametrize("script", ["lab", ".ci/run"])
def test_scripts_are_executable_and_bash_can_read_them(script):
    checked = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True)
    assert os.access(ROOT / script, os.X_OK), f"{script} is not executable"
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("words", [(), ("--help",), ("help",)], ids=["nothing", "--help", "help"])
def test_usage_names_every_command_of_the_launcher(words):
    shown = lab(*words)
    assert shown.returncode == 0, shown.stderr
    for command in ("setup", "test", "lint", "run", "list"):
        assert f"./lab {command}" in shown.stdout, f"{command} missing in: {shown.stdout}"


@pytest.mark.parametrize(("words", "named", "allowed"), [
    (("setup", "--quick"), "--quick", "--dry-run"),
    (("test", "unti"), "unti", "all, integration, unit"),
], ids=["setup", "test"])
def test_unknown_argument_is_one_line_that_names_it_and_the_allowed_ones_and_ends_with_2(words, named, allowed):
    refused = lab(*words)
    assert refused.returncode == 2, refused
    assert len(lines(refused.stderr)) == 1, refused.stderr
    assert named in refused.stderr and allowed in refused.stderr, refused.stderr


def test_dry_run_says_what_a_fresh_checkout_would_get_and_makes_nothing(checkout):
    before = sorted(checkout.rglob("*"))
    said = lab("setup", "--dry-run", root=checkout, XDG_CACHE_HOME=str(checkout / "cache"))
    assert said.returncode == 0, said.stderr
    for announced in ("Python environment", "BPF programs"):
        assert re.search(rf"{announced}.*\(.*(seconds|minutes)\)", said.stderr), f"no {announced} in: {said.stderr}"
    assert sorted(checkout.rglob("*")) == before


def test_machine_that_is_not_debian_is_told_the_missing_tools_in_one_line_and_ends_with_3(checkout, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "cat", "dirname", "flock", "grep", "id", "readlink", "uname"):
        (tools / tool).symlink_to(shutil.which(tool))
    text = (checkout / "lab").read_text()
    (checkout / "lab").write_text(text.replace("PATH=$PATH:/usr/sbin:/sbin", "PATH=$PATH"))
    bare = {"PATH": str(tools), "HOME": str(tmp_path)}
    refused = subprocess.run([tools / "bash", checkout / "lab", "setup"], env=bare, capture_output=True, text=True)
    assert refused.returncode == 3, refused
    assert len(lines(refused.stderr)) == 1, refused.stderr
    assert "mnexec" in refused.stderr and "clang" in refused.stderr, refused.stderr


def test_every_dependency_is_pinned_to_one_version_and_says_why_it_is_there():
    wanted = [*lines(settings()["options"]["install_requires"]), *lines(settings()["options.extras_require"]["test"])]
    text = (ROOT / "setup.cfg").read_text().splitlines()
    assert len(wanted) >= 8, wanted
    for requirement in wanted:
        assert PINNED.fullmatch(requirement), f"{requirement!r} is not pinned as 'name == version'"
        above = text[text.index(f"    {requirement}") - 1].strip()
        assert above.startswith("# "), f"{requirement}: no reason in the line above, but {above!r}"


def test_debian_packages_are_valid_names_and_none_is_listed_twice():
    names = [entry.partition(":")[0] for entry in debian_packages()]
    assert len(names) >= 15, names
    assert [name for name in names if not PACKAGE_NAME.fullmatch(name)] == []
    assert len(set(names)) == len(names), sorted(names)


@pytest.mark.parametrize(("option", "exit_code", "outcome", "count"), [
    ("-q", 0, "1 passed, 1 skipped", "1 skipped: needs_tshark 1"),
    ("--require-all", 1, "1 passed, 1 error", "0 skipped"),
], ids=["by default", "--require-all"])
def test_missing_need_is_a_counted_skip_by_default_and_fails_when_all_is_required(
        tmp_path, option, exit_code, outcome, count):
    for name in ("setup.cfg", "tests/conftest.py"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "test_needs.py").write_text(
        "import pytest\n@pytest.mark.needs_tshark\ndef test_capture(): pass\ndef test_other(): pass\n")
    ran = subprocess.run([sys.executable, "-m", "pytest", option, tmp_path], cwd=tmp_path, env={"PATH": str(tmp_path)},
                         capture_output=True, text=True, timeout=60)
    assert ran.returncode == exit_code and outcome in ran.stdout, ran.stdout
    assert "this machine lacks tshark; install it: ./lab setup" in ran.stdout, ran.stdout
    assert count in ran.stdout.splitlines(), ran.stdout


def test_every_marker_has_a_check_and_every_check_a_marker(request):
    plugin = request.config.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    markers = {line.partition(":")[0] for line in lines(settings()["tool:pytest"]["markers"])}
    assert markers == set(plugin.LACKS)
