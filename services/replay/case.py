"""Makes a scenario for `berth plan` of a past decision: the state before its attempt, and what it said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from domain.model.decisions import Attempt
from domain.model.errors import BerthError, FieldError
from domain.model.pods import PodSpec
from services.ports.history import History
from services.ports.journal import JournalRow
from services.replay.as_scenario import (
    PLANNED,
    Expected,
    Turn,
    expected_of,
    failing_turns,
    find,
    scenario_of,
    turns,
    why_other,
)
from services.replay.compare import decoded
from services.replay.planning import Again
from services.replay.verify import Verification, batch_of
from services.replay.workers import named

Json = dict[str, Any]


class NoCase(BerthError):
    """A past decision cannot be written as a scenario. The message says why."""

    code = "no-case"


class Cases:
    """Makes scenarios of past decisions."""

    def __init__(self, history: History, verification: Verification) -> None:
        self._history, self._verification = history, verification
        self._failed: dict[tuple[str, bytes, int], tuple[int, int]] = {}

    async def of(self, shard: int, seq: int) -> Json:
        """Return the scenario of a decision.

        Raises
        ------
        NoCase
            No attempt made the decision, or a scenario cannot say what the attempt saw.
        CannotReplay
            There is no such decision, or journal and checkpoints do not reach back to it.
        LogTooShort
            The log no longer has the records.
        """
        name = f"{shard}-{seq}"
        row = await batch_of(self._history, shard, seq)
        recorded = await self._history.decisions({shard: (seq, seq + 1)})
        record = decoded(recorded[0]) if recorded else {}
        if not record:
            raise NoCase(f"decision {name} is not in the ledger any more, or cannot be read")
        if record["outcome"] not in PLANNED:
            raise NoCase(
                f"decision {name} has the outcome {record['outcome']}: no attempt led to it; those that end "
                f"in {', '.join(PLANNED)} can be written as a scenario"
            )
        again = await self._again(row, name)
        result = again.planner.result
        key = f"{record['pod']['namespace']}/{record['pod']['name']}"
        at = None if result is None else find(result, key)
        expected = None if result is None or at is None else expected_of(result, at)
        if result is None or at is None or expected is None or not _is_recorded(expected, record):
            raise NoCase(
                f"decision {name} is not planned again as it was recorded: --verify says what differs"
            )
        verdict = result.verdicts[at]
        about = f"decision {name}, {record['decided_at']}, of {named(row)}"
        attempt = result.attempts[verdict.attempt]  # type: ignore[union-attr]
        why = ""
        if attempt.repeated_at:
            document, why = await self._before(again.row, attempt, verdict.pod, expected, about)
            if document is not None:
                return document
        document, said = self._first(again, turns(again.planner.scheduler, result, at), expected, about)
        if document is None:
            raise NoCase(
                f"decision {name} cannot be written as a scenario: `berth plan` would answer {why or said}"
            )
        return document

    async def _again(self, row: JournalRow, name: str) -> Again:
        """Return a batch, planned once more; note on the way which attempts failed in which batch."""
        async with contextlib.aclosing(self._verification.planned(row, name)) as batches:
            async for again, _ in batches:
                if (again.row.shard, again.row.batch) == (row.shard, row.batch):
                    return again
                for attempt in () if again.planner.result is None else again.planner.result.attempts:
                    if attempt.reasons_at_failure and not attempt.repeated_at:
                        key = again.row.worker, attempt.signature, attempt.generation
                        self._failed[key] = again.row.shard, again.row.batch
        raise NoCase(f"{named(row)} is not in the journal any more")

    async def _before(
        self, row: JournalRow, attempt: Attempt, pod: PodSpec, expected: Expected, about: str
    ) -> tuple[Json | None, str]:
        """Return the scenario of an attempt of an earlier batch, whose verdict was told to a further pod."""
        at = self._failed.get((row.worker, attempt.signature, attempt.generation))
        if at is None:
            return None, "what it was told was found before the checkpoint"
        shard, batch = at
        async for earlier in self._history.rows({shard: batch - 1}, {shard: batch}):
            again = await self._again(earlier, about)
            result = again.planner.result
            assert result is not None
            same = (
                number
                for number, each in enumerate(result.attempts)
                if (each.signature, each.generation) == (attempt.signature, attempt.generation)
            )
            found = failing_turns(again.planner.scheduler, result, next(same), pod)
            about = f"{about}; it was told what {named(earlier)} had found"
            return self._first(again, found, expected, about)
        return None, "what it was told was found in a batch that the journal lacks"

    def _first(
        self, again: Again, found: Iterable[Turn], expected: Expected, about: str
    ) -> tuple[Json | None, str]:
        """Return the first scenario that is answered alike; else what the first one answers."""
        said, result = "", again.planner.result
        assert result is not None
        for turn in found:
            document = scenario_of(again.planner.scheduler, result, turn, expected, about)
            try:
                why = why_other(document, expected)
            except FieldError as error:
                why = f"an error, {error}"
            if not why:
                return document, ""
            said = said or why
        return None, said


def _is_recorded(expected: Expected, record: Any) -> bool:
    """Say whether what was planned again is what was recorded."""
    outcome, node = record["outcome"], record["node"]
    return (expected.outcome, expected.node) == (outcome, node)
