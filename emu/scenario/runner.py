"""Runs a scenario: for each combination of parameters build the fabric, run, collect, destroy; then judge.

Long runs die, so what is measured is written after every combination, marked as incomplete until the last one is in;
a file left by a kill therefore never looks like a finished run. The fabric comes from outside (`build`), so all of
this is tested without a kernel.
"""

from __future__ import annotations

import contextlib
import gc
import platform
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from emu.errors import ExpectationFailed, UsageError
from emu.measure.metric import Check
from emu.report.exits import EXIT_INTERRUPTED
from emu.report.progress import Phase, Progress
from emu.report.result import Result, exit_code
from emu.scenario import capture
from emu.scenario.choice import Choice, Values
from emu.scenario.loader import Scenario
from emu.scenario.outcome import Outcome

# build(scenario, p, phase) -> context manager that yields the live fabric, which has a `.scale`
Build = Callable[[Scenario, Values, Phase], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Finished:
    """A result and how the run ended."""

    result: Result
    failure: str | None = None  # why expect() was not met
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        return EXIT_INTERRUPTED if self.interrupted else exit_code(self.result, self.failure is not None)


@dataclass(kw_only=True)
class Runner:
    """One run of one scenario. With several combinations the metrics and the dilation are those of the first."""

    scenario: Scenario
    choice: Choice
    build: Build
    progress: Progress
    clock: str
    out: Path | None = None  # folder for result.json
    result: Result = field(init=False)
    _names_read: set[str] = field(init=False, default_factory=set)
    _done: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.result = Result(
            scenario=self.scenario.name,
            seed=self.choice.seed,
            parameters=self.choice.as_json(),
            clock=self.clock,
            kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
            dilation=1,
            timing=dict.fromkeys(("build_s", "run_s", "destroy_s"), 0.0),
        )

    def run(self) -> Finished:
        """Run every combination. Ctrl-C ends the run, not the record of what was measured before it."""
        combinations = list(self.choice.combinations())
        self._save(len(combinations))  # replaces what an earlier run left there, and finds out that --out is writable
        try:
            for p in combinations:
                self._run_one(p)
                self._done += 1
                self._save(len(combinations))
        except KeyboardInterrupt:
            self._save(len(combinations))
            return Finished(self._so_far(len(combinations)), interrupted=True)
        if self.scenario.conclude:
            self.result.conclusions = {metric.name: metric for metric in self.scenario.conclude(self.result)}
        self.result.checks += [self._completed(len(combinations)), self._every_setting_read()]
        self._write(self.result)
        return Finished(self.result, failure=expectation(self.scenario, self.result) if self.result.valid else None)

    def _run_one(self, p: Values) -> None:
        label = ", ".join(f"{name}={p.as_dict()[name]}" for name in self.choice.varied)
        suffix = f" ({label})" if label else ""
        try:
            with contextlib.ExitStack() as live, _uncollected():
                with self._timed("build_s"), self.progress.phase(f"building the fabric{suffix}") as phase:
                    fabric = live.enter_context(self.build(self.scenario, p, phase))
                if self._done == 0:
                    self.result.dilation = fabric.scale.dilation
                with self._timed("run_s"), self.progress.phase(f"running {self.scenario.name}{suffix}"):
                    live.enter_context(capture.recording(fabric, p, self.out, label, self.result.warnings))
                    outcome = self.scenario.run(fabric, p)
                self._collect(outcome, fabric.scale.dilation, p, label)
                with self._timed("destroy_s"), self.progress.phase(f"removing the fabric{suffix}"):
                    live.close()
        finally:
            self._names_read |= p.names_read()

    def _collect(self, outcome: Outcome, dilation: float, p: Values, label: str) -> None:
        if not isinstance(outcome, Outcome):
            raise UsageError(f"scenario {self.scenario.name}: run() returned {type(outcome).__name__}, not an Outcome")
        where = f" [{label}]" if label else ""
        result = self.result
        if self._done == 0:
            result.metrics = {metric.name: metric for metric in outcome.metrics}
        varied = {name: p.as_dict()[name] for name in self.choice.varied}
        if varied:
            varied["dilation"] = dilation  # may differ from one combination to the next
        result.rows += [varied | dict(row) for row in outcome.rows]
        result.checks += [replace(check, name=check.name + where) for check in outcome.checks]
        result.warnings += [warning + where for warning in outcome.warnings]
        result.series += [replace(series, name=series.name + where) for series in outcome.series]
        result.bars += [replace(bars, panel=bars.panel + where) for bars in outcome.bars]

    def _save(self, total: int) -> None:
        self._write(self._so_far(total))

    def _so_far(self, total: int) -> Result:
        """The result up to now, with a check that fails: a partial record must not pass for a whole one."""
        incomplete = replace(self._completed(total), ok=False, note="stopped before its end")
        return replace(self.result, checks=[*self.result.checks, incomplete])

    def _write(self, result: Result) -> None:
        if self.out is not None:
            result.write(self.out)

    def _completed(self, total: int) -> Check:
        return Check("run completed", self._done, total, ok=self._done == total, unit="combinations")

    def _every_setting_read(self) -> Check:
        unread = [name for name in self.choice.given if name not in self._names_read]
        note = f"nothing read {', '.join(unread)}: setting it changed nothing" if unread else ""
        return Check("settings that nothing read", len(unread), 0, ok=not unread, unit="parameters", note=note)

    @contextlib.contextmanager
    def _timed(self, key: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.result.timing[key] = round(self.result.timing[key] + time.perf_counter() - began, 3)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Python's garbage collector waits until the end: a run makes millions of objects and keeps them, and to look through all
    of them again and again takes as long as making them."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect(0)  # what was made meanwhile is all of the youngest generation


def expectation(scenario: Scenario, result: Result) -> str | None:
    """Why the scenario's expect() is not met, or None."""
    try:
        scenario.expect(result)
    except (AssertionError, ExpectationFailed) as error:
        line = traceback.extract_tb(error.__traceback__)[-1].line
        return str(error) or f"not true: {line}"
    return None
