"""Promises about the source: folders import downwards only, pure ones touch no kernel library, nothing grows big."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import emu

PACKAGE = Path(emu.__file__).parent
# reading order = import order (docs/design.md, layout)
ORDER = [
    "__init__",
    "errors",
    "units",
    "scale",
    "topology",
    "collectives",
    "workload",
    "roce",
    "bpf",
    "fabric",
    "switch",
    "nic",
    "measure",
    "report",
    "lab",
    "scenario",
    "cli",
]
KERNEL_LIBRARIES = {"pyroute2", "mininet", "scapy"}
PURE = {"topology": set(), "collectives": set(), "workload": set(), "roce": {"scapy"}}  # folder -> libraries allowed
EXCEPTION = ("topology/mininet_topo.py", {"mininet.topo"})  # so that stock `mn --custom` loads our topologies
FILE_LINES, FUNCTION_LINES = 300, 60
FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@cache
def parsed(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text())


def imports(tree: ast.Module, file: str) -> Iterator[str]:
    """Dotted names of every module imported anywhere in a file, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import; write the full name"
            yield from ([f"emu.{alias.name}" for alias in node.names] if node.module == "emu" else [node.module])


def place(file: str) -> str:
    """The folder of emu/ (or the module directly in it) that a file belongs to."""
    return file.split("/")[0].removesuffix(".py")


def upward_imports(tree: ast.Module, file: str) -> list[str]:
    below = ORDER[: ORDER.index(place(file)) + 1]
    ours = [name for name in imports(tree, file) if name.startswith("emu.")]
    return [name for name in ours if name.split(".")[1] not in below and name != "emu.__version__"]


def kernel_imports(tree: ast.Module, file: str) -> list[str]:
    allowed = EXCEPTION[1] if file == EXCEPTION[0] else PURE[place(file)]
    return [
        name
        for name in imports(tree, file)
        if name.split(".")[0] in KERNEL_LIBRARIES and not {name, name.split(".")[0]} & allowed
    ]


def test_every_folder_has_its_place_in_the_order():
    strangers = {place(file) for file in FILES} - set(ORDER)
    assert not strangers, f"{sorted(strangers)}: give them a place in ORDER and in docs/design.md"


@pytest.mark.parametrize("file", FILES)
def test_a_folder_imports_only_those_before_it(file):
    wrong = upward_imports(parsed(file), file)
    assert not wrong, f"emu/{file} imports {wrong}, which comes after {place(file)!r}"


@pytest.mark.parametrize("file", [file for file in FILES if place(file) in PURE])
def test_pure_folders_import_no_kernel_library(file):
    wrong = kernel_imports(parsed(file), file)
    assert not wrong, f"emu/{file} is pure but imports {wrong}"


@pytest.mark.parametrize(
    "source, file, caught",
    [
        ("from emu.report.result import Result", "fabric/clean.py", True),
        ("def f():\n    import emu.scenario.runner", "measure/ecn.py", True),
        ("from emu import cli", "scenario/command.py", True),
        ("from emu.topology.plan import Plan\nfrom emu.fabric import link\nimport json", "fabric/clean.py", False),
    ],
)
def test_the_order_is_enforced_on_examples(source, file, caught):
    assert bool(upward_imports(ast.parse(source), file)) is caught


@pytest.mark.parametrize(
    "source, file, caught",
    [
        ("import pyroute2", "topology/plan.py", True),
        ("from mininet.topo import Topo", "topology/plan.py", True),
        ("from mininet.net import Mininet", "topology/mininet_topo.py", True),
        ("from mininet.topo import Topo", "topology/mininet_topo.py", False),
        ("from scapy.packet import Packet", "roce/headers.py", False),
        ("from pyroute2 import IPRoute", "roce/headers.py", True),
    ],
)
def test_purity_is_enforced_on_examples(source, file, caught):
    assert bool(kernel_imports(ast.parse(source), file)) is caught


@pytest.mark.parametrize("file", FILES)
def test_files_and_functions_stay_small_enough_to_read(file):
    lines = len((PACKAGE / file).read_text().splitlines())
    assert lines < FILE_LINES, f"emu/{file} has {lines} lines, limit {FILE_LINES}: it does more than one job"
    functions = [node for node in ast.walk(parsed(file)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in functions
        if node.end_lineno - node.lineno + 1 > FUNCTION_LINES
    }
    assert not long, f"emu/{file}: {long} lines, limit {FUNCTION_LINES}"


@pytest.mark.parametrize("file", FILES)
def test_every_module_says_what_it_is(file):
    assert ast.get_docstring(parsed(file)), f"emu/{file} has no module docstring"
