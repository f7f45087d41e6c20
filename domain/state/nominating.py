"""Begin and end nominations: a node is set aside for a pod, and the pod gets it or the nomination ends.

The nominations of the pods of a gang stand together: where one of them loses its node, all do. What becomes
of those of own pods is in the next batch for the ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from domain.model.pods import PodSpec
from domain.state.changes import Change, FollowRefused, NominationEnded
from domain.state.nominations import Nomination, Victim
from domain.state.occupancy import Occupancy
from domain.state.steps import Nominated, NominationsFollowed


def is_own(of: Occupancy, nomination: Nomination) -> bool:
    """Say whether the pod of a nomination is of an own shard, and waits."""
    entry = of.pods.get(nomination.key)
    waits = entry is not None and not entry.node and entry.spec.uid == nomination.uid
    return waits and nomination.shard in of.own


def nominate(of: Occupancy, step: Nominated) -> Iterator[Change]:
    """Set a node aside for an own pod."""
    entry, node = of.pods[step.key], of.nodes[step.node]
    assert not entry.node, "a pod that is placed needs no other node"
    victims = [Victim(key, node.pods[key].spec.uid, node.pods[key].shard) for key in step.victims]
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
    yield from _outbid(of, nomination, nomination.priority if step.below is None else step.below)
    assert of.leaving.keys().isdisjoint(step.victims), "a pod is evicted for one"
    begin(of, nomination, victims)
    node.version += 1
    of.own_changes.add_nomination(step.key, step.node)


def follow(of: Occupancy, step: NominationsFollowed) -> Iterator[Change]:
    """Fold which nominations of other workers began, and which ended."""
    for uid in step.ended:
        foreign = [each for each in of.nominations.of_uid(uid) if each.shard not in of.own]
        if foreign:
            end(of, foreign[0].key)
        else:
            yield FollowRefused("pod", uid, "has no nomination by another worker")
    gangs: dict[str, int] = {}  # each asks as urgently as its least urgent pod
    for each in step.nominations:
        gang = each.template.gang
        gangs[gang] = min(each.priority, gangs.get(gang, each.priority))
    for nomination in step.nominations:
        if nomination.key in of.nominations.entries or nomination.shard in of.own:
            yield FollowRefused("pod", nomination.key, "has a nominated node already, or is an own pod")
            continue
        gang = nomination.template.gang
        yield from _outbid(of, nomination, gangs[gang] if gang else nomination.priority)
        begin(of, nomination, [v for v in nomination.victims if runs(of, v.key, v.uid, nomination.node)])


def runs(of: Occupancy, key: str, uid: str, node: str) -> bool:
    """Say whether a pod that is to leave a node counts on it yet."""
    entry = of.pods.get(key)
    return entry is not None and (entry.spec.uid, entry.node) == (uid, node)


def _outbid(of: Occupancy, by: Nomination, below: int) -> Iterator[NominationEnded]:
    """End the nominations of own pods of lower priority on the node of another one."""
    on_node = of.nominations.on(by.node)
    return clear(of, [e.key for e in on_node if e.priority < below and is_own(of, e)], "outbid")


def begin(of: Occupancy, nomination: Nomination, evicted: Iterable[Victim] = ()) -> None:
    """Begin a nomination; of its victims ``evicted`` are still there."""
    of.nominations.add(nomination, evicted)
    of.index.gangs.note_change(nomination.template.gang)  # none of it is tried meanwhile


def end(of: Occupancy, key: str, *, is_bound: bool = False) -> tuple[Nomination, list[Victim]]:
    """End a nomination. Unless its pod ``is_bound``, others may have what was set aside.

    Returns it with the victims that have not left.
    """
    nomination, left = of.nominations.end(key)
    of.index.gangs.note_change(nomination.template.gang)
    row = of.table.rows.get(nomination.node)
    if row is not None and not is_bound:
        of.improved_rows.add(row)
    return nomination, left


def _end_own(of: Occupancy, key: str, reason: str) -> NominationEnded:
    nomination, left = end(of, key, is_bound=reason == "bound")
    of.own_changes.unnominated.append(nomination.uid)
    entry = of.pods[key]
    spared = tuple(of.pods[victim.key].spec for victim in left)
    return NominationEnded(entry.spec, nomination, entry.arrival, reason, spared)


def clear(of: Occupancy, keys: Iterable[str], reason: str) -> Iterator[NominationEnded]:
    """End nominations of own pods, and those of others of their gangs."""
    gangs = dict[str, None]()
    for key in keys:
        gangs[of.nominations.entries[key].template.gang] = None
        yield _end_own(of, key, reason)
    for mate in [mate for gang in gangs for mate in of.nominations.of_gang(gang)]:
        if is_own(of, mate):
            yield _end_own(of, mate.key, "gang")


def end_of_bound(of: Occupancy, keys: Sequence[str]) -> Iterator[NominationEnded]:
    """End the nominations of pods that were placed, if they had any."""
    known = of.nominations.entries
    return (_end_own(of, key, "bound") for key in keys if key in known) if known else iter(())


def end_of_pod(of: Occupancy, pod: PodSpec, reason: str) -> tuple[NominationEnded, ...]:
    """End the nomination of an own pod, if it has one; "adopted" is one that has its node now."""
    nomination = of.nominations.entries.get(pod.key)
    if nomination is None or nomination.uid != pod.uid:
        return ()
    if reason == "adopted":
        return (_end_own(of, pod.key, reason),)
    return tuple(clear(of, [pod.key], reason))


def end_of_gang(of: Occupancy, gang: str) -> tuple[NominationEnded, ...]:
    """End the nominations of own pods of a gang that changed, or lacks a pod: too few would start."""
    if not gang:
        return ()
    mates = [each.key for each in of.nominations.of_gang(gang) if is_own(of, each)]
    return tuple(clear(of, mates, "gang-changed"))


def end_on_node(of: Occupancy, node: str) -> Iterator[NominationEnded]:
    """End the nominations of own pods on a node that is gone."""
    return clear(of, [each.key for each in of.nominations.on(node) if is_own(of, each)], "node-deleted")
