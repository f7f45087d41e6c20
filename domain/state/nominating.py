"""Folds what becomes of nominations: a node is promised to a pod, and the promise is kept or ends.

What is promised to the pods of a gang stands together: where one of them loses its node, all do.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from domain.model.events import ConfigEvent
from domain.model.pods import PodSpec
from domain.state.changes import Change, FollowRefused, NominationEnded
from domain.state.config import Config
from domain.state.followed import NominationsFollowed
from domain.state.known_pods import KnownPods
from domain.state.nominations import Nomination, Victim
from domain.state.occupancy import Occupancy
from domain.state.steps import Cleared, Nominated, Repromised, Unnominated


class Nominating:
    """Begins and ends nominations. Those of own pods are in the next batch for the ledger."""

    def __init__(self, occupancy: Occupancy, pods: KnownPods) -> None:
        self._occupancy, self._pods = occupancy, pods
        self._nominations = occupancy.nominations

    def fold(self, step: Nominated | Cleared | Unnominated | Repromised) -> Iterator[Change]:
        """Fold a step of the own cycle."""
        match step:
            case Nominated():
                yield from self._nominate(step)
            case Cleared():
                yield from self._clear(step.keys, step.reason)
            case Unnominated():
                for key in step.keys:
                    nomination, _ = self._end(key)
                    self._occupancy.nodes[nomination.node].version -= 1
            case Repromised():
                for nomination in step.nominations:
                    self._add(nomination, ())

    def _nominate(self, step: Nominated) -> Iterator[Change]:
        entry, nodes = self._pods.entries[step.key], self._occupancy.nodes
        assert not entry.node, "a pod that is placed needs no other node"
        placed = nodes[step.node].pods
        victims = [Victim(key, placed[key].spec.uid, placed[key].shard) for key in step.victims]
        nomination = Nomination(
            key=step.key,
            uid=entry.spec.uid,
            shard=entry.shard,
            node=step.node,
            signature=entry.spec.signature,
            template=entry.spec.template,
            at_ms=step.at_ms,
            expires_ms=step.expires_ms,
            victims=tuple(victims),
        )
        yield from self._outbid(nomination, nomination.priority if step.below is None else step.below)
        assert self._nominations.evicted.keys().isdisjoint(step.victims), "a pod is evicted for one"
        self._add(nomination, victims)
        nodes[step.node].version += 1
        self._occupancy.own_changes.nominate(step.key, step.node)

    def _outbid(self, by: Nomination, below: int) -> Iterator[Change]:
        """End the nominations of own pods of lower priority on the node of another one."""
        lower = [e.key for e in self._nominations.on(by.node) if e.priority < below and self.is_own(e)]
        yield from self._clear(lower, "outbid")

    def _add(self, nomination: Nomination, evicted: Iterable[Victim]) -> None:
        self._nominations.add(nomination, evicted)
        self._note_gang(nomination)

    def _note_gang(self, nomination: Nomination) -> None:
        """Have the gang looked at again: it is not tried while nodes are promised to pods of it."""
        if nomination.template.gang:
            self._occupancy.index.gangs.changed[nomination.template.gang] = None

    def _clear(self, keys: Iterable[str], reason: str) -> Iterator[NominationEnded]:
        """End nominations of own pods, and those of others of their gangs."""
        known, gangs = self._nominations, dict[str, None]()
        for key in keys:
            gangs[known.entries[key].template.gang] = None
            yield self._end_own(key, reason)
        for mate in [mate for gang in gangs for mate in known.of_gang(gang)]:
            if self.is_own(mate):
                yield self._end_own(mate.key, "gang")

    def _end_own(self, key: str, reason: str) -> NominationEnded:
        """End the nomination of an own pod."""
        nomination, left = self._nominations.end(key) if reason == "bound" else self._end(key)
        self._note_gang(nomination)
        self._occupancy.own_changes.unnominated.append(nomination.uid)
        entry, pods = self._pods.entries[key], self._pods.entries
        spared = tuple(pods[victim.key].spec for victim in left)
        return NominationEnded(entry.spec, nomination, entry.arrival, reason, spared)

    def _end(self, key: str) -> tuple[Nomination, list[Victim]]:
        """Let others have what was promised."""
        ended = self._nominations.end(key)
        self._note_gang(ended[0])
        row = self._occupancy.row_of(ended[0].node)
        if row is not None:
            self._occupancy.improved_rows.add(row)
        return ended

    def keep(self, keys: Sequence[str]) -> tuple[NominationEnded, ...]:
        """End the nominations of pods that were placed, if they had any."""
        promised = self._nominations.entries
        return tuple(self._end_own(key, "bound") for key in keys if key in promised) if promised else ()

    def end_of(self, pod: PodSpec, reason: str) -> tuple[NominationEnded, ...]:
        """End the nomination of an own pod, if it has one; "adopted" is one that has its node now."""
        nomination = self._nominations.entries.get(pod.key)
        if nomination is None or nomination.uid != pod.uid:
            return ()
        if reason == "adopted":
            return (self._end_own(pod.key, reason),)
        return tuple(self._clear([pod.key], reason))

    def lack(self, gang: str) -> tuple[NominationEnded, ...]:
        """End the nominations of own pods of a gang that changed, or lacks a pod: too few would start."""
        if not gang:
            return ()
        mates = [each.key for each in self._nominations.of_gang(gang) if self.is_own(each)]
        return tuple(self._clear(mates, "gang-changed"))

    def fold_config(self, config: Config, event: ConfigEvent) -> tuple[Change, ...]:
        """Fold a configuration object; end what is promised to gangs for which something else holds now."""
        gangs = self._occupancy.index.gangs.of_object(f"{event.namespace}/{event.name}")
        before = [(gang, config.gang(gang)) for gang in gangs]
        changes = config.fold(event, self._pods.entries)
        changed = [gang for gang, spec in before if config.gang(gang) != spec]
        return (*changes, *itertools.chain.from_iterable(map(self.lack, changed)))

    def leave(self, node: str) -> Iterator[Change]:
        """End the nominations of own pods on a node that is gone."""
        own = [each.key for each in self._nominations.on(node) if self.is_own(each)]
        yield from self._clear(own, "node-deleted")

    def is_own(self, nomination: Nomination) -> bool:
        """Say whether the pod of a nomination waits here."""
        entry = self._pods.entries.get(nomination.key)
        waits = entry is not None and not entry.node and entry.spec.uid == nomination.uid
        return waits and nomination.shard in self._occupancy.own

    def follow(self, event: NominationsFollowed) -> Iterator[Change]:
        """Fold what other workers promised, and what has ended."""
        known = self._nominations
        for uid in event.ended:
            foreign = [each for each in known.of_uid(uid) if each.shard not in self._occupancy.own]
            if foreign:
                self._end(foreign[0].key)
            else:
                yield FollowRefused("pod", uid, "has no nomination by another worker")
        gangs: dict[str, int] = {}  # each asks as urgently as its least urgent pod
        for each in event.nominations:
            gang = each.template.gang
            gangs[gang] = min(each.priority, gangs.get(gang, each.priority))
        for nomination in event.nominations:
            if nomination.key in known.entries or nomination.shard in self._occupancy.own:
                yield FollowRefused("pod", nomination.key, "has a node promised already, or is an own pod")
                continue
            gang = nomination.template.gang
            yield from self._outbid(nomination, gangs[gang] if gang else nomination.priority)
            self._add(nomination, [v for v in nomination.victims if self._runs(v, nomination.node)])

    def _runs(self, victim: Victim, node: str) -> bool:
        entry = self._pods.entries.get(victim.key)
        return entry is not None and (entry.spec.uid, entry.node) == (victim.uid, node)
