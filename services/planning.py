"""Plans manifests against the cluster that the ledger holds, or held at a moment; nothing is written."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from domain.cures.search import find_cures
from domain.cures.trials import Bounds
from domain.cycle.schedule import Scheduler
from domain.engine.dry_run import with_preemption
from domain.engine.evaluate import evaluate
from domain.manifests.config_objects import NAME_LABEL
from domain.model.config import OF_CLUSTER
from domain.model.decisions import Attempt
from domain.model.errors import BerthError, FieldError
from domain.model.events import (
    ConfigDeleted,
    ConfigUpserted,
    Event,
    NodeUpserted,
    PodDeleted,
    PodUpserted,
    ProfileEvent,
)
from domain.model.limits import cure_seconds_max, plan_more_max, plan_more_pods_max, plan_pods_max
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.selectors import AffinityTerm
from domain.plugins.view import NodeView
from services.bootstrap import Place, open_ledger, open_store
from services.plan.capacity import copies_of
from services.plan.objects import Given, event_of
from services.plan.plan import Plan, Planned
from services.plan.reading import read_manifests
from services.plan.workloads import expand
from services.ports.advice import AttemptPlanned, Cures, Evictions, MoreFit, PlanAsked, PlanTold, PodPlanned
from services.ports.store import ConfigFilter, NodeState, PodFilter, PodState, Rows, Store
from services.times import as_of
from services.worker.ledger_rows import config_object
from services.worker.restoring import restore_profile, restored

_PAGE = 1000
_Row = TypeVar("_Row")
_Place = TypeVar("_Place")


class NotSeen(BerthError):
    """The caller may not plan this."""

    code = "forbidden"


def planned(dsn: str, seed: int, asked: PlanAsked) -> PlanTold:
    """Return where the pods of some manifests would go.

    Raises
    ------
    BerthError
        The manifests make no sense, the caller may not plan them, or the moment is out of reach.
    """
    given, notes = read_manifests(asked.text)
    given = expand(given if asked.replicas is None else copies_of(given, asked.replicas), asked.replicas)
    _check(given, asked.seen)
    scheduler, log_time_ms = asyncio.run(_cluster(dsn, seed, asked.at))
    if asked.profile is not None:
        given = _with_profile(given, asked.profile, scheduler)
    plan = Plan.of(scheduler)
    known = {key: entry.node for key, entry in scheduler.state.pods.items()}
    for each in given:
        plan.add(each)
    found = plan.place()
    notes += [
        f"pod {each.pod.key} is on {known[each.pod.key]} already; it is planned anew"
        for each in found
        if known.get(each.pod.key)
    ]
    pods, attempts = _outcomes(plan, found)
    return PlanTold(
        log_time_ms=log_time_ms,
        nodes_count=scheduler.state.table.count,
        pods=pods,
        attempts=attempts,
        cures=list(_cures(scheduler, found)) if asked.with_cures else [],
        evictions=list(_evictions(plan, found)),
        more=list(_more(plan, found)) if asked.with_more else [],
        notes=notes + plan.notices(found),
    )


# ------------------------------------------------------------------------------------ what may be planned


def _check(given: Sequence[Given], seen: Collection[str] | None) -> None:
    """Refuse too much, nothing at all, and what is not of the namespaces that the caller sees."""
    pods = [each for each in given if each.manifest["kind"] == "Pod" and each.type != "DELETED"]
    if not pods:
        raise FieldError("manifests", "hold no pod to place; add a Pod, or a Deployment with replicas")
    if len(pods) > plan_pods_max:
        raise FieldError(
            "manifests", f"hold {len(pods):,} pods; {plan_pods_max:,} are allowed (plan_pods_max)"
        )
    if seen is not None:
        for each in given:
            _check_seen(each, event_of(each, lenient=False), seen)


def _check_seen(given: Given, event: Event | ProfileEvent | None, seen: Collection[str]) -> None:
    own = ", ".join(sorted(seen)) or "none"
    match event:
        case None:
            return
        case PodUpserted(pod=pod):
            namespace, wide = pod.namespace, list(_beyond(pod.template, seen))
            if wide:
                message = f"this key sees {own}, and the pod asks for pods beyond them; leave {wide[0]} out"
                raise NotSeen(f"{given.where}: {message}")
        case PodDeleted(namespace=namespace):
            pass
        case (
            ConfigUpserted(kind=kind, namespace=namespace) | ConfigDeleted(kind=kind, namespace=namespace)
        ) if kind not in OF_CLUSTER:
            pass
        case _:
            what = given.manifest["kind"]
            raise NotSeen(f"{given.where}: a {what} is of the whole cluster, and this key sees {own} alone")
    if namespace not in seen:
        raise NotSeen(f"{given.where}: this key does not see the namespace {namespace}; it sees {own}")


def _beyond(template: PodTemplate, seen: Collection[str]) -> Iterator[str]:
    """Yield the fields by which a pod asks for pods of other namespaces: a plan would tell of those."""
    for affinity in (template.pod_affinity, template.pod_anti_affinity):
        if affinity is None:
            continue
        terms: list[AffinityTerm] = [*affinity.required, *(each.term for each in affinity.preferred)]
        for term in terms:
            selector = term.namespace_selector
            if not set(term.namespaces) <= set(seen):
                yield "namespaces"
            elif selector is not None and not any(
                (each.key, each.operator) == (NAME_LABEL, "In") and set(each.values) <= set(seen)
                for each in selector.requirements
            ):
                yield "namespaceSelector"


def _with_profile(given: Sequence[Given], name: str, scheduler: Scheduler) -> list[Given]:
    """Return the objects with all pods naming one profile."""
    if name not in scheduler.profiles.plans:
        known = ", ".join(sorted(scheduler.profiles.plans))
        raise FieldError("profile", f"{name[:100]!a} is not in force; these are: {known}")
    return [
        each._replace(
            manifest={**each.manifest, "spec": {**(each.manifest.get("spec") or {}), "schedulerName": name}}
        )
        if each.manifest["kind"] == "Pod"
        else each
        for each in given
    ]


# ------------------------------------------------------------------------------------------- the cluster


async def _cluster(dsn: str, seed: int, at: str | None) -> tuple[Scheduler, int | None]:
    """Return a scheduler that knows nodes, placed pods, configuration and profiles; no pod waits in it."""
    place = Place(dsn, None)
    if at is None:
        async with contextlib.aclosing(open_ledger(place)) as ledger:
            base, _ = await ledger.load_all()
        return restored(base, None, seed), base.log_time_ms
    async with contextlib.aclosing(open_store(place)) as store:
        moment = await store.past.moment(as_of("at", at))
        return await _of_then(store.as_of(moment), seed), moment.log_time_ms


async def _of_then(store: Store, seed: int) -> Scheduler:
    """Fold what a moment held. What was measured, and what was nominated, is not kept of the past."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=seed)
    async for profile in _walk(store.profiles, lambda row: row.name):
        restore_profile(scheduler, profile)
    async for row in _walk(
        partial(store.config, ConfigFilter()), lambda row: (row.kind, row.namespace, row.name)
    ):
        scheduler.state.restore_config(config_object(row))
    async for state in _walk(partial(_nodes, store), lambda row: row.node.name):
        if state.node.spec is not None:
            scheduler.fold(NodeUpserted(state.node.spec))
    templates: dict[bytes, PodTemplate | None] = {}
    async for pod in _walk(partial(store.pods, PodFilter(phase="bound")), lambda row: row.pod_uid):
        if pod.signature not in templates:
            templates[pod.signature] = await store.template(pod.signature)
        template = templates[pod.signature]
        if template is not None and pod.node is not None:
            scheduler.fold(PodUpserted(_placed(pod, template, pod.node)))
    return scheduler


async def _nodes(store: Store, limit: int, after: str | None) -> Rows[NodeState]:
    return await store.nodes(limit, after, None)


async def _walk(
    read: Callable[[int, _Place | None], Awaitable[Rows[_Row]]], place_of: Callable[[_Row], _Place]
) -> AsyncIterator[_Row]:
    """Yield the rows of all pages of a list, of which each begins behind the place of a row."""
    after: _Place | None = None
    while True:
        page = await read(_PAGE, after)
        for row in page:
            yield row
        if not page.more:
            return
        after = place_of(page[-1])


def _placed(pod: PodState, template: PodTemplate, node: str) -> PodSpec:
    return PodSpec(
        uid=pod.pod_uid,
        key=f"{pod.namespace}/{pod.name}",
        resource_version=pod.resource_version,
        template=template,
        signature=pod.signature,
        labels=pod.labels,
        node_name=node,
        devices=pod.devices,
    )


# -------------------------------------------------------------------------------------------- the answers


def _outcomes(plan: Plan, found: Sequence[Planned]) -> tuple[list[PodPlanned], list[AttemptPlanned]]:
    attempts: dict[int, int] = {}
    shared: list[AttemptPlanned] = []
    pods = []
    for each in found:
        if id(each.attempt) not in attempts:
            attempts[id(each.attempt)] = len(shared)
            shared.append(_attempt(plan, each))
        pods.append(
            PodPlanned(
                pod=each.pod.key,
                outcome=each.outcome.value,
                node=each.node,
                score=each.score,
                attempt=attempts[id(each.attempt)],
            )
        )
    return pods, shared


def _attempt(plan: Plan, each: Planned) -> AttemptPlanned:
    profile = plan.profile_of(each.pod)
    weights = {} if profile is None else {use.label: use.weight for use in profile.scores}
    attempt: Attempt = each.attempt
    return AttemptPlanned(attempt=attempt, weights=weights, reasons=attempt.reasons_at_failure)


def _different(found: Sequence[Planned]) -> list[tuple[Planned, int]]:
    """Return the first of equal pods and their number, of the first few kinds."""
    counts = Counter(each.pod.signature for each in found)
    firsts = {each.pod.signature: each for each in reversed(found)}
    kinds = list(firsts.values())[::-1][:plan_more_pods_max]
    return [(each, counts[each.pod.signature]) for each in kinds]


def _cures(scheduler: Scheduler, found: Sequence[Planned]) -> Iterator[Cures]:
    waiting = _different([each for each in found if each.node is None])
    for each, count in waiting:
        until = time.monotonic() + cure_seconds_max / len(waiting)
        bounds = Bounds(is_over=lambda until=until: time.monotonic() > until)  # type: ignore[misc]
        findings = find_cures(scheduler, each.pod, count, bounds)
        yield Cures(pod=each.pod.key, waiting_count=count, findings=findings)


def _evictions(plan: Plan, found: Sequence[Planned]) -> Iterator[Evictions]:
    """Yield pods that would leave for those that find no node and may preempt; none of them is told to."""
    view = NodeView(plan.state)
    for each, _ in _different([each for each in found if each.node is None and not each.pod.template.gang]):
        profile = plan.profile_of(each.pod)
        verdict = evaluate(plan.state, profile, each.pod, view)
        verdict = with_preemption(verdict, plan.state, profile, each.pod, view)
        if verdict.evictions:
            yield Evictions(pod=each.pod.key, helped_count=len(verdict.victims), best=verdict.evictions)


def _more(plan: Plan, found: Sequence[Planned]) -> Iterator[MoreFit]:
    """Yield how many more of each kind of pod fit beside those that were planned."""
    for each, _ in _different(found):
        if each.pod.template.gang:
            continue  # its pods come together
        placed, stopped_by, first = [], dict[str, int](), 0
        batch = 100
        while not stopped_by and first < plan_more_max:
            names = [f"{each.pod.key}-more-{i}" for i in range(first, min(first + batch, plan_more_max))]
            copies = [msgspec.structs.replace(each.pod, key=key, uid=key) for key in names]
            for further in plan.place_further(copies):
                if further.node is None:
                    stopped_by = further.attempt.reasons_at_failure or {"no-nodes": 1}
                    break
                placed.append(further)
            first, batch = first + len(names), batch * 2
        nodes = {further.node for further in placed}
        plan.take_back([f"{each.pod.key}-more-{i}" for i in range(first)])
        yield MoreFit(pod=each.pod.key, count=len(placed), nodes_count=len(nodes), stopped_by=stopped_by)
