"""`berth audit`: whether the ledger holds what it promises."""

from __future__ import annotations

import datetime
import enum
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli.options import PLACE, with_settings
from services.cli.output import say
from services.cli.reaching import reach_ledger
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural
from services.times import TIMES, moment_ms

if TYPE_CHECKING:
    from services.ports.audit import Audit

_SECONDS_BETWEEN = 1.0
_ROWS_SHOWN_MAX = 5


class AuditFormat(enum.StrEnum):
    """The formats of `-o` here."""

    TEXT = "text"
    JSON = "json"


@with_settings(*PLACE)
async def audit(
    settings: Settings,
    since: Annotated[
        str | None, typer.Option("--since", help=f"Only of what was recorded since then: {TIMES}.")
    ] = None,
    everything: Annotated[bool, typer.Option("--full", help="Of all history that is kept.")] = False,
    topic: Annotated[
        bool, typer.Option("--topic", help="Compare berth.decisions with the ledger, too; needs the log.")
    ] = False,
    unconfirmed: Annotated[
        int,
        typer.Option(
            "--unconfirmed",
            min=0,
            metavar="SECONDS",
            help="Warn of pods of which nothing was heard for so long since they were placed; 0: do not ask.",
        ),
    ] = 0,
    form: Annotated[AuditFormat, typer.Option("-o", "--output", help="How to show it.")] = AuditFormat.TEXT,
) -> None:
    """Ask the ledger's invariants: of its present state, and of its history since the last audit.

    Reads one snapshot of a live ledger. What was audited is remembered where this login may write the table
    `audits`. Exit code 1 where an invariant is broken, with the first offenders.
    """
    from services import bootstrap
    from services.api.answers_audit import audit_answer

    begun = None
    if since is not None:
        at_ms = moment_ms("--since", since)
        begun = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
    await reach_ledger(settings)
    async with bootstrap.place(settings, join=True) as at:
        found = await bootstrap.audit(
            at, begun, reporter(), everything=everything, topic=topic, unconfirmed_seconds=unconfirmed
        )
    if form is AuditFormat.JSON:
        import msgspec

        echo(msgspec.json.format(msgspec.json.encode(audit_answer(found))).decode())
    else:
        say("\n".join(told(found)))
    if not found.ok:
        raise typer.Exit(1)


def reporter() -> Callable[[str], None]:
    """Return a function that says on standard error what is done, at most once a second."""
    shown_at = time.monotonic()

    def report(what: str) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _SECONDS_BETWEEN:
            shown_at = time.monotonic()
            echo(what, err=True)

    return report


def told(found: Audit) -> list[str]:
    """Return what an audit found, in lines."""
    lines = []
    for each in found.broken:
        lines.append(f"{each.name} {'is a warning' if each.warning else 'is broken'}: {each.says}")
        lines += ["  " + "  ".join(f"{k}={v}" for k, v in row.items()) for row in each.rows[:_ROWS_SHOWN_MAX]]
        if len(each.rows) > _ROWS_SHOWN_MAX:
            lines.append("  … and more: -o json shows the first hundred")
    for passed in found.passed_over:
        since = "" if passed.acknowledged_at is None else f" on {passed.acknowledged_at:%Y-%m-%d %H:%MZ}"
        lines.append(
            f"passed over: {plural(passed.records_count, 'record')} of berth.decisions, partition "
            f"{passed.shard}, from offset {passed.first_offset} to {passed.last_offset}, which the ledger "
            f"does not have; acknowledged{since}"
        )
    hold = found.invariants_count - len(found.broken)
    records = "" if found.records_count is None else f", {plural(found.records_count, 'record')} of the topic"
    lines.append(
        f"{hold} of {found.invariants_count} invariants hold, of the present state and "
        f"{plural(found.decisions_count, 'decision')}{records}; {found.seconds:.1f} s"
    )
    if not found.remembered:
        lines.append("not remembered: the next audit begins where this one began")
    return lines
