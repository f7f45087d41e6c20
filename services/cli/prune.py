"""`berth prune`: deletes history that is no longer needed."""

from __future__ import annotations

import typer

from services.cli.audit import reporter, told
from services.cli.options import PLACE, with_settings
from services.cli.output import say
from services.cli.terminal import echo
from services.config import Settings


@with_settings(*PLACE, "journal_hours", "history_days", "bill_days", "rollup_days")
async def prune(settings: Settings) -> None:
    """Audit the ledger, then delete the history that is older than the settings say, in small steps.

    Deletes nothing that is not audited or not published, and nothing that explains a pod which is placed or
    waits. Runs beside everything else, once a day for example. Exit code 1 where the audit finds a broken
    invariant: then nothing is deleted.
    """
    from services import bootstrap

    async with bootstrap.place(settings, join=True) as at:
        await bootstrap.check_database(at, "prune")
        found, pruned = await bootstrap.prune(at, settings, reporter())
    say("\n".join(told(found)))
    if pruned is None:
        echo("nothing is pruned before the audit finds that all holds", err=True)
        raise typer.Exit(1)
    for table, count in pruned._asdict().items():
        if table != "held":
            echo(f"{table}: {count:,} rows pruned")
    for each in pruned.held:
        echo(f"held: {each.what}, by {each.by}. Remedy: {each.remedy}", err=True)
