"""The ``Chronicle`` port over a ``MemoryDatabase``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from domain.model.decisions import Decision, Outcome
from services.adapters.memory.access import moment
from services.adapters.memory.database import MemoryDatabase
from services.adapters.memory.pages import page
from services.ports.chronicle import (
    JournalKept,
    PastAction,
    PastDecision,
    PastFault,
    PastPlace,
    PastSpec,
    Rank,
    Window,
    in_window,
)
from services.ports.journal import BATCHES
from services.ports.pods import DecisionRow
from services.ports.rows import Rows

T = TypeVar("T", PastAction, PastDecision, PastSpec)


class MemoryChronicle:
    """See ``Chronicle``."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._database = database

    async def of_pod(
        self, namespace: str, name: str, seen: Collection[str] | None, window: Window
    ) -> Rows[PastDecision]:
        """See ``Chronicle.of_pod``."""
        return self._decisions(lambda made: (made.namespace, made.name) == (namespace, name), seen, window)

    async def on_node(self, node: str, seen: Collection[str] | None, window: Window) -> Rows[PastDecision]:
        """See ``Chronicle.on_node``."""
        return self._decisions(lambda made: made.node == node, seen, window)

    def _decisions(
        self, keep: Callable[[Decision], bool], seen: Collection[str] | None, window: Window
    ) -> Rows[PastDecision]:
        found = []
        for shard, rows in self._database.decisions.items():
            for (made, payload), at_ms in zip(rows, self._database.recorded_ms[shard], strict=True):
                if not keep(made) or (seen is not None and made.namespace not in seen):
                    continue
                row = DecisionRow(shard, made.seq, made.signature, made.cycle_seq, moment(at_ms), payload)
                is_last = made.outcome is Outcome.EVICTED
                place = (made.decided_at_ms, at_ms * 1000, Rank.DECISION, is_last, made.seq, shard)
                found.append(PastDecision(PastPlace(*place), row))
        return _page(found, window, lambda each: len(each.row.payload))

    async def specs(self, node: str, window: Window) -> Rows[PastSpec]:
        """See ``Chronicle.specs``."""
        number = next((row.id for row in self._database.nodes.values() if row.name == node), None)
        told = self._database.past.specs.get(number, []) if number is not None else []
        found = [
            PastSpec(
                PastPlace(each.at_ms, each.recorded_ms * 1000, Rank.SPEC, False, each.version, 0),
                each.version,
                each.spec,
                each.deleted,
                each.sent_by,
                each is told[0],
            )
            for each in told
        ]
        return _page(found, window)

    async def actions(
        self, nodes: Sequence[str], pod: str | None, seen: Collection[str] | None, window: Window
    ) -> Rows[PastAction]:
        """See ``Chronicle.actions``."""
        states = self._database.measured.latest(None, seen, None)
        found = [
            PastAction(PastPlace(each.row.logged_ms, 0, Rank.ACTION, False, each.number, 0), each)
            for each in states
            if each.row.action.node in nodes and pod in (None, each.row.action.pod)
        ]
        return _page(found, window)

    async def faults(self, shard: int) -> Sequence[PastFault]:
        """See ``Chronicle.faults``: when one was found is not kept here."""
        return [
            PastFault(
                PastPlace(0, 0, Rank.FAULT, False, each.epoch, shard),
                each.at.topic,
                each.at.partition,
                each.epoch,
                each.code,
                each.next_offset,
                each.goes_on_at,
            )
            for each in self._database.log_faults
            if each.at.partition == shard
        ]

    async def journal(self, shard: int) -> JournalKept | None:
        """See ``Chronicle.journal``."""
        batches = sorted(batch for of, batch in self._database.journal if of == shard)
        if not batches:
            return None
        counted = self._database.offsets.get((shard, BATCHES, 0))
        last = max(batches[-1], 0 if counted is None else counted.next_offset)
        return JournalKept(batches[0], last, last - batches[0] + 1 - len(batches))


def _page(found: Iterable[T], window: Window, size: Callable[[T], int] = lambda _: 0) -> Rows[T]:
    rows = [each for each in found if in_window(each.place, window)]
    ordered = sorted(rows, key=lambda each: each.place, reverse=window.newest_first)
    return page(ordered, window.limit, size)
