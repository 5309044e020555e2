"""`railbed run`, which is also what a scenario file does when it is run by itself."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from emu.errors import MissingFeature, UsageError
from emu.report import exits, plot, table
from emu.report.progress import Progress
from emu.report.result import exit_code, make_folder
from emu.scenario import clock as clocks
from emu.scenario import capture, live, loader
from emu.scenario.choice import Choice
from emu.scenario.runner import Finished, Runner


@click.command("run")
@click.argument("scenario")
@click.option(
    "--clock",
    type=click.Choice([clocks.REAL, clocks.VIRTUAL]),
    default=clocks.REAL,
    show_default=True,
    help="real: this kernel, as root. virtual: the lab kernel, exact and without root.",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True, help="Of everything random.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE[,VALUE...]",
    help="A parameter of the scenario; a list makes one row for each value. May be repeated.",
)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for result.json.")
def run(scenario: str, clock: str, seed: int, settings: Sequence[str], out: Path | None) -> int:
    """Run SCENARIO (a name from `railbed list`, or a file) and print its table."""
    loaded = loader.load(scenario)
    choice = loaded.parameters.choose(settings, seed=seed)
    # Pure, so a cluster that cannot be is refused before anything boots or is built
    topologies = [loaded.topology(p) for p in choice.combinations()]
    for p, topology in zip(choice.combinations(), topologies, strict=True):
        capture.check(p, topology, out)
    if clocks.must_reexecute(clock):
        mem_bytes = max(map(clocks.guest_memory_bytes, topologies))
        arguments = _arguments(loaded, clock, seed, settings, out)
        began = time.perf_counter()  # the guest can't see wall time
        code = clocks.reexecute(arguments, seed, mem_bytes, _folders(loaded, choice, out))
        if code not in (UsageError.exit_code, MissingFeature.exit_code):  # it ran
            table.line(table.make_console(), f"wall time: {time.perf_counter() - began:.1f} s with the lab kernel's boot", "dim")
        plot.write(out)
        return code
    clocks.need_root()
    build = functools.partial(live.build, clock=clock)
    with Progress(plain=clocks.inside_guest()) as progress:
        runner = Runner(scenario=loaded, choice=choice, build=build, progress=progress, clock=clock, out=out)
        finished = runner.run()
    table.print_result(finished.result, loaded.columns, table.make_console())
    _say_how_it_ended(finished)
    if not clocks.inside_guest():  # which would take seconds to load what draws
        plot.write(out)
    return finished.exit_code


def main(file: str) -> None:
    """For the end of a scenario file: `python scenarios/NAME.py ...` is `railbed run scenarios/NAME.py ...`."""
    sys.exit(exits.run_command(run, [str(Path(file).resolve()), *sys.argv[1:]], prog=Path(file).name))


def _arguments(
    scenario: loader.Scenario, clock: str, seed: int, settings: Sequence[str], out: Path | None
) -> list[str]:
    options = [f"--clock={clock}", f"--seed={seed}", *(f"--set={setting}" for setting in settings)]
    return ["run", str(scenario.path), *options, *([f"--out={out}"] if out else [])]


def _folders(scenario: loader.Scenario, choice: Choice, out: Path | None) -> list[Path]:
    """What the lab kernel must show us: the scenario's folder, those of files named in parameters, and --out."""
    texts = [value for p in choice.combinations() for value in p.as_dict().values() if isinstance(value, str)]
    named = {Path(path) for text in texts for path in (text, text.rpartition(":")[0])}  # FILE or FILE:NAME
    files = [scenario.path, *(path for path in named if path.is_file())]
    return sorted({path.resolve().parent for path in files} | ({make_folder(out).resolve()} if out else set()))


def _say_how_it_ended(finished: Finished) -> None:
    result = finished.result
    if finished.interrupted:
        exits.complain(f"{result.scenario}: interrupted; what was measured before is kept")
    elif exit_code(result, expectation_failed=False):
        missed = "; ".join(
            f"{check.name} is {table.plain(check.value)}, limit {table.plain(check.limit)}"
            for check in result.failed_checks
        )
        exits.complain(f"{result.scenario}: not valid: {missed}")
    elif finished.failure is not None:
        exits.complain(f"{result.scenario}: expectation not met: {finished.failure}")
