"""Why a pod, or a group of them, waits, and what would cure it, as the caller may see it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from fastapi import APIRouter, Request, Response

from domain.cures import changes as of
from domain.model.nodes import Taint as NodeTaint
from services.api.advisor import Advisor
from services.api.answers import PendingGroup, Taint
from services.api.answers_why import Change, Cure, State, Why
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError
from services.api.formats import instant, parse_signature, quantities
from services.api.pending import show_group
from services.api.routes import OfGroup, OfShard, PodName, PodNamespace, found_answer, seen_store
from services.phrases import plural, reasons_in_words
from services.ports.advice import Asked, Told
from services.ports.store import Store

_Seen = Collection[str] | None
"""The namespaces that the caller sees; None: all."""


async def why_pod(store: Store, advisor: Advisor | None, namespace: str, name: str) -> Why | None:
    """Return why a pod waits and what would cure it; None: there is no such pod, or the caller sees none."""
    pod = await store.pod(namespace, name)
    if pod is None:
        if await store.pod_decisions(namespace, name, 1):
            where = f"`berth history pod {namespace}/{name}` tells what happened to it"
            raise ApiError("not-found", f"pod {namespace}/{name} is gone; {where}")
        return None
    if pod.node is not None:
        return _bound(namespace, name, pod.node, pod.since_ms)
    group = await show_group(store, pod.shard, pod.signature)
    if advisor is None:
        raise ApiError("not-found", "this API does not search for cures (BERTH_WHY=off)")
    count = 1 if group is None else group.count
    told = await advisor.ask(Asked(namespace=namespace, name=name, waiting_count=count))
    return _why(namespace, name, group, told, store.seen)


async def why_group(store: Store, advisor: Advisor | None, shard: int, signature: bytes) -> Why | None:
    """Return the same for the first pod of a group."""
    group = await show_group(store, shard, signature)
    if group is None or not group.examples:
        return None
    namespace, _, name = group.examples[0].partition("/")
    return await why_pod(store, advisor, namespace, name)


def _bound(namespace: str, name: str, node: str, at_ms: int) -> Why:
    return Why(
        namespace=namespace,
        name=name,
        state="bound",
        node=node,
        summary=f"{namespace}/{name} does not wait: it is on {node}.",
        reasons={},
        unresolvable=False,
        held_by=[],
        group=None,
        cures=[],
        reached=True,
        dry_runs=0,
        looked_at=instant(at_ms),
        age_seconds=0.0,
    )


def _why(namespace: str, name: str, group: PendingGroup | None, told: Told, seen: _Seen) -> Why:
    found = told.findings
    if found is None:
        if told.node is None:  # it came after what was read
            raise ApiError("busy", f"{namespace}/{name} is too new to have been looked at; ask again soon")
        return _bound(namespace, name, told.node, told.log_time_ms)
    cures = [cure_of(each, seen) for each in found.cures]
    state: State = "waiting"
    node = None
    if found.nominated_on:
        state, node = "nominated", found.nominated_on
    elif found.fits_on:
        state, node = "fits", found.fits_on
    return Why(
        namespace=namespace,
        name=name,
        state=state,
        node=node,
        summary=_summary(f"{namespace}/{name}", found, cures),
        reasons=found.reasons,
        unresolvable=found.unresolvable,
        held_by=list(found.held_by),
        group=group,
        cures=cures,
        reached=found.reached,
        dry_runs=found.dry_runs_count,
        looked_at=instant(told.log_time_ms),
        age_seconds=round(told.age_seconds, 3),
    )


def _summary(pod: str, found: of.Findings, cures: list[Cure]) -> str:
    if found.nominated_on:
        return f"{pod} waits for others to leave {found.nominated_on}, which is set aside for it."
    if found.fits_on:
        return f"{found.fits_on} has room for {pod} as things stand: it waits for its turn."
    held = reasons_in_words(dict.fromkeys(found.held_by, sum(found.reasons.values()) or 1))
    why = reasons_in_words(found.reasons) if found.reasons else held or "there are no nodes"
    if not cures:
        said = "No change of one or two things was found that would cure it"
    else:
        said = f"{'This' if len(cures) == 1 else f'One of these {len(cures)}'} would cure it"
    cut = "" if found.reached else "; the search was cut off, and there may be smaller ones"
    return f"{pod} waits: {why}. {said}{cut}."


# --------------------------------------------------------------------------------------------- in words


def cure_of(cure: of.Cure, seen: _Seen) -> Cure:
    """Return a cure in words; ``seen`` are the namespaces of which the caller sees pods."""
    changes = [_change(each, seen) for each in cure.changes]
    return Cure(
        does=" and ".join(each.does for each in changes),
        changes=changes,
        pods=cure.pods_count,
        tried=cure.counted_count,
        all=cure.cures_all,
    )


def _change(change: of.AnyChange, seen: _Seen) -> Change:
    """Return a change with what its kind has; of pods that the caller does not see, their number alone."""
    match change:
        case of.RepairNode() | of.MoreRoom() | of.Leave() | of.MoreNodes() | of.RaisePriority():
            return _of_cluster(change, seen)
        case of.LiftGates():
            gates = list(change.gates)
            return Change(kind="lift-gates", does=f"lift the gate {_listed(gates)}", gates=gates)
        case of.SmallerGang():
            return Change(
                kind="smaller-gang",
                does=f"a PodGroup of {change.min_member} and not {change.before}",
                gang=change.gang,
                min_member=change.min_member,
            )
        case of.Tolerate():
            taints = _listed(map(_taint_text, change.taints))
            return Change(kind="tolerate", does=f"tolerate {taints}", taints=_taints(change.taints))
        case of.DropSelector():
            return Change(
                kind="drop-selector",
                does=f"drop the node selector {change.key}={change.value}, which {_excludes(change)}",
                key=change.key,
                values=[change.value],
                excludes=change.excluded_count,
            )
        case of.DropRequirement():
            asked = change.requirement
            text = f"{' '.join((asked.key, asked.operator, *asked.values))} from term {change.term + 1}"
            return Change(
                kind="drop-requirement",
                does=f"drop {text} of the node affinity, which {_excludes(change)}",
                key=asked.key,
                operator=asked.operator,
                values=list(asked.values),
                excludes=change.excluded_count,
                at=change.term,
            )
        case of.DropPort():
            port = change.port.host_port
            return Change(kind="drop-port", does=f"do without the host port {port}", port=port)
        case of.RelaxSpread():
            to = "ScheduleAnyway" if change.max_skew is None else f"maxSkew {change.max_skew}"
            return Change(
                kind="relax-spread",
                does=f"relax the spread constraint over {change.topology_key} to {to}",
                topology_key=change.topology_key,
                max_skew=change.max_skew,
                at=change.at,
            )
        case of.DropTerm():
            name = "anti-affinity" if change.is_anti else "affinity"
            return Change(
                kind="drop-term",
                does=f"drop term {change.at + 1} of the pod {name}, over {change.topology_key}",
                topology_key=change.topology_key,
                anti=change.is_anti,
                at=change.at,
            )


_OfCluster = of.RepairNode | of.MoreRoom | of.Leave | of.MoreNodes | of.RaisePriority


def _of_cluster(change: _OfCluster, seen: _Seen) -> Change:
    """Return a change that is not one of the pods that wait."""
    match change:
        case of.RepairNode():
            does = " and ".join(
                (["uncordoned"] if change.cordoned else [])
                + ([f"rid of {_listed(map(_taint_text, change.taints))}"] if change.taints else [])
            )
            return Change(
                kind="repair-node",
                does=f"{change.node} is {does}",
                node=change.node,
                uncordon=change.cordoned,
                taints=_taints(change.taints),
            )
        case of.MoreRoom():
            amounts = quantities(change.amounts)
            text = " and ".join(f"{amount} more free {name}" for name, amount in amounts.items())
            within = f", in zone {change.zone}" if change.zone else ""
            return Change(
                kind="more-room",
                does=f"{text} on {change.node}{within}",
                node=change.node,
                zone=change.zone or None,
                amounts=amounts,
            )
        case of.Leave():
            return _leave(change, seen)
        case of.MoreNodes():
            noun = "one more node" if change.count == 1 else f"{change.count} more nodes"
            return Change(
                kind="more-nodes", does=f"{noun} like {change.like}", like=change.like, count=change.count
            )
        case of.RaisePriority():
            gone = f"{plural(change.victims_count, 'pod')} would be evicted"
            gone += f" from {change.node}" if change.node else ""
            return Change(
                kind="raise-priority",
                does=f"a priority of {change.priority}, with which {gone}",
                node=change.node or None,
                priority=change.priority,
                victims=change.victims_count,
            )


def _leave(change: of.Leave, seen: _Seen) -> Change:
    """Return which pods leave; names are those of the namespaces that the caller sees alone."""
    pods, budgets = (_of_seen(names, seen) for names in (change.pods, change.budgets))
    others, budgets_of_others = len(change.pods) - len(pods), len(change.budgets) > len(budgets)
    parts = [f"{plural(len(pods), 'pod')} ({_listed(pods)})"] if pods else []
    parts += [f"{plural(others, 'pod')} of other namespaces"] if others else []
    verb = "leaves" if len(change.pods) == 1 else "leave"
    where = change.node if change.node else "their nodes"
    released = [f"the budget {each}" for each in budgets]
    released += ["a budget of another namespace"] if budgets_of_others else []
    release = f", once {' and '.join(released)} is released" if released else ""
    return Change(
        kind="leave",
        does=f"{' and '.join(parts)} below priority {change.below} {verb} {where}{release}",
        node=change.node or None,
        pods=pods,
        pods_of_others=others or None,
        below=change.below,
        budgets=budgets or None,
        budgets_of_others=budgets_of_others or None,
    )


def _of_seen(names: Iterable[str], seen: _Seen) -> list[str]:
    return [each for each in names if seen is None or each.partition("/")[0] in seen]


def _excludes(change: of.DropSelector | of.DropRequirement) -> str:
    return f"excludes {plural(change.excluded_count, 'node')}"


def _taint_text(taint: NodeTaint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _taints(taints: Iterable[NodeTaint]) -> list[Taint]:
    return [Taint(key=each.key, value=each.value, effect=each.effect) for each in taints]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


# ----------------------------------------------------------------------------------------------- routes


def why_routes(deps: Deps) -> APIRouter:
    """Return the routes that say why pods wait and what would cure them."""
    router = APIRouter()

    @router.get(
        "/v1/pods/{namespace}/{name}/why",
        operation_id="why_pod_waits",
        responses=answering(Why),
        summary="Why a pod waits, and the smallest changes found that would cure it",
    )
    async def of_pod(request: Request, namespace: PodNamespace, name: PodName) -> Response:
        found = await why_pod(seen_store(deps, request), deps.advisor, namespace, name)
        return found_answer(found, f"pod {namespace}/{name}")

    @router.get(
        "/v1/pending/{shard}/{signature}/why",
        operation_id="why_group_waits",
        responses=answering(Why),
        summary="The same for a group of pods that wait",
    )
    async def of_group(request: Request, shard: OfShard, signature: OfGroup) -> Response:
        found = await why_group(seen_store(deps, request), deps.advisor, shard, parse_signature(signature))
        return found_answer(found, f"a group {signature} that waits in shard {shard}")

    return router
