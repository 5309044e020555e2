"""Benchmarks, tests/benchmarks/bench_NAME.py with run(progress) -> {"metrics": {KEY: {"value", "unit"}}, "rows"}."""

from __future__ import annotations

from pathlib import Path

from emu.errors import UsageError, unknown
from emu.measure.metric import Metric
from emu.report.progress import Progress
from emu.report.result import metric_to_json, to_text, write_text
from emu.scenario.loader import ROOT, load_module

FOLDER = ROOT / "tests" / "benchmarks"
FILE_NAME = "bench.json"


class Benchmark:
    """What one benchmark measured."""

    def __init__(self, name: str, measured: dict) -> None:
        self.name = name
        try:
            self.metrics = [Metric(key, **metric) for key, metric in measured["metrics"].items()]
            self.rows = list(measured["rows"])
        except (KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"benchmark {name}: run() must return metrics ({{KEY: {{value, unit}}}}) and rows, but: {error}"
            ) from error

    def write(self, folder: Path) -> Path:
        """Put bench.json into `folder`."""
        metrics = {metric.name: metric_to_json(metric) for metric in self.metrics}
        return write_text(folder, FILE_NAME, to_text({"name": self.name, "metrics": metrics, "rows": self.rows}))


def names() -> list[str]:
    return sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))


def run(name: str, progress: Progress) -> Benchmark:
    """Run the benchmark called `name`; UsageError with the nearest match when there is none."""
    if name not in names():
        raise unknown("benchmark", name, names())
    module = load_module(FOLDER / f"bench_{name}.py", "benchmark")
    if not hasattr(module, "run"):
        raise UsageError(f"benchmark {name} has no run(progress)")
    return Benchmark(name, module.run(progress))
