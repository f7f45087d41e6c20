"""Turns what other workers' feeds say into the events by which their batches are folded."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import msgspec

from domain.model.events import Event, NodeUsed, ProfileEvent
from domain.model.pods import PodSpec
from domain.model.usage import NodeUsage
from domain.state.changes import (
    Change,
    ConfigChanged,
    FollowRefused,
    NodeMeasured,
    ProfileChanged,
    Refused,
    Skipped,
)
from domain.state.nominations import Nomination
from domain.state.steps import (
    FollowedStep,
    GoneFollowed,
    HostedSaid,
    NodeFollowed,
    NominationsFollowed,
    PodFollowedRefreshed,
    PodsFollowed,
    PodsFollowedCounted,
    PodsLeft,
    ReliefsFollowed,
    VersionsFollowed,
)
from domain.state.usage import USAGE_SHARD
from services.codec.feed import FeedEvent, unpack_event
from services.ports.journal import Feed, Followed, NominationFed
from services.worker.batch import BatchBuilder
from services.worker.ledger_view import LedgerView
from services.worker.moving import reliefs_of

_LOGGER = logging.getLogger(__name__)

SAID_MAX = 10
"""So much of what contradicts what is known here is said by name, of each plan."""


def is_news(changes: Sequence[Change]) -> bool:
    """Say whether an event changed anything, so that workers that do not read it have to fold it."""
    return not all(isinstance(each, Skipped | Refused) for each in changes)


def as_folded(event: FeedEvent, changes: Sequence[Change]) -> FeedEvent:
    """Return an event as others fold it: a measurement in percent of what its node had here."""
    match changes:
        case [NodeMeasured(usage=NodeUsage() as usage)]:
            return NodeUsed(usage)
    return event


def without_measured(events: list[tuple[int, FeedEvent]], node: str) -> list[tuple[int, FeedEvent]]:
    """Return a feed's events without measurements of a node that was deleted after them.

    A follower folds what became of nodes before any event.
    """
    return [each for each in events if not (isinstance(each[1], NodeUsed) and each[1].usage.node == node)]


def take_followed(change: Change, builder: BatchBuilder, ledger_view: LedgerView) -> None:
    """Take what following another worker changed: what that wrote is in the ledger; own pods are not."""
    match change:
        case NodeMeasured() if USAGE_SHARD not in ledger_view.epochs:
            pass
        case ProfileChanged() | ConfigChanged():
            pass
        case FollowRefused():
            ledger_view.refused_count += 1
            if ledger_view.refused_count <= SAID_MAX:
                said = msgspec.structs.astuple(change)
                _LOGGER.warning("passing over what another worker did: %s %s %s", *said)
            elif ledger_view.refused_count == SAID_MAX + 1:
                _LOGGER.warning("passing over more of it: berth_worker_follow_refused_total counts all")
        case _:
            builder.add_change(change, None, 0)


def events_of(row: Followed) -> Iterator[tuple[Event | ProfileEvent | FollowedStep | HostedSaid, str | None]]:
    """Yield what a batch says, in an order in which it can be folded, each with who sent the event behind it.

    Cost: about a microsecond per pod, with the fold.
    """
    feed = row.feed
    if feed.closed:
        yield PodsLeft(feed.closed), None
    yield from _nodes(feed)
    if feed.counted:
        yield PodsFollowedCounted(feed.counted), None
    pods, done = _pods(row), 0
    for before, kind, packed in feed.events:
        if before > done:
            yield _placed(row, pods, done, before), None
            done = before
        yield unpack_event(kind, packed), None
    if done < len(pods):
        yield _placed(row, pods, done, len(pods)), None
    for uid, version, labels, life in zip(
        feed.refreshed.uids, feed.refreshed.versions, feed.refreshed.labels, feed.refreshed.lives, strict=True
    ):
        yield PodFollowedRefreshed(uid, version, feed.labels[labels], feed.lives[life]), None
    if feed.unnominated or feed.nominated:
        yield NominationsFollowed([_nomination(fed, row) for fed in feed.nominated], feed.unnominated), None
    if feed.moves is not None:
        yield ReliefsFollowed(reliefs_of(feed.moves.moved), feed.moves.spared, feed.moves.rested), None
    if feed.hosted is not None:
        yield HostedSaid(feed.hosted), None


def gone_of(row: Followed, step_ms: int) -> GoneFollowed | None:
    """Return what is gone since a batch, each at the step of log time in which it went; None: nothing."""
    gone = row.feed.gone
    if gone is None or not gone.keys:
        return None
    times = [row.log_time_ms - ago_ms for ago_ms in gone.ago_ms]
    return GoneFollowed(gone.keys, gone.uids, gone.versions, [at_ms - at_ms % step_ms for at_ms in times])


def _nomination(fed: NominationFed, row: Followed) -> Nomination:
    signature = row.feed.signatures[fed.template]
    return Nomination(
        key=fed.key,
        uid=fed.uid,
        shard=fed.shard,
        node=fed.node,
        signature=signature,
        template=row.templates[signature],
        at_ms=fed.at_ms,
        expires_ms=fed.expires_ms,
        victims=fed.victims,
    )


def _nodes(feed: Feed) -> Iterator[tuple[NodeFollowed | VersionsFollowed, str | None]]:
    """Yield the specs that a batch gave nodes, then the nodes on which only pods came and went."""
    changes, raised = feed.changes, len(feed.specs)
    for index, (fed, count) in enumerate(zip(feed.specs, changes, strict=False)):
        yield (
            NodeFollowed(
                name=feed.nodes[index],
                ordinal=fed.id,
                changes=count,
                spec=fed.spec,
                deleted=fed.deleted,
                was_gone=fed.was_gone,
                spec_count=fed.spec_count,
            ),
            fed.sent_by,
        )
    if raised < len(changes):
        yield VersionsFollowed(feed.nodes[raised : len(changes)], changes[raised:]), None


def _pods(row: Followed) -> list[PodSpec]:
    """Return the pods that a batch placed; those of equal labels share them."""
    feed, opened = row.feed, row.feed.opened
    templates = [row.templates[signature] for signature in feed.signatures]
    signatures, labels = feed.signatures, feed.labels
    pods = [
        PodSpec(
            uid=uid,
            key=key,
            resource_version=version,
            template=templates[template],
            signature=signatures[template],
            labels=labels[number],
        )
        for uid, key, version, template, number in zip(
            opened.uids, opened.keys, opened.versions, opened.templates, opened.labels, strict=True
        )
    ]
    if any(opened.adopted) or feed.lives != [None]:  # of few pods is more known
        for i, (pod, adopted, life) in enumerate(zip(pods, opened.adopted, opened.lives, strict=True)):
            if adopted or feed.lives[life] is not None:
                node = feed.nodes[opened.nodes[i]] if adopted else ""
                pods[i] = msgspec.structs.replace(pod.living(feed.lives[life]), node_name=node)
    return pods


def _placed(row: Followed, pods: list[PodSpec], start: int, end: int) -> PodsFollowed:
    feed, opened, now_ms = row.feed, row.feed.opened, row.log_time_ms
    return PodsFollowed(
        pods=pods[start:end],
        nodes=[feed.nodes[node] for node in opened.nodes[start:end]],
        adopted=opened.adopted[start:end],
        shards=opened.shards[start:end],
        placed_ms=[now_ms - each for each in opened.ago_ms[start:end]],
        uncounted=frozenset(feed.uncounted),
    )
