"""Where pods would go, against what the ledger holds or held: `POST /v1/plan`; nothing is written."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response
from msgspec import Struct

from domain.engine.evaluate import Eviction
from domain.model.limits import plan_more_max, plan_more_pods_max, plan_pods_max
from services.api.answers_decisions import INSTANT, ExplainedAttempt, about
from services.api.answers_why import Cure
from services.api.bodies import struct_of
from services.api.caller import caller_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.explanation import explained_attempt
from services.api.failures import ApiError, json_answer
from services.api.formats import instant
from services.api.ingest import read_body
from services.api.why import cure_of
from services.phrases import reasons_in_words
from services.ports.advice import AttemptPlanned, PlanAsked, PlanTold, PodPlanned


class PlanToMake(Struct, kw_only=True, forbid_unknown_fields=True):
    """What is to be planned."""

    manifests: Annotated[
        str, about("Pods, workloads and what they need, as YAML or JSON: documents, lists or watch events")
    ]
    at: Annotated[
        str | None, about("Against this moment (log time), as `at` of other questions; null: now")
    ] = None
    profile: Annotated[str | None, about("A profile in force that places all pods; null: each its own")] = (
        None
    )
    replicas: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=plan_pods_max)] | None,
        about("So many copies of each pod, and pods of each workload; null: as they say"),
    ] = None
    how_many: Annotated[bool, about("Whether to count how many more of each pod fit")] = False
    cures: Annotated[bool, about("Whether to search what would cure the pods that find no node")] = False


class PlannedPod(Struct, kw_only=True):
    """What would become of a pod."""

    pod: Annotated[str, about("The pod, as namespace/name")]
    outcome: Annotated[str, about("bound, unschedulable, unresolvable or gang-waiting")]
    node: Annotated[str | None, about("Where it would go; null: nowhere")]
    score: Annotated[float | None, about("Total score of that node")]
    why: Annotated[str, about("Why it finds no node, in words; empty: it finds one")]
    attempt: Annotated[int, about("Place in `attempts` of the attempt that decided it, from 0")]


class PlannedAttempt(Struct, kw_only=True):
    """An attempt of equal pods."""

    explained: Annotated[ExplainedAttempt, about("What was looked at, and the best nodes")]
    reasons: Annotated[dict[str, int], about("Nodes per reason code for the first pod without a node")]


class MoreOfPod(Struct, kw_only=True):
    """How many more of a pod fit."""

    pod: Annotated[str, about("The pod")]
    count: Annotated[int, about(f"How many more of it, beside all that is planned; {plan_more_max} at most")]
    nodes: Annotated[int, about("On how many nodes")]
    stopped_by: Annotated[dict[str, int], about("Nodes per reason code for the next one; {}: more fit")]
    why: Annotated[str, about("The same in words")]


class CuresOfPod(Struct, kw_only=True):
    """What would cure pods that find no node."""

    pod: Annotated[str, about("The first of them")]
    waiting: Annotated[int, about("How many are like it")]
    cures: Annotated[list[Cure], about("Cures of all pods first, then the smallest first")]
    reached: Annotated[bool, about("Whether the search came to its end; false: there may be smaller cures")]


class NodeEvicted(Struct, kw_only=True):
    """A node that would take a pod once others have left it."""

    node: Annotated[str, about("The node")]
    victims: Annotated[
        list[str], about("Pods that would have to leave, as namespace/name, of namespaces that the key sees")
    ]
    victims_of_others: Annotated[int, about("How many more, of namespaces that the key does not see")]
    violations: Annotated[
        int | None, about("How many of them break a disruption budget; null: not for a key with namespaces")
    ]
    highest_priority: Annotated[
        int | None, about("The highest priority among them; null: likewise, or no pod has to leave")
    ]


class EvictionsOfPod(Struct, kw_only=True):
    """The pods that would have to leave for one that finds no node and may preempt; none is told to."""

    pod: Annotated[str, about("The pod")]
    nodes_helped: Annotated[int, about("On how many nodes evicting pods of lower priority would help")]
    nodes: Annotated[list[NodeEvicted], about("The best of these nodes, the one that would be taken first")]


class PlanAnswer(Struct, kw_only=True):
    """A plan: where pods would go, and why."""

    looked_at: Annotated[str | None, about(f"The ledger as of then ({INSTANT}, log time); null: before all")]
    nodes: Annotated[int, about("Nodes that there are, those of the manifests included")]
    placed: Annotated[int, about("How many pods find a node")]
    waiting: Annotated[int, about("How many do not")]
    pods: Annotated[list[PlannedPod], about("The pods, in the order of decision")]
    attempts: Annotated[list[PlannedAttempt], about("What decided them")]
    more: Annotated[
        list[MoreOfPod],
        about(f"With how_many: of {plan_more_pods_max} different pods at most, in their order"),
    ]
    cures: Annotated[list[CuresOfPod], about("With cures: likewise, of pods that find no node")]
    evictions: Annotated[
        list[EvictionsOfPod], about("Likewise, of pods that would find a node if others left it")
    ]
    notes: Annotated[list[str], about("What was passed over, and what has no say")]


def _answer(told: PlanTold, seen: frozenset[str] | None) -> PlanAnswer:
    placed = sum(each.node is not None for each in told.pods)
    return PlanAnswer(
        looked_at=instant(told.log_time_ms) if told.log_time_ms else None,
        nodes=told.nodes_count,
        placed=placed,
        waiting=len(told.pods) - placed,
        pods=[_pod(each, told.attempts[each.attempt]) for each in told.pods],
        attempts=[_attempt(each, seen) for each in told.attempts],
        more=[
            MoreOfPod(
                pod=each.pod,
                count=each.count,
                nodes=each.nodes_count,
                stopped_by=each.stopped_by,
                why=reasons_in_words(each.stopped_by),
            )
            for each in told.more
        ],
        cures=[
            CuresOfPod(
                pod=each.pod,
                waiting=each.waiting_count,
                cures=[cure_of(cure, seen) for cure in each.findings.cures],
                reached=each.findings.reached,
            )
            for each in told.cures
        ],
        evictions=[
            EvictionsOfPod(
                pod=each.pod,
                nodes_helped=each.helped_count,
                nodes=[_evicted(best, seen) for best in each.best],
            )
            for each in told.evictions
        ],
        notes=told.notes,
    )


def _evicted(each: Eviction, seen: frozenset[str] | None) -> NodeEvicted:
    own = [name for name in each.victims if seen is None or name.partition("/")[0] in seen]
    return NodeEvicted(
        node=each.node,
        victims=own,
        victims_of_others=len(each.victims) - len(own),
        violations=each.violations if seen is None else None,
        highest_priority=each.highest_priority if seen is None else None,
    )


def _pod(each: PodPlanned, attempt: AttemptPlanned) -> PlannedPod:
    why = "" if each.node is not None else reasons_in_words(attempt.reasons) or "there is no node"
    return PlannedPod(
        pod=each.pod, outcome=each.outcome, node=each.node, score=each.score, why=why, attempt=each.attempt
    )


def _attempt(each: AttemptPlanned, seen: frozenset[str] | None) -> PlannedAttempt:
    explained = explained_attempt(each.attempt, each.weights)
    if seen is not None:
        explained.rules = []  # they count pods of other namespaces, too
    return PlannedAttempt(explained=explained, reasons=each.reasons)


def plan_routes(deps: Deps) -> APIRouter:
    """Return the route of plans."""
    router = APIRouter()
    schema = {"$ref": "#/components/schemas/PlanToMake"}
    content = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.post(
        "/v1/plan",
        operation_id="plan_pods",
        responses=answering(PlanAnswer),
        summary="Say where pods would go, now or then; nothing is written",
        openapi_extra={"requestBody": content},
    )
    async def plan(request: Request) -> Response:
        caller = caller_of(request)
        with deps.gate.allowance.body(caller) as hold_bytes:
            wanted = struct_of(await read_body(request, hold_bytes=hold_bytes), PlanToMake, "a plan")
            if deps.advisor is None:
                raise ApiError("not-found", "this API plans nothing (BERTH_WHY=off)")
            told = await deps.advisor.plan(
                PlanAsked(
                    text=wanted.manifests,
                    seen=None if caller.namespaces is None else sorted(caller.namespaces),
                    at=wanted.at,
                    profile=wanted.profile,
                    replicas=wanted.replicas,
                    with_more=wanted.how_many,
                    with_cures=wanted.cures,
                )
            )
        return json_answer(_answer(told, caller.namespaces))

    return router
