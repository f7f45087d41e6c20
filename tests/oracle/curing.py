"""Brute force for cures: every change of every kind is tried with the plain oracle, which places one pod.

It knows nothing of the engine, nor of how ``domain/cures`` searches. ``python -m benchmarks.cures small``
prints how often the search found a cure as small as the smallest one that is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations

from domain.cures.changes import (
    Change,
    Cure,
    DropPort,
    DropRequirement,
    DropSelector,
    DropTerm,
    Leave,
    MoreNodes,
    MoreRoom,
    RaisePriority,
    RelaxSpread,
    RepairNode,
    Tolerate,
)
from domain.cures.search import find_cures
from domain.cures.trials import Bounds
from domain.model.pods import PodSpec
from domain.model.profiles import BUILT_IN_PROFILES
from tests.oracle.curing_crowds import ILL, TAINTS, Site, after, drawn, nominated_by, scheduler_of
from tests.oracle.placing import Oracle

SKEW_MAX = 12
VICTIMS_MAX = 3


def fits(site: Site, *changes: Change) -> bool:
    """Say whether the oracle finds a node for the first of the pods that wait, after some changes."""
    return bool(nodes_for(site, *changes))


def nodes_for(site: Site, *changes: Change) -> set[str]:
    """Return the nodes that take the first of the pods that wait, after some changes."""
    oracle = Oracle(BUILT_IN_PROFILES, seed=3)
    changed = reduce(after, changes, site)
    for event in changed.events():
        oracle.take(event)
    looked = oracle.look(oracle.pods[changed.waiting[0].key])
    return {of.name for of in changed.nodes} - looked.infeasible.keys()


def repairs(site: Site) -> Iterator[RepairNode]:
    """Yield the repair of every node that is not well."""
    for of in site.nodes:
        ill = tuple(each for each in of.taints if each in ILL)
        if ill or of.unschedulable:
            yield RepairNode(node=of.name, cordoned=of.unschedulable, taints=ill)


def tolerations(site: Site) -> Iterator[Tolerate]:
    """Yield every set of taints, the small ones first."""
    for count in range(1, len(TAINTS) + 1):
        for some in combinations(TAINTS, count):
            yield Tolerate(taints=some)


def relaxations(site: Site) -> Iterator[Change]:
    """Yield every demand of the pods that could go."""
    of = site.waiting[0].template
    for key, value in of.node_selector.items():
        yield DropSelector(key=key, value=value, excluded_count=0)
    for at, term in enumerate((of.node_affinity and of.node_affinity.required) or ()):
        for each in term.match_expressions:
            yield DropRequirement(term=at, requirement=each, is_field=False, excluded_count=0)
    for port in of.host_ports:
        yield DropPort(port=port)
    for at, constraint in enumerate(of.spread):
        yield RelaxSpread(at=at, topology_key=constraint.topology_key, max_skew=None)
    for at, anti in enumerate(of.pod_anti_affinity.required if of.pod_anti_affinity else ()):
        yield DropTerm(is_anti=True, at=at, topology_key=anti.topology_key)


def rooms(site: Site) -> Iterator[MoreRoom]:
    """Yield for every node all that is missing on it for one pod."""
    asked = {**site.waiting[0].template.requests, "pods": 1}
    for of in site.nodes:
        taken: Counter[str] = Counter()
        for each in site.running:
            if each.node_name == of.name:
                taken.update({**each.template.requests, "pods": 1})
        short = {name: taken[name] + asked[name] - of.allocatable.get(name, 0) for name in asked}
        short = {name: amount for name, amount in short.items() if amount > 0}
        if short:
            part = sum(amount * 1_000 // asked[name] + 1 for name, amount in short.items())
            yield MoreRoom(node=of.name, zone="", amounts=short, part=part)


def leaves(site: Site, below: int) -> Iterator[Leave]:
    """Yield every set of pods below a priority on one node, the small ones first."""
    on = {of.name: [p for p in site.running if _is_on(p, of.name, below)] for of in site.nodes}
    for count in range(1, VICTIMS_MAX + 1):
        for name, pods in on.items():
            for some in combinations(pods, count):
                yield Leave(node=name, pods=tuple(each.key for each in some), below=below)


def _is_on(pod: PodSpec, node: str, below: int) -> bool:
    return pod.node_name == node and pod.template.priority < below


@dataclass
class Known:
    """The smallest cures of a site by kind, as brute force finds them; ``is_pair``: two changes cure."""

    repair: int | None
    taints: int | None
    relaxed: set[type[Change]]
    skew: int | None
    room: int | None
    victims: int | None
    priority: int | None
    one_more: bool
    is_pair: bool = False


def known_of(site: Site) -> Known:
    """Try every single change, and where none cures every pair of them."""
    below = site.waiting[0].template.priority
    relaxed = [each for each in relaxations(site) if fits(site, each)]
    known = Known(
        repair=min((each.size for each in repairs(site) if fits(site, each)), default=None),
        taints=next((len(each.taints) for each in tolerations(site) if fits(site, each)), None),
        relaxed={type(each) for each in relaxed},
        skew=_smallest_skew(site, relaxed),
        room=min((each.part for each in rooms(site) if fits(site, each)), default=None),
        victims=next((len(each.pods) for each in leaves(site, below) if fits(site, each)), None),
        priority=lowest_priority(site),
        one_more=any(fits(site, MoreNodes(like=of.name)) for of in site.nodes),
    )
    if not (relaxed or any(size is not None for size in _sizes(known))):
        known.is_pair = any(fits(site, *pair) for pair in _pairs(site))
    return known


def _sizes(known: Known) -> tuple[int | None, ...]:
    return known.repair, known.taints, known.room, known.victims, known.priority


def _smallest_skew(site: Site, relaxed: Sequence[Change]) -> int | None:
    dropped = next((each for each in relaxed if isinstance(each, RelaxSpread)), None)
    if dropped is None:
        return None
    skews = (
        RelaxSpread(at=dropped.at, topology_key=dropped.topology_key, max_skew=skew)
        for skew in range(2, SKEW_MAX)
    )
    return next((each.max_skew for each in skews if fits(site, each)), None)


def _pairs(site: Site) -> Iterator[tuple[Change, Change]]:
    below = site.waiting[0].template.priority
    of_pod = [*relaxations(site), *tolerations(site)]
    yield from combinations(of_pod, 2)
    for each in chain(of_pod, repairs(site)):
        for other in chain(rooms(site), repairs(site), leaves(site, below)):
            if each != other and not (isinstance(each, RepairNode) and not isinstance(other, MoreRoom)):
                yield each, other


def lowest_priority(site: Site) -> int | None:
    """Return the lowest priority above its own with which pods are evicted for more of its pods."""
    own = site.waiting[0].template.priority
    if site.waiting[0].template.preemption_policy == "Never":
        return None
    levels = sorted({p.template.priority + 1 for p in site.running if p.template.priority >= own})
    for level in levels:
        for of in site.nodes:
            gone = tuple(p.key for p in site.running if _is_on(p, of.name, level))
            raised = after(site, RaisePriority(priority=level, node="", victims_count=0))
            if (
                gone
                and of.name in nodes_for(site, Leave(node=of.name, pods=gone, below=level))
                and nominated_by(raised) > nominated_by(site)
            ):
                return level
    return None


def cures_of(site: Site) -> list[Cure] | None:
    """Return what the search finds; None: a pod finds a node as it is."""
    found = find_cures(scheduler_of(site), site.waiting[0], len(site.waiting), Bounds())
    assert found.reached
    return None if found.fits_on else found.cures


def shown_sizes(cures: Sequence[Cure], kind: type[Change]) -> list[int]:
    """Return the sizes of the cures that are single changes of a kind."""
    return [
        cure.changes[0].size for cure in cures if len(cure.changes) == 1 and type(cure.changes[0]) is kind
    ]


def compare(site: Site) -> dict[str, tuple[object, object]] | None:
    """Return by kind what brute force and the search say of the smallest cure; None: nothing waits."""
    cures = cures_of(site)
    if cures is None:
        return None
    known = known_of(site)
    singles = [cure.changes[0] for cure in cures if len(cure.changes) == 1]
    of_pod = (DropSelector, DropRequirement, DropPort, RelaxSpread, DropTerm)
    skews = [each.max_skew for each in singles if isinstance(each, RelaxSpread)]
    priorities = [each.priority for each in singles if isinstance(each, RaisePriority)]
    compared: dict[str, tuple[object, object]] = {
        "repair-node": (known.repair, min(shown_sizes(cures, RepairNode), default=None)),
        "tolerate": (known.taints, min(shown_sizes(cures, Tolerate), default=None)),
        "relaxed demands": (known.relaxed, {type(each) for each in singles if isinstance(each, of_pod)}),
        "more-room": (known.room, min(shown_sizes(cures, MoreRoom), default=None)),
        "raise-priority": (known.priority, min(priorities, default=None)),
        "more-nodes": (known.one_more, any(isinstance(each, MoreNodes) for each in singles)),
        "two changes": (known.is_pair, any(len(cure.changes) == 2 for cure in cures)),
    }
    if len(site.waiting) == 1:  # else the skew is the smallest that cures as many as none would
        compared["relax-spread"] = (known.skew, skews[0] if skews else None)
    victims = [len(each.pods) for each in singles if isinstance(each, Leave)]
    if known.victims is not None or not victims or min(victims) <= VICTIMS_MAX:
        compared["leave"] = (known.victims, min(victims, default=None))
    return compared


def show(sites: int) -> None:
    """Print how often the search found a cure as small as the smallest one that is known."""
    equal, total = Counter[str](), Counter[str]()
    for seed in range(sites):
        site = drawn(seed)
        compared = None if site.least else compare(site)
        for kind, (known, shown) in (compared or {}).items():
            if known not in (None, False, set()) or known != shown:
                total[kind] += 1
                equal[kind] += known == shown
    for kind, count in total.items():
        print(f"{kind:16} {equal[kind]:5} of {count:5}")
