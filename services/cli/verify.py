"""`berth explain decision --verify` and `--as-case`: one decision planned once more, or as a scenario."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from services.cli import output
from services.cli.output import Format
from services.cli.reaching import reach_ledger
from services.cli.terminal import echo
from services.config import Settings

if TYPE_CHECKING:
    from services.replay.planning import Progress
    from services.replay.verify import Verified

_SECONDS_BETWEEN = 1.0


class Told:
    """Says on standard error how many batches are to be planned, and now and then how many were."""

    def __init__(self) -> None:
        self._shown_at: float | None = None

    async def report(self, progress: Progress) -> None:
        """Take how far it is; the first time is before the first batch."""
        if self._shown_at is None:
            begun = f"from the checkpoint after batch {progress.checkpoint:,}"
            output.say(f"planning {_batches(progress.total)} again, {begun}", err=True)
            self._shown_at = time.monotonic()
        elif time.monotonic() - self._shown_at >= _SECONDS_BETWEEN:
            self._shown_at = time.monotonic()
            echo(f"{progress.batches_count:,} of {progress.total:,} batches", err=True)


async def verify_decision(settings: Settings, decision: tuple[int, int], form: Format) -> None:
    """Plan a decision again, and say what came of it; exit code 1 where anything differs."""
    from services import bootstrap

    await reach_ledger(settings)
    async with bootstrap.place(settings, join=True) as at:
        found = await bootstrap.verify(at, *decision, Told().report)
    if form is Format.JSON:
        output.print_json(_plain(found))
    elif form is Format.YAML:
        output.print_yaml(_plain(found))
    else:
        output.say(_told(found))
    if not found.is_same:
        raise typer.Exit(1)


async def print_case(settings: Settings, decision: tuple[int, int], form: Format) -> None:
    """Print a decision as a scenario: JSON with an object a line, or YAML."""
    from services import bootstrap

    await reach_ledger(settings)
    async with bootstrap.place(settings, join=True) as at:
        document = await bootstrap.case(at, *decision, Told().report)
    if form is Format.YAML:
        output.print_yaml(document)
    else:
        echo(_lined(document))


def _lined(document: Mapping[str, Any]) -> str:
    """Return a scenario as JSON, each of its objects in one line."""
    return _block("{", [f"{_text(key)}: {_several(value)}" for key, value in document.items()], "}")


def _several(value: Any) -> str:
    if isinstance(value, list) and value:
        return _block("[", map(_text, value), "]")
    if isinstance(value, dict) and value:
        return _block("{", [f"{_text(key)}: {_text(each)}" for key, each in value.items()], "}")
    return _text(value)


def _block(begin: str, lines: Iterable[str], end: str) -> str:
    return "\n".join((begin, ",\n".join(lines), end))


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _plain(found: Verified) -> dict[str, object]:
    return {"same": found.is_same, **msgspec.to_builtins(found)}


def _batches(count: int) -> str:
    return "1 batch" if count == 1 else f"{count:,} batches"


def _told(found: Verified) -> str:
    done = found.progress
    of = f" of shard {found.shard}" if found.shard else ""
    planned = (
        f"planned from the checkpoint after batch {done.checkpoint:,} and the "
        f"{_batches(done.batches_count)} up to batch {found.batch:,}{of}"
    )
    lines = [f"decision {found.id}: {'other' if found.differing else 'the same'} bytes, {planned}"]
    if found.was_changed:
        lines.append("The journal has it as it was planned again: it was changed in the ledger.")
    lines += [
        f"{each.field or 'the record'}\n  recorded  {each.recorded}\n  replayed  {each.replayed}"
        for each in found.differing
    ]
    if (beside := found.beside) is not None:
        of = f" of shard {beside.shard}" if beside.shard else ""
        lines.append(
            f"but batch {beside.batch:,}{of} differs: {beside.what}\n"
            f"  recorded  {beside.recorded}\n  replayed  {beside.replayed}"
        )
    return "\n".join(lines)
