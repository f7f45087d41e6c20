"""Waits until events are folded. One look at the ledger every 20 ms serves all requests that wait."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from domain.model.errors import BerthError, FieldError
from domain.model.events import PodDeleted, PodUpserted
from domain.model.limits import wait_seconds_max
from domain.model.pods import PodSpec
from domain.model.validation import shown
from services.api.answers import DeadLetter, Ingested
from services.api.answers_decisions import Decision
from services.api.explanation import decision_of
from services.api.views import dead_letter_of
from services.background import begin
from services.codec.gateway import Outgoing
from services.codec.partition import partition_for
from services.ports.inbox import home_of, inbox_topic
from services.ports.log import PODS_TOPIC, Log, Span, TopicPartition
from services.ports.store import Store

POLL_SECONDS = 0.02


Until = Literal["folded", "decided"]
"""What a request waits for."""


class Appended(NamedTuple):
    """What a request sent: its answer so far, its events, and the log's positions of the new ones."""

    answer: Ingested
    events: Sequence[Outgoing]
    spans: Sequence[Span]


def seconds_of(text: str) -> float:
    """Read how long to wait, as ``5s``, ``250ms`` or ``5``."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|)", text)
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else -1
    if not 0 <= seconds <= wait_seconds_max:
        allowed = f"allowed are 0s to {wait_seconds_max}s, as 5s or 250ms"
        raise FieldError("query.wait", f"{shown(text)} is no time to wait; {allowed}")
    return seconds


class Folding:
    """Wakes requests when the ledger has reached the offsets that they wait for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Event, Mapping[TopicPartition, int]] = {}
        self._polling: asyncio.Task[None] | None = None

    async def reached(self, ends: Mapping[TopicPartition, int], seconds: float) -> bool:
        """Return whether all records before these offsets are folded within the time.

        Events of gangs are folded when the home of their gang has taken them.
        """
        event = asyncio.Event()
        self._waiting[event] = ends
        if self._polling is None or self._polling.done():
            self._polling = begin("looking whether events are folded", self._poll())
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            del self._waiting[event]
        return True

    async def _poll(self) -> None:
        while self._waiting:
            with contextlib.suppress(BerthError):  # a ledger that is away may come back in time
                rows = await self._store.processes.offsets()
                folded = {TopicPartition(row.topic, row.partition): row.next_offset for row in rows}
                for event, ends in self._waiting.items():
                    if not _are_reached(ends, folded):
                        continue
                    # Once, so that what is handed over later is not waited for.
                    handed = {at: end for at, end in _handed(ends, folded).items() if folded.get(at, 0) < end}
                    if handed:
                        self._waiting[event] = handed
                    else:
                        event.set()
            await asyncio.sleep(POLL_SECONDS)


def _are_reached(ends: Mapping[TopicPartition, int], folded: Mapping[TopicPartition, int]) -> bool:
    return all(folded.get(at, 0) >= end for at, end in ends.items())


def _handed(
    ends: Mapping[TopicPartition, int], folded: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return how far the homes of gangs have to take what was read of partitions of pods and handed over."""
    lanes = ((at, end, home_of(at.topic)) for at, end in folded.items())
    return {
        TopicPartition(inbox_topic(at.partition), home): end
        for at, end, home in lanes
        if home is not None and (PODS_TOPIC, at.partition) in ends
    }


async def next_letters(store: Store) -> dict[int, int]:
    """Return the number that the next dead letter of each shard will have; ask before anything is sent."""
    return {row.shard: row.dead_seq_next for row in await store.processes.shards()}


async def wait_for(
    sent: Appended,
    folding: Folding,
    store: Store,
    log: Log,
    letters_before: Mapping[int, int],
    *,
    until: Until,
    seconds: float,
) -> Ingested:
    """Wait until the events of a request are folded; return the answer with what became of them.

    Where the log has an event that is not new is not known. The request then waits for everything that its
    partitions hold by now. A pod is decided in the transaction that folds it, so the same wait serves both.
    """
    answer = sent.answer
    ends = await _ends(sent, log)
    answer.folded = await folding.reached(ends, seconds)
    if answer.folded:
        answer.deadletters = await _dead_letters(sent, store, letters_before)
        answer.older = await _older(sent, store)
        if until == "decided":
            answer.decisions = await _decisions(sent, store)
    return answer


async def _ends(sent: Appended, log: Log) -> dict[TopicPartition, int]:
    """Return the offset after the last event of each partition."""
    if sum(span.end - span.first for span in sent.spans) < len(sent.events):
        counts = {topic: await log.partitions(topic) for topic in {each.topic for each in sent.events}}
        places = {
            TopicPartition(each.topic, partition_for(*each.entry[:2], counts[each.topic]))
            for each in sent.events
        }
        return {at: backlog.end for at, backlog in (await log.backlogs(dict.fromkeys(places, 0))).items()}
    ends: dict[TopicPartition, int] = {}
    for span in sent.spans:
        at = TopicPartition(span.topic, span.partition)
        ends[at] = max(ends.get(at, 0), span.end)
    return ends


async def _dead_letters(sent: Appended, store: Store, before: Mapping[int, int]) -> list[DeadLetter]:
    """Return the new records that were refused. Shards without new dead letters are not read."""
    nexts = await next_letters(store)
    since = {shard: seq for shard, seq in before.items() if nexts[shard] > seq}
    return [
        dead_letter_of(each) for each in (await store.new_deadletters(since, sent.spans) if since else [])
    ]


async def _older(sent: Appended, store: Store) -> list[str]:
    """Return the pods whose events may have changed nothing, since a higher version of them stands."""
    versions: dict[str, int] = {}
    for each in sent.events:
        said = each.event.pod if isinstance(each.event, PodUpserted) else each.event
        if isinstance(said, PodSpec | PodDeleted) and said.resource_version is not None:
            pod = (each.entry.key or b"").decode()
            versions[pod] = max(said.resource_version, versions.get(pod, 0))
    known = await store.known_versions(sorted(versions)) if versions else {}
    return sorted(pod for pod, version in known.items() if version > versions[pod])


async def _decisions(sent: Appended, store: Store) -> list[Decision]:
    pods = {(each.entry.key or b"").decode() for each in sent.events if each.topic == PODS_TOPIC}
    return [decision_of(row, store.seen) for row in await store.latest_decisions(sorted(pods))]
