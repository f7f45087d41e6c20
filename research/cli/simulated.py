"""How `berth simulate` shows its answers: tables, JSON, and a file of all looks."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.cli.output import Column, Format, Json, on_terminal, print_table, print_value, say
from services.cli.terminal import echo

if TYPE_CHECKING:
    from research.simulate.running import Run
    from research.simulate.trace import Trace


GPU = "gpu-milli"


def show(trace: Trace, runs: Sequence[Run], form: Format, *, series: bool) -> None:
    """Print what became of a trace."""
    if form in (Format.JSON, Format.YAML):
        print_value(document(trace, runs), form)
        return
    from research.simulate.measuring import titles

    wide = form is Format.WIDE
    names = titles(trace.resources)
    if series:
        rows = [_row(run, i) for run in runs for i in range(len(run.looks))]
        print_table("looks", (_TIME, *_columns(names, cost=False)), rows, wide=wide)
        return
    at = fullest(runs)
    rows = [_row(run, at) for run in runs]
    print_table("runs", _columns(names, cost=True), rows, wide=wide)
    echo()
    print_table("resources", _RESOURCE, [each for run in runs for each in _resources(run, at)], wide=wide)
    if any(row["look"]["unplaced"] for row in rows):
        echo()
        print_table("pods", _SIZES, rows, wide=wide)
    _explain(trace, runs, at)


def fullest(runs: Sequence[Run]) -> int:
    """Return at which look most pods run, in all runs together; the latest of equal ones."""
    running = [
        sum(look.running for look in looks) for looks in zip(*(run.looks for run in runs), strict=False)
    ]
    return max(range(len(running)), key=lambda at: (running[at], at))


def _explain(trace: Trace, runs: Sequence[Run], at: int) -> None:
    """Say what the tables show; in a pipe on standard error, so that tables stay tables."""
    look, err = runs[0].looks[at], not on_terminal()
    of = "what pods use" if look.by_usage else "what pods request"
    echo(err=err)
    say(
        "PLACED, MOST, MOVED and POD are of the whole trace, all else of the look at which most pods run, "
        f"at {_time(look.seconds)} (--series shows all looks). PLACED: decisions for a node. WAIT: pods "
        "without one, MOST: the most at any look. MOVED: pods evicted or moved. Z: imbalance of a node's "
        "resources. POD: processor time of a decision. STD, RANGE: "
        f"of the nodes' utilisation, by {of}. OVER: nodes beyond what they offer. STRANDED: free "
        "where no pod fits that asks for it. FRAG: GPUs that are free and of no use to the pods of the "
        "trace, on their mean (FGD's measure).",
        err=err,
    )
    if trace.choices:
        echo(err=err)
        say(f"What the trace {trace.name} leaves open:", err=err)
    for choice in trace.choices:
        say(f"- {choice}", err=err)


def document(trace: Trace, runs: Sequence[Run]) -> Json:
    """Return everything as JSON; what differs from run to run is in ``cost`` alone."""
    import msgspec

    return {
        "trace": trace.name,
        "choices": list(trace.choices),
        "resources": list(trace.resources),
        "runs": [msgspec.to_builtins(run) for run in runs],
    }


_FIELDS = ("arrived", "placements", "moved", "running", "waiting", "imbalance", "fragmentation")
_OF_RESOURCE = ("allocated", "deviation", "lowest", "highest", "overloaded", "stranded")


def write_csv(path: Path, runs: Sequence[Run]) -> None:
    """Write all looks, a line for each resource; no times, so that equal seeds give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(
            ("trace", "profile", "seed", "seconds", *_FIELDS, "unplaced", "resource", *_OF_RESOURCE)
        )
        for run in runs:
            for look in run.looks:
                of_all = [getattr(look, field) for field in _FIELDS]
                sizes = " ".join(f"{size}={count}".replace(" ", "") for size, count in look.unplaced.items())
                for r, resource in enumerate(run.resources):
                    each = [getattr(look, field)[r] for field in _OF_RESOURCE]
                    lines.writerow(
                        (run.trace, run.method, run.seed, look.seconds, *of_all, sizes, resource, *each)
                    )


def _row(run: Run, at: int) -> dict[str, Any]:
    import msgspec

    return {
        "name": run.method,
        "look": msgspec.to_builtins(run.looks[at]),
        "last": msgspec.to_builtins(run.looks[-1]),
        "most": max(look.waiting for look in run.looks),
        "cost": run.cost.decision_us,
    }


def _resources(run: Run, at: int) -> list[dict[str, Any]]:
    from research.simulate.measuring import titles

    look = run.looks[at]
    return [
        {
            "name": run.method,
            "resource": title,
            "allocated": look.allocated[r],
            "deviation": look.deviation[r],
            "lowest": look.lowest[r],
            "highest": look.highest[r],
            "overloaded": look.overloaded[r],
            "stranded": look.stranded[r],
        }
        for r, title in enumerate(titles(run.resources))
    ]


def _columns(names: Sequence[str], *, cost: bool) -> tuple[Column, ...]:
    def count(title: str, read: Callable[[Json], int]) -> Column:
        return Column(title, lambda row: f"{read(row):,}", right=True)

    found = [
        Column("PROFILE", lambda row: row["name"], keep=True),
        count("PLACED", lambda row: row["last" if cost else "look"]["placements"]),
        count("WAIT", lambda row: row["look"]["waiting"]),
        count("MOVED", lambda row: row["last" if cost else "look"]["moved"]),
    ]
    if GPU in names:
        gpu = names.index(GPU)
        found.append(Column("GPU %", lambda row: f"{100 * row['look']['allocated'][gpu]:.2f}", right=True))
        found.append(Column("FRAG %", lambda row: _percent(row["look"]["fragmentation"]), right=True))
    found.append(Column("Z", lambda row: f"{row['look']['imbalance']:.4f}", right=True))
    if cost:
        found.insert(3, count("MOST", lambda row: row["most"]))
        found.append(Column("POD", lambda row: _cost(row["cost"]), right=True))
    return tuple(found)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"


def _time(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.0f}s"


_TIME = Column("TIME", lambda row: _time(row["look"]["seconds"]), right=True)
_RESOURCE = (
    Column("PROFILE", lambda row: row["name"], keep=True),
    Column("RESOURCE", lambda row: row["resource"]),
    Column("USED %", lambda row: f"{100 * row['allocated']:.1f}", right=True),
    Column("STD %", lambda row: f"{100 * row['deviation']:.2f}", right=True),
    Column("RANGE %", lambda row: f"{100 * row['lowest']:.0f}..{100 * row['highest']:.0f}", right=True),
    Column("OVER", lambda row: row["overloaded"], right=True),
    Column("STRANDED %", lambda row: f"{100 * row['stranded']:.2f}", right=True),
)
_SIZES = (
    Column("PROFILE", lambda row: row["name"], keep=True),
    Column(
        "WAITING BY SIZE",
        lambda row: (
            ", ".join(f"{count:,} of {size}" for size, count in row["look"]["unplaced"].items()) or "none"
        ),
    ),
)


def _cost(us: float) -> str:
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"
