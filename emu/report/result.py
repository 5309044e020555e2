"""What a run leaves behind: result.json, schema 1 (docs/design.md, the contract that users and tests rely on).

The text is the same for the same run, so two virtual runs of one seed can be compared with `diff`: maps whose order
means nothing are sorted, rows and checks keep theirs, and only `timing` may differ. Numbers are finite or refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from emu.errors import RailbedError, UsageError, unknown
from emu.measure.metric import Bars, Check, Metric, Series

SCHEMA = 1
FILE_NAME = "result.json"
EXIT_FIDELITY = 4
EXIT_EXPECTATION = 1


@dataclass(kw_only=True)
class Result:
    """One run of one scenario; `rows` has one object per line of the scenario's table."""

    scenario: str
    seed: int
    parameters: dict[str, object]  # a list where one row each was asked for
    clock: str  # real | virtual
    kernel: str
    dilation: float
    checks: list[Check] = field(default_factory=list)
    metrics: dict[str, Metric] = field(default_factory=dict)
    rows: list[dict[str, object]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)  # these two: in the file only if there are any
    bars: list[Bars] = field(default_factory=list)
    conclusions: dict[str, Metric] = field(default_factory=dict)  # what all rows say together; in the file only if any
    timing: dict[str, float] = field(default_factory=dict)  # build_s, run_s, destroy_s by the clock of the run

    @property
    def valid(self) -> bool:
        """Whether to believe it: every fidelity check is met."""
        return not self.failed_checks

    @property
    def failed_checks(self) -> list[Check]:
        return [check for check in self.checks if not check.ok]

    def __getitem__(self, name: str) -> Metric:
        if name not in self.metrics:
            raise unknown("metric", name, self.metrics)
        return self.metrics[name]

    def to_json(self) -> str:
        """The text of result.json; RailbedError that names the place when a number is not finite."""
        document = {
            "schema": SCHEMA,
            "scenario": self.scenario,
            "seed": self.seed,
            "parameters": _sorted(self.parameters),
            "clock": self.clock,
            "kernel": self.kernel,
            "dilation": self.dilation,
            "fidelity": {"valid": self.valid, "checks": [_check_to_json(check) for check in self.checks]},
            "metrics": _metrics_to_json(self.metrics),
            "rows": self.rows,
            **({"conclusions": _metrics_to_json(self.conclusions)} if self.conclusions else {}),
            "warnings": self.warnings,
            **({"series": [asdict(series) for series in self.series]} if self.series else {}),
            **({"bars": [asdict(bars) for bars in self.bars]} if self.bars else {}),
            "timing": _sorted(self.timing),
        }
        return to_text(document)

    @classmethod
    def from_json(cls, text: str | bytes, origin: str = FILE_NAME) -> Result:
        """The inverse of to_json; UsageError that names `origin` when the text is not a result of this schema."""
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                raise UsageError(f"{origin}: schema {document['schema']!r}, this version reads schema {SCHEMA}")
            return cls(
                **{
                    key: document[key]
                    for key in (
                        "scenario",
                        "seed",
                        "parameters",
                        "clock",
                        "kernel",
                        "dilation",
                        "rows",
                        "warnings",
                        "timing",
                    )
                },
                checks=[Check(**check) for check in document["fidelity"]["checks"]],
                series=[Series(**series) for series in document.get("series", ())],
                bars=[Bars(**bars) for bars in document.get("bars", ())],
                metrics=_metrics_from_json(document["metrics"]),
                conclusions=_metrics_from_json(document.get("conclusions", {})),
            )
        except KeyError as error:
            raise UsageError(f"{origin}: not a Railbed result: {error.args[0]!r} is missing") from error
        except (ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{origin}: not a Railbed result: {error}") from error

    def write(self, folder: Path) -> Path:
        """Put result.json into `folder`, whole or not at all."""
        return write_text(folder, FILE_NAME, self.to_json())


def read(path: Path) -> Result:
    """The result stored in a folder (or at a file); UsageError when there is none."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        text = file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; give the folder of an earlier `railbed run --out`") from error
    return Result.from_json(text, str(file))


def exit_code(result: Result, expectation_failed: bool) -> int:
    """0, or what the command line ends with: a result nobody should believe weighs more than an expectation."""
    if not result.valid:
        return EXIT_FIDELITY
    return EXIT_EXPECTATION if expectation_failed else 0


def metric_to_json(metric: Metric) -> dict[str, object]:
    note = {"note": metric.note} if metric.note else {}
    return {"value": metric.value, "unit": metric.unit, **note}


def _metrics_to_json(metrics: dict[str, Metric]) -> dict[str, object]:
    return {name: metric_to_json(metric) for name, metric in sorted(metrics.items())}


def _metrics_from_json(metrics: dict[str, dict]) -> dict[str, Metric]:
    return {name: Metric(name, **metric) for name, metric in metrics.items()}


def to_text(document: dict[str, object]) -> str:
    """JSON for people and machines; RailbedError that names the place of a number that is not finite."""
    for place, value in _numbers(document, ""):
        if not math.isfinite(value):
            raise RailbedError(f"{place} is {value}: only finite numbers belong here; leave out what was not measured")
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_text(folder: Path, name: str, text: str) -> Path:
    """Write through a temporary file and rename, so that a kill in between leaves the old file or the new one."""
    target = make_folder(folder) / name
    temporary = folder / f".{name}.{os.getpid()}"
    try:
        try:
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return target


def make_folder(folder: Path) -> Path:
    """The folder of --out, made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return folder


def _unwritable(folder: Path, error: OSError) -> UsageError:
    return UsageError(f"--out {folder}: {error.strerror}; give a folder that you may write to")


def _check_to_json(check: Check) -> dict[str, object]:
    extra = {key: text for key, text in (("unit", check.unit), ("note", check.note)) if text}
    return {"name": check.name, "value": check.value, "limit": check.limit, "ok": check.ok, **extra}


def _sorted(mapping: dict[str, object]) -> dict[str, object]:
    return dict(sorted(mapping.items()))


def _numbers(value: object, place: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, float):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{place}[{index}]")
