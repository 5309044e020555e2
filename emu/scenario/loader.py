"""Finds scenarios: files with a question, PARAMETERS, COLUMNS, topology(p), run(fabric, p) and expect(result).

A scenario is a plain Python file that reads aloud in a minute, so there is nothing to register: its name is its file's.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from emu.errors import UsageError, unknown
from emu.report.table import Column
from emu.scenario.choice import ParameterSet

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (ROOT / "scenarios", Path(sys.prefix) / "share" / "railbed" / "scenarios")  # a checkout, an installation
PARTS = {"topology": 1, "run": 2, "expect": 1}  # function -> how many arguments it takes
OPTIONAL_PARTS = ("offered_hops_per_s", "conclude")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A scenario file, checked and ready to run."""

    name: str
    path: Path
    question: str  # first line of the docstring
    parameters: ParameterSet
    columns: Sequence[Column]
    topology: Callable
    run: Callable
    expect: Callable
    offered_hops_per_s: Callable | None = None  # optional: (p) -> packet-hops per second of fabric time, see live.py
    conclude: Callable | None = None  # optional: (result) -> metrics that follow from all rows together


def names() -> list[str]:
    """Every scenario that can be asked for by name."""
    return sorted({path.stem for folder in FOLDERS for path in folder.glob("[!_]*.py")})


def find(name_or_path: str) -> Path:
    """The file of a scenario; UsageError with the nearest match when there is none."""
    if "/" in name_or_path or name_or_path.endswith(".py"):
        path = Path(name_or_path).expanduser().resolve()
        if not path.is_file():
            raise UsageError(f"no file {name_or_path}: {unknown('scenario', path.stem, names())}")
        return path
    for folder in FOLDERS:
        if (folder / f"{name_or_path}.py").is_file() and name_or_path in names():
            return folder / f"{name_or_path}.py"
    raise unknown("scenario", name_or_path, names())


def load(name_or_path: str) -> Scenario:
    """Import a scenario and check that it has all its parts; UsageError that says what is missing."""
    path = find(name_or_path)
    module = load_module(path, "scenario")
    question = (inspect.getdoc(module) or "").partition("\n")[0].strip()
    missing = ([] if question else ["a docstring that begins with its question"]) + _missing_parts(module)
    if missing:
        raise UsageError(f"scenario {path.stem} ({path}) has no {', no '.join(missing)}")
    functions = {part: getattr(module, part) for part in PARTS}
    functions |= {part: getattr(module, part, None) for part in OPTIONAL_PARTS}
    return Scenario(
        name=path.stem,
        path=path,
        question=question,
        parameters=module.PARAMETERS,
        columns=tuple(module.COLUMNS),
        **functions,
    )


def load_module(path: Path, kind: str) -> ModuleType:
    """Import a file that is not part of a package; UsageError when it doesn't import."""
    name = f"railbed_{kind}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{kind} {path}: is not a Python file; give NAME or PATH/NAME.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their own module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{kind} {path.stem} ({path}) does not load: {type(error).__name__}: {error}") from error
    return module


def _missing_parts(module: ModuleType) -> list[str]:
    missing = []
    if not isinstance(getattr(module, "PARAMETERS", None), ParameterSet):
        missing.append("PARAMETERS = parameters.select(...)")
    columns = getattr(module, "COLUMNS", None)
    if not isinstance(columns, list | tuple) or not all(isinstance(column, Column) for column in columns):
        missing.append("COLUMNS = [Column(...), ...]")
    for part, arguments in PARTS.items():
        function = getattr(module, part, None)
        if not callable(function) or len(inspect.signature(function).parameters) != arguments:
            missing.append(f"{part}() with {arguments} argument{'s' * (arguments > 1)}")
    return missing
