"""`berth optimise --trace`: packs the machines of a trace by search, and shows the way there."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from services.cli import inputs
from services.cli.options import CommandError
from services.cli.output import Column, Format, print_table, print_value
from services.cli.terminal import echo

if TYPE_CHECKING:
    from research.contest.judging import Judged
    from research.contest.peaks import Peaks
    from research.traces.tianchi import Tianchi

_STEPS_AT_ONCE = 100_000
_LOOKS = 20

SECONDS = 120.0
"""How long a search lasts that is not told: what one quiet core needs."""


class Look(NamedTuple):
    """The best placement at a moment: seconds and steps since the start, its score, and pending instances."""

    seconds: float
    cpu_seconds: float
    steps: int
    score: float
    pending: int


def optimise_trace(
    directory: Path,
    seed: int,
    *,
    seconds: float | None,
    steps: int | None,
    plots: Path | None,
    output: Format,
) -> None:
    """Pack a trace's machines until the time or the steps are over, or until Ctrl-C."""
    if plots is not None:
        from research.simulate.drawing import drawing
        from research.simulate.plots import draw_way

        drawing()  # or say at once what is missing
    from research.contest.judging import judge, peaks_of
    from research.traces.tianchi import read
    from services.traces.openb import TraceError

    try:
        trace = read(directory)
    except TraceError as error:
        raise CommandError(str(error)) from None
    with inputs.patience():
        search = peaks_of(trace, seed)
        way = _improve(search, seconds or SECONDS, steps)
    before, after = judge(trace, trace.machine), judge(trace, search.node)
    if plots is not None:
        points = [(look.cpu_seconds, look.score) for look in way if not look.pending]
        draw_way(plots, "tianchi", points, bound=search.bound()[0])
    if output in (Format.JSON, Format.YAML):
        print_value(_as_json(trace, search, before, after, way), output)
    else:
        _show(trace, search, before, after, way)


def _improve(search: Peaks, seconds: float, steps: int | None) -> list[Look]:
    from rich.console import Console
    from rich.progress import Progress

    began, cpu_began, done = time.monotonic(), time.process_time(), 0
    way: list[Look] = []

    def look() -> None:
        passed, cpu = time.monotonic() - began, time.process_time() - cpu_began
        way.append(Look(passed, cpu, done, search.score.cost, search.score.waiting_count))

    with (
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
        contextlib.suppress(KeyboardInterrupt),
    ):
        shown = progress.add_task("placing", total=1.0)
        look()
        search.rebuild()
        look()
        for count, part in _portions(seconds, steps):
            search.improve(count, part)
            done += count
            if part >= len(way[1:]) / _LOOKS:
                look()
            best = f"score {search.score.cost:,.2f} on {search.score.used_count:,} machines"
            progress.update(shown, completed=part, description=best)
    look()
    return way


def _portions(seconds: float, steps: int | None) -> Iterator[tuple[int, float]]:
    """Yield how many steps to do, and the part of all that is done before them."""
    began, done = time.monotonic(), 0
    while True:
        part = (time.monotonic() - began) / seconds if steps is None else done / steps
        if part >= 1.0:
            return
        count = _STEPS_AT_ONCE if steps is None else min(_STEPS_AT_ONCE, steps - done)
        yield count, part
        done += count


def _show(trace: Tianchi, search: Peaks, before: Judged, after: Judged, way: list[Look]) -> None:
    bound, _ = search.bound()
    echo(f"{len(trace.machines):,} machines, {len(trace.instances):,} instances, {len(trace.rules):,} rules")
    echo(f"No packing has a score below {bound:,.2f}.")
    rows = [
        ("score", f"{before.score:,.2f}", f"{after.score:,.2f}"),
        ("pending instances", before.pending_count, after.pending_count),
        ("machines used", before.used_count, after.used_count),
        ("machines overloaded", before.overloaded_count, after.overloaded_count),
        ("rules broken", before.broken_count, after.broken_count),
    ]
    _table(("", "before", "after"), rows)
    echo()
    _table(
        ("seconds", "cpu seconds", "steps", "pending", "score"),
        [
            (f"{e.seconds:.1f}", f"{e.cpu_seconds:.1f}", f"{e.steps:,}", e.pending, f"{e.score:,.2f}")
            for e in way
        ],
    )


def _table(titles: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    columns = [Column(title.upper(), itemgetter(str(i)), right=i > 0) for i, title in enumerate(titles)]
    print_table("", columns, [{str(i): value for i, value in enumerate(row)} for row in rows])


def _as_json(trace: Tianchi, search: Peaks, before: Judged, after: Judged, way: list[Look]) -> dict[str, Any]:
    names = [*trace.machines, None]
    placed = zip(trace.instances, search.node.tolist(), strict=True)
    return {
        "bound": search.bound()[0],
        "before": before._asdict(),
        "after": after._asdict(),
        "way": [each._asdict() for each in way],
        "placement": {instance: names[machine] for instance, machine in placed},
    }
