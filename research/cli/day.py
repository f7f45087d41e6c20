"""`berth simulate --job`: a day of co-location with a batch job as high pods, as low ones, and without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from research.cli.results import write_table
from services.cli import documents, inputs
from services.cli.options import CommandError
from services.cli.output import Column, Format, Json, on_terminal, print_table, print_value, say
from services.cli.terminal import echo

if TYPE_CHECKING:
    from domain.model.colocation import CoLocationPolicy
    from research.simulate.day import Day
    from research.simulate.trace import Trace


class AskedDays(NamedTuple):
    """Which days are asked for: those of a job, as which qualities; a policy is a file."""

    core_hours: float
    qualities: Sequence[str]
    profiles: Sequence[str]
    policy: str | None
    seed: int


def compare_days(trace: Trace, asked: AskedDays, csv: Path | None, plots: Path | None, form: Format) -> None:
    """Let the day pass without the job, and once with it as each quality, and show what it came to."""
    days = _days(trace, asked)
    if csv is not None:
        write_csv(csv, days)
    if plots is not None:
        from research.simulate.day_plots import draw_days

        draw_days(plots, days)
    show_days(trace, days, form)


def _days(trace: Trace, asked: AskedDays) -> list[Day]:
    from rich.console import Console
    from rich.progress import Progress

    from domain.model.colocation import CoLocationPolicy, Quality
    from domain.model.pods import COLOCATION_PROFILE
    from research.simulate.day import Job, simulate_day
    from research.simulate.methods import Method

    if trace.curves is None:
        raise CommandError("--job needs a trace that says what pods use: tianchi or day")
    if len(asked.profiles) > 1:
        raise CommandError("--job takes one profile: its days differ by the job alone")
    name = asked.profiles[0] if asked.profiles else COLOCATION_PROFILE
    method = Method(name=Path(name).stem, profile=inputs.profile_of(name))
    policy = CoLocationPolicy() if asked.policy is None else _policy_of(asked.policy)
    qualities = dict.fromkeys(Quality(each) for each in asked.qualities)
    jobs = [None, *(Job(asked.core_hours, quality) for quality in qualities)]
    console, found = Console(stderr=True), list["Day"]()
    with inputs.patience(), Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        shown = bar.add_task("days", total=len(jobs))
        for job in jobs:
            found.append(simulate_day(trace, job, method, seed=asked.seed, policy=policy))
            bar.advance(shown)
    return found


def _policy_of(file: str) -> CoLocationPolicy:
    """Read a CoLocationPolicy for all nodes from a file."""
    from domain.manifests.colocation_policy import WireCoLocationPolicy, policy_from_wire
    from domain.manifests.objects import convert_manifest

    values = [value for value in documents.read_values(file) if value is not None]
    if len(values) != 1:
        raise CommandError(f"{file}: holds {len(values)} documents; a policy is one object")
    with inputs.at(file):
        policy = policy_from_wire(convert_manifest(values[0], WireCoLocationPolicy, ""), "")
    if policy.node_selector:
        raise CommandError(f"{file}: spec.nodeSelector: the policy of a simulated day holds on all nodes")
    return policy


def show_days(trace: Trace, days: Sequence[Day], form: Format) -> None:
    """Print what the days came to."""
    import msgspec

    from research.simulate.day import CHOICES

    choices = [*trace.choices, *CHOICES]
    rows: list[Json] = [msgspec.to_builtins(day) for day in days]
    if form in (Format.JSON, Format.YAML):
        print_value({"trace": trace.name, "choices": choices, "days": rows}, form)
        return
    wide, err = form is Format.WIDE, not on_terminal()
    print_table("days", _DAY, rows, wide=wide)
    echo()
    print_table("services", _SERVICES, rows, wide=wide)
    echo()
    print_table(
        "bill", _BILL, [{**line, "job": row["job"]} for row in rows for line in row["bill"]], wide=wide
    )
    echo(err=err)
    say(
        f"{days[0].nodes_count:,} nodes with {days[0].cores:,.0f} cores, {days[0].services_count:,} pods of "
        "services. TOOK: from when the job came until it was done. CPU %: mean use of all cores in the day, "
        "WHILE %: while the job was there. ENDED: pods of the job that were ended, and why. SUPPRESSED: "
        "core-hours that low pods wanted on their nodes and did not get. CUT: core-seconds that high and mid "
        "pods wanted within their requests and did not get. WAITED, WAITS: high pods of services that found "
        "no node at once, and their waits in sum. AS HIGH: the price of the same use by high pods.",
        err=err,
    )
    echo(err=err)
    say(f"What was chosen, as the trace {trace.name} does not say it:", err=err)
    for choice in choices:
        say(f"- {choice}", err=err)


_STEP = ("seconds", "services", "job", "lent", "suppressed", "running", "waiting", "ended")


def write_csv(path: Path, days: Sequence[Day]) -> None:
    """Write the steps of all days, a line each, in thousandths of a core at most."""
    rows = [
        (day.trace, day.seed, day.job, *(_short(getattr(step, name)) for name in _STEP))
        for day in days
        for step in day.steps
    ]
    write_table(path, ("trace", "seed", "job_as", *_STEP), rows)


def _short(value: float) -> float:
    return round(value, 3)


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "not done"
    minutes = round(seconds / 60)
    return f"{minutes // 60}h{minutes % 60:02d}m"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _ended(row: Json) -> str:
    return ", ".join(f"{count:,} {cause}" for cause, count in row["ended"].items()) or "0"


def _of_job(row: Json, text: str) -> str:
    return text if row["job"] != "none" else ""


_AS = Column("JOB AS", lambda row: row["job"], keep=True)
_DAY = (
    _AS,
    Column("PODS", lambda row: _of_job(row, f"{row['job_pods_count']:,}"), right=True),
    Column("DONE", lambda row: _of_job(row, f"{row['done_core_hours']:,.0f}"), right=True),
    Column("TOOK", lambda row: _of_job(row, _time(row["done_seconds"])), right=True),
    Column("CPU %", lambda row: _percent(row["used"]), right=True),
    Column("WHILE %", lambda row: _percent(row["used_until_done"]), right=True),
    Column("SUPPRESSED", lambda row: f"{row['suppressed_core_hours']:,.1f}", right=True),
    Column("ENDED", _ended),
)
_SERVICES = (
    _AS,
    Column("CUT", lambda row: f"{row['cut_core_seconds']:,.0f}", right=True),
    Column("WAITED", lambda row: f"{row['waits_count']:,}", right=True),
    Column("WAITS", lambda row: f"{row['waits_seconds']:,.0f} s", right=True),
)
_BILL: tuple[Column, ...] = (
    _AS,
    Column("OF", lambda row: row["of"]),
    Column("QUALITY", lambda row: row["quality"]),
    Column("PART", lambda row: row["part"]),
    Column("CORE-HOURS", lambda row: f"{row['core_hours']:,.0f}", right=True),
    Column("PRICE", lambda row: f"{row['price']:,.0f}", right=True),
    Column("AS HIGH", lambda row: f"{row['as_high']:,.0f}", right=True),
)
