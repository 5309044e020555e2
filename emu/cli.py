"""The command line. Each command parses, calls one library function and prints; libraries never print or exit.

Libraries that need a kernel feature or take long to import are imported by the command that uses them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import click

import emu
from emu.errors import RailbedError, unknown
from emu.report import exits, result, table
from emu.report.progress import Progress
from emu.report.table import Column, make_console
from emu.scenario import bench as benchmarks
from emu.scenario import clock as clocks
from emu.scenario import command, live, loader


class Commands(click.Group):
    """A group that names the nearest match and every command when asked for one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and args[0] not in self.commands:
            raise unknown(f"command of {ctx.command_path}", args[0], self.commands)
        return super().resolve_command(ctx, args)


OUT = click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the result file.")


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(emu.__version__, prog_name="railbed")
@click.pass_context
def railbed(ctx: click.Context) -> int:
    """A packet-level emulator of AI-cluster fabrics on real Linux networking."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    return 0


railbed.add_command(command.run)


@railbed.command("list")
def list_scenarios() -> None:
    """The scenarios, what each asks, and its parameters."""
    console = make_console()
    for name in loader.names():
        try:
            scenario = loader.load(name)
        except RailbedError as error:  # one broken file must not hide the others
            exits.complain(str(error))
            continue
        table.line(console, name, "bold")
        table.line(console, f"  {scenario.question}")
        defaults = scenario.parameters.choose().as_json()
        table.wrapped(console, " ".join(f"{key}={_setting(value)}" for key, value in defaults.items()), indent=4)


@railbed.command()
def probe() -> None:
    """What this kernel can do, and what Railbed uses instead where it cannot."""
    from emu.fabric.probe import probe as ask_kernel

    found = ask_kernel()
    table.line(make_console(), found.kernel, "bold")
    _print_rows(found.rows())


@railbed.command()
@click.argument("topology")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=1, show_default=True)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A parameter of the scenario.")
def shell(topology: str, seed: int, settings: Sequence[str]) -> None:
    """Build the TOPOLOGY of a scenario (name or file) and open the Mininet command line on it."""
    scenario = loader.load(topology)
    p = next(scenario.parameters.choose(settings, seed=seed).combinations())
    clocks.need_root()
    from mininet.cli import CLI

    with contextlib.ExitStack() as undo:
        with Progress() as progress, progress.phase("building the fabric") as phase:
            fabric = undo.enter_context(live.build(scenario, p, phase, clock=clocks.REAL))
        CLI(fabric)


@railbed.command()
@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
def clean(run_ids: Sequence[str]) -> None:
    """Remove what runs that were killed left behind: those named, or all whose process is gone."""
    from emu.fabric.clean import clean as remove

    clocks.need_root()
    removed = [dataclasses.asdict(one) for one in remove(run_ids)]
    _print_rows(removed)
    click.echo(f"{len(removed)} runs removed" if removed else "nothing to remove")


@railbed.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR...")
def report(folders: Sequence[Path]) -> int:
    """Print the tables of stored results; exit 4 if any of them is not valid."""
    console = make_console()
    stored = [result.read(folder) for folder in folders]
    for one in stored:
        table.print_result(one, _columns_of(one), console)
    return max(result.exit_code(one, expectation_failed=False) for one in stored)


@railbed.command()
@click.argument("name")
@OUT
def bench(name: str, out: Path | None) -> None:
    """Run the benchmark NAME and print what it measured."""
    with Progress() as progress:
        measured = benchmarks.run(name, progress)
    _print_rows(measured.rows)
    table.print_metrics(measured.metrics, make_console())
    if out is not None:
        measured.write(out)


@railbed.group(cls=Commands, no_args_is_help=False)
def kernel() -> None:
    """The lab kernel, which `--clock virtual` runs in."""


@kernel.command()
def build() -> None:
    """Build the lab kernel unless it is there; prints where it is."""
    from emu.lab import kernel as lab_kernel

    with Progress() as progress, progress.phase("building the lab kernel, minutes the first time", total=1) as phase:
        click.echo(lab_kernel.build(phase.reach))


@kernel.command()
def path() -> None:
    """Where the built lab kernel is."""
    from emu.lab import kernel as lab_kernel

    click.echo(lab_kernel.need_path())


@kernel.command()
def info() -> None:
    """What the lab kernel is or would be built from."""
    from emu.lab import kernel as lab_kernel

    for key, value in dataclasses.asdict(lab_kernel.info()).items():
        click.echo(f"{key:12} {', '.join(value) if isinstance(value, tuple) else value}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The `railbed` command; returns its exit code."""
    return exits.run_command(railbed, sys.argv[1:] if arguments is None else arguments)


def _setting(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _columns_of(stored: result.Result) -> Sequence[Column]:
    """The scenario's columns, or every key of the rows when the scenario is no longer there."""
    try:
        return loader.load(stored.scenario).columns
    except RailbedError:
        return [Column(key) for key in (stored.rows[0] if stored.rows else ())]


def _print_rows(rows: Sequence[table.Row]) -> None:
    table.print_rows(rows, [Column(key) for key in (rows[0] if rows else ())], make_console())


if __name__ == "__main__":
    sys.exit(main())
