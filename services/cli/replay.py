"""`berth replay`: plans what was decided once more, and says whether it comes to the same bytes."""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli import output as out
from services.cli.options import PLACE, CommandError, check_times, with_settings
from services.cli.reaching import reach_ledger
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural
from services.times import TIMES, moment_ms

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.bootstrap import Place
    from services.replay.replay import Outcome, Progress

_SECONDS_BETWEEN = 1.0


class ReplayFormat(enum.StrEnum):
    """The formats of `-o` here."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


@with_settings(*PLACE)
async def replay(
    settings: Settings,
    since: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="BATCH", help=f"From this batch of shard 0 on, or from a time: {TIMES}."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--to", metavar="BATCH", help="Up to this batch of shard 0, or to a time.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME|FILE",
            help="What if all pods had been placed with this profile: one that is in force, or a file.",
        ),
    ] = None,
    nodes: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="FILE",
            help="What if there had been these nodes, added or replaced. Repeatable.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw both worlds, as .png or .svg (--profile, --with)."),
    ] = None,
    form: Annotated[
        ReplayFormat, typer.Option("-o", "--output", help="How to show it; csv with --profile or --with.")
    ] = ReplayFormat.TEXT,
) -> None:
    """Plan recorded batches again from the log, and compare them with the journal, byte by byte.

    Reads the ledger and the log, and writes nothing. Without a span it takes all that can be replayed. Exit
    code 1 where a batch differs, or where the span cannot be replayed.

    With --profile or --with it plans the span as it was and as it would have been, and says what would have
    been different.
    """
    from services import bootstrap
    from services.cli.what_if import changed, draw, print_compared

    report = _reporter()
    is_what_if = profile is not None or bool(nodes)
    _check(since, until, form, plot, is_what_if=is_what_if)
    change = changed(profile, nodes or []) if is_what_if else None
    await reach_ledger(settings)
    async with bootstrap.place(settings, join=True) as at:
        if change is not None and profile is not None and change.profile is None:
            change = change._replace(profile=await bootstrap.profile_in_force(at, profile))
        first = await _batch(at, "--from", since, is_last=False)
        last = await _batch(at, "--to", until, is_last=True)
        if change is not None:
            compared = await bootstrap.what_if(at, change, first, last, report)
            print_compared(compared, form.value)
            if plot is not None:
                draw(compared, plot)
            return
        outcome = await bootstrap.replay(at, first, last, report)
    _print(outcome, form)
    if outcome.difference is not None:
        raise typer.Exit(1)


def _print(outcome: Outcome, form: ReplayFormat) -> None:
    if form is ReplayFormat.JSON:
        import msgspec

        echo(msgspec.json.format(msgspec.json.encode(outcome)).decode())
    else:
        out.say(_told(outcome))


def _reporter() -> Callable[[Progress], Awaitable[None]]:
    """Return what says how far a replay is, once a second."""
    shown_at = time.monotonic()

    async def report(progress: Progress) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _SECONDS_BETWEEN:
            shown_at = time.monotonic()
            done = f"{progress.batches_count:,} of {progress.total:,} batches"
            echo(f"{done} so far", err=True)

    return report


def _check(
    since: str | None, until: str | None, form: ReplayFormat, plot: Path | None, *, is_what_if: bool
) -> None:
    """Refuse what is neither a batch nor a time, or does not go together, before anything is opened."""
    from services.cli.what_if import check_plot

    if not is_what_if and form is ReplayFormat.CSV:
        raise typer.BadParameter("csv is for --profile and --with")
    if not is_what_if and plot is not None:
        raise typer.BadParameter("--plot is for --profile and --with")
    if plot is not None:
        check_plot(plot)
    for name, text in (("from", since), ("to", until)):
        if text is not None and not text.isdecimal():
            check_times(**{name: text})
        elif text is not None and not int(text):
            raise typer.BadParameter(f"--{name}: batches are numbered from 1")


async def _batch(at: Place, option: str, text: str | None, *, is_last: bool) -> int | None:
    """Return the batch that an option names, by its number or by a moment of log time."""
    from services import bootstrap

    if text is None or text.isdecimal():
        return None if text is None else int(text)
    found = await bootstrap.batch_at(at, moment_ms(option, text), is_last=is_last)
    if found is None:
        raise CommandError(f"{option} {text}: the journal has no batch {'before' if is_last else 'since'}")
    return found


def _told(outcome: Outcome) -> str:
    found, done = outcome.difference, outcome.progress
    same = (
        f"{done.batches_count:,} of {done.total:,} batches are the same, "
        f"with {plural(done.decisions_count, 'decision')}, {plural(done.restarts_count, 'restart')} "
        f"and {plural(done.digests_count, 'digest')}"
    )
    begun = f"begun at the checkpoint after batch {done.checkpoint:,}"
    if found is None:
        return f"{same}; {begun}"
    of = f" of shard {found.shard}" if found.shard else ""
    return (
        f"batch {found.batch:,}{of} differs: {found.what}\n"
        f"  recorded  {found.recorded}\n"
        f"  replayed  {found.replayed}\n"
        f"{same}; {begun}"
    )
