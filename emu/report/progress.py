"""What is going on, on stderr, so that stdout holds results only.

A live line on a terminal; elsewhere one plain line a phase. The plain form has no thread and no timer, which
matters inside the lab kernel: there a refreshing display would be one more event on the virtual clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as LiveDisplay

from emu.report.table import line, make_console


class Phase:
    """One thing that takes a while."""

    def __init__(self, display: LiveDisplay | None, task: TaskID | None) -> None:
        self._display, self._task = display, task

    def advance(self, steps: float = 1) -> None:
        """`steps` more of the phase's total are done."""
        if self._display is not None and self._task is not None:
            self._display.advance(self._task, steps)

    def expect(self, total: float) -> None:
        """How much there is to do, once that is known."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, total=total)

    def reach(self, done: float, what: str | None = None) -> None:
        """`done` of the phase's total are done; `what` renames the phase."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, completed=done, description=what)


class Progress:
    """Context manager; phases may nest and may be told apart while they run.

    with Progress() as progress, progress.phase("building the fabric", total=640) as phase:
        phase.advance(64)
    """

    def __init__(self, console: Console | None = None, *, plain: bool = False) -> None:
        self._console = console or make_console(stderr=True)
        self._display = (
            None
            if plain or not self._console.is_terminal
            else LiveDisplay(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=24),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )
        )

    def __enter__(self) -> Progress:
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._display is not None:
            self._display.stop()

    @contextlib.contextmanager
    def phase(self, what: str, total: float | None = None) -> Iterator[Phase]:
        """Show `what` until the block ends; with a `total` also how far it is."""
        if self._display is None:
            line(self._console, f"{what} ...")
            yield Phase(None, None)
            return
        task = self._display.add_task(what, total=total)
        try:
            yield Phase(self._display, task)
        finally:
            self._display.remove_task(task)
