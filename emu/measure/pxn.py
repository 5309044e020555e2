"""All-to-all with PXN and without: one run's row, the curves over size, and what both together say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from emu.collectives.schedule import Schedule
from emu.collectives.traffic import traffic
from emu.measure.balance import Balance
from emu.measure.beside import Row, beside
from emu.measure.metric import Metric, Series
from emu.measure.transfers import Transferred
from emu.measure.wire import Wire


def row(schedule: Schedule, transferred: Transferred) -> dict[str, object]:
    """Bytes and messages of the schedule, what the counters found of them, time and marks."""
    balance = Balance(transferred)
    return {
        **asdict(traffic(schedule)), **Wire(transferred).row(), **transferred.row(),
        "ideal_us": balance.ideal_us, "busbw_fraction": balance.ideal_us / transferred.completion_us,
    }


def curve(rows: Sequence[Row]) -> list[Series]:
    """Time against size; a panel for each pattern and number of uplinks, which the rows share."""
    panel = f"µs, {rows[0]['pattern']}, {rows[0]['leaf_up']} uplinks"
    sizes, times = [float(row["size_bytes"]) for row in rows], [row["completion_us"] for row in rows]
    return [Series(panel, "time", "bytes of each GPU", sizes, times, log=True)]


def pairs(rows: Sequence[Row], apart: Sequence[str]) -> Iterator[tuple[Row, Row]]:
    """(without PXN, with PXN) wherever everything else, named in `apart`, is equal."""
    return beside(rows, apart, "pxn", "off")


def saved(rows: Sequence[Row], apart: Sequence[str]) -> list[Metric]:
    """Of the time without PXN, the share that it saves (below 0: costs), for each pair of rows, named by what rows differ in."""
    differ = [name for name in apart if len({row[name] for row in rows}) > 1]
    return [
        Metric(
            "_".join(["time_saved", *(_named(name, on[name]) for name in differ)]),
            1 - on["completion_us"] / off["completion_us"], "share",
            note=f"{off['completion_us']:,.1f} us without, {on['completion_us']:,.1f} us with",
        )
        for off, on in pairs(rows, apart)
    ]


def _named(name: str, value: object) -> str:
    return value if isinstance(value, str) else f"{name.removesuffix('_bytes')}_{value}"
