"""The read side: nodes, pods, decisions with their explanations, what waits, shards and dead letters."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from domain.model.colocation import QOS_CLASS_OF, Quality
from domain.model.decisions import Outcome
from domain.model.errors import FieldError
from domain.model.validation import shown
from services.api import answers, answers_decisions, attempts, explanation, leaving, views
from services.api.caller import caller_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.formats import parse_row_id, parse_signature
from services.api.pending import list_pending, show_group
from services.ports.past import BatchId, Moment
from services.ports.store import DecisionFilter, PodFilter, Store
from services.times import as_of, moment_ms

NAME_MAX = 253
TIME_MAX = 64

Limit = Annotated[int, Query(ge=1, le=1000, description="Items per page at most")]
Cursor = Annotated[str | None, Query(description="`next` of the page before", max_length=2000)]
Namespace = Annotated[str | None, Query(description="Only this namespace", max_length=NAME_MAX)]
NodeName = Annotated[str | None, Query(description="Only this node", max_length=NAME_MAX)]
NodeNamed = Annotated[str, Path(description="Name of the node", max_length=NAME_MAX)]
PodNamespace = Annotated[str, Path(description="Namespace of the pod", max_length=NAME_MAX)]
PodName = Annotated[str, Path(description="Name of the pod", max_length=NAME_MAX)]
RowId = Annotated[str, Path(description="<shard>-<seq>")]
PodGiven = Annotated[
    str | None, Query(description="Only this pod: namespace/name, or a name", max_length=2 * NAME_MAX + 1)
]
GangGiven = Annotated[
    str | None, Query(description="Only pods of this gang: namespace/name", max_length=2 * NAME_MAX + 1)
]
QualityGiven = Annotated[
    Literal["high", "mid", "low"] | None,
    Query(description="Only pods of this quality: Guaranteed, Burstable or BestEffort ones"),
]
Since = Annotated[
    str | None,
    Query(
        description="Decided at or after (log time): 1h is an hour ago; 03:17, a day, RFC 3339",
        max_length=TIME_MAX,
    ),
]
At = Annotated[
    str | None,
    Query(
        description="Only what held then (log time): 1h is an hour ago; 03:17, a day, RFC 3339",
        max_length=TIME_MAX,
    ),
]
AsOf = Annotated[
    str | None,
    Query(
        description="As it was then (log time): 1h is an hour ago; 03:17, a day, RFC 3339; 0:1234 is right "
        "after batch 1234 of shard 0. Pages of one list need one moment: give a time, not an age",
        max_length=TIME_MAX,
    ),
]
Signature = Annotated[str | None, Query(description="Only this equivalence group, hex", max_length=32)]
OfShard = Annotated[int, Path(ge=0, le=1 << 20, description="Shard that decides for the pods")]
OfGroup = Annotated[str, Path(description="Signature of the equivalence group, hex", max_length=32)]
ShardNumber = Annotated[int | None, Query(ge=0, le=1 << 20, description="Only this shard")]


def found_answer(answer: object | None, what: str) -> Response:
    """Return an answer, or say that there is none."""
    if answer is None:
        raise ApiError(
            "not-found", f"{what} is not known here; a name is exact, and events may be on the way"
        )
    return json_answer(answer)


def seen_store(deps: Deps, request: Request, namespace: str | None = None) -> Store:
    """Return the store as the caller sees it; refuse a namespace that he asks for and does not see."""
    namespaces = caller_of(request).namespaces
    if namespace is not None and namespaces is not None and namespace not in namespaces:
        sees = ", ".join(sorted(namespaces)) or "none"
        raise ApiError("forbidden", f"this key does not see the namespace {shown(namespace)}; it sees {sees}")
    return deps.store.seen_by(namespaces)


async def as_of_store(deps: Deps, request: Request, at: str | None, namespace: str | None = None) -> Store:
    """Return the store as the caller sees it, of now or as it was at a moment."""
    store = seen_store(deps, request, namespace)
    return store if at is None else store.as_of(await asked_moment(store, "at", at))


async def asked_moment(store: Store, path: str, at: str) -> Moment:
    """Return the moment that a time or a batch means; of a time, what was asked for, too."""
    asked = as_of(path, at)
    moment = await store.past.moment(asked)
    return moment._replace(asked_ms=asked) if isinstance(asked, int) else moment


def _split_gang(gang: str | None, namespace: str | None) -> tuple[str | None, str | None]:
    if gang is None:
        return namespace, None
    of, _, name = gang.partition("/")
    if not name or namespace not in (None, of):
        raise FieldError("gang", f"{shown(gang)} names no gang; namespace/name of one is allowed")
    return of, name


def node_routes(deps: Deps) -> APIRouter:
    """Return the routes of nodes."""
    router = APIRouter()

    @router.get(
        "/v1/nodes", operation_id="list_nodes", responses=answering(answers.NodePage), summary="List nodes"
    )
    async def nodes(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        name: Annotated[
            str | None, Query(description="Only names that contain this", max_length=NAME_MAX)
        ] = None,
        at: AsOf = None,
    ) -> Response:
        store = await as_of_store(deps, request, at)
        return json_answer(await views.list_nodes(store, limit=limit, at=cursor, name=name))

    @router.get(
        "/v1/nodes/{name}",
        operation_id="get_node",
        responses=answering(answers.NodeDetail),
        summary="Show a node and its pods",
    )
    async def node(request: Request, name: NodeNamed, at: AsOf = None) -> Response:
        sees_all = caller_of(request).namespaces is None
        store = await as_of_store(deps, request, at)
        found = await views.show_node(store, name, sees_all=sees_all)
        return found_answer(found, f"node {name}")

    return router


def pod_routes(deps: Deps) -> APIRouter:
    """Return the routes of pods."""
    router = APIRouter()

    @router.get(
        "/v1/pods", operation_id="list_pods", responses=answering(answers.PodPage), summary="List live pods"
    )
    async def pods(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        namespace: Namespace = None,
        node: NodeName = None,
        phase: Annotated[
            Literal["bound", "orphaned", "pending"] | None,
            Query(description="Only bound and orphaned, only orphaned, or only pending pods"),
        ] = None,
        gang: GangGiven = None,
        quality: QualityGiven = None,
        at: AsOf = None,
    ) -> Response:
        namespace, name = _split_gang(gang, namespace)
        which = PodFilter(namespace, node, phase, name, quality and QOS_CLASS_OF[Quality(quality)])
        store = await as_of_store(deps, request, at, namespace)
        return json_answer(await views.list_pods(store, which, limit=limit, at=cursor))

    @router.get(
        "/v1/pods/{namespace}/{name}",
        operation_id="get_pod",
        responses=answering(answers.PodDetail),
        summary="Show a pod and its history",
    )
    async def pod(request: Request, namespace: PodNamespace, name: PodName, at: AsOf = None) -> Response:
        found = await views.show_pod(await as_of_store(deps, request, at), namespace, name)
        return found_answer(found, f"pod {namespace}/{name}")

    @router.get(
        "/v1/pods/{namespace}/{name}/attempts",
        operation_id="get_pod_attempts",
        responses=answering(answers_decisions.PodAttempts),
        summary="Say why a pod was refused, over time or at one moment",
    )
    async def pod_attempts(
        request: Request,
        namespace: PodNamespace,
        name: PodName,
        at: At = None,
    ) -> Response:
        sees_all = caller_of(request).namespaces is None
        store = seen_store(deps, request)
        moment = as_of("at", at) if at else None
        at_ms = (await store.past.moment(moment)).log_time_ms if isinstance(moment, BatchId) else moment
        answer = await attempts.show_attempts(store, namespace, name, at_ms, sees_all=sees_all)
        return found_answer(answer, f"pod {namespace}/{name}")

    return router


def decision_routes(deps: Deps) -> APIRouter:
    """Return the route that lists decisions."""
    router = APIRouter()

    @router.get(
        "/v1/decisions",
        operation_id="list_decisions",
        responses=answering(answers.DecisionPage),
        summary="List decisions",
    )
    async def decisions(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        pod: PodGiven = None,
        namespace: Namespace = None,
        node: NodeName = None,
        outcome: Annotated[Outcome | None, Query(description="Only this outcome")] = None,
        shard: ShardNumber = None,
        signature: Signature = None,
        profile: Annotated[
            str | None, Query(description="Only pods that name this profile", max_length=NAME_MAX)
        ] = None,
        revision: Annotated[
            int | None, Query(ge=1, le=2**62, description="Only by this revision of `profile`")
        ] = None,
        since: Since = None,
        until: Annotated[
            str | None,
            Query(
                description="Decided before (log time): 1h is an hour ago; 03:17, a day, RFC 3339",
                max_length=TIME_MAX,
            ),
        ] = None,
        order: Annotated[
            str, Query(description="oldest or newest first", pattern="^(oldest|newest)$")
        ] = "oldest",
    ) -> Response:
        if revision is not None and profile is None:
            raise FieldError("revision", "is of no profile; name it with `profile`")
        name = pod
        if pod is not None and "/" in pod:
            namespace, _, name = pod.partition("/")
        which = DecisionFilter(
            namespace=namespace,
            name=name,
            node=node,
            outcome=outcome.value if outcome else None,
            shard=shard,
            signature=parse_signature(signature) if signature else None,
            profile=profile,
            profile_revision=revision,
            since_ms=moment_ms("since", since) if since else None,
            until_ms=moment_ms("until", until) if until else None,
        )
        store = seen_store(deps, request, namespace)
        newest_first = order == "newest"
        return json_answer(
            await views.list_decisions(store, which, limit=limit, at=cursor, newest_first=newest_first)
        )

    return router


def one_decision_routes(deps: Deps) -> APIRouter:
    """Return the routes of one decision."""
    router = APIRouter()

    @router.get(
        "/v1/decisions/{id}",
        operation_id="get_decision",
        responses=answering(answers_decisions.Decision),
        summary="Show a decision",
    )
    async def decision(request: Request, id: RowId) -> Response:
        store = seen_store(deps, request)
        row = await store.decision(*parse_row_id(id))
        return found_answer(row and explanation.decision_of(row, store.seen), f"decision {id}")

    @router.get(
        "/v1/decisions/{id}/explanation",
        operation_id="explain_decision",
        responses=answering(answers_decisions.Explanation),
        summary="Explain a decision",
    )
    async def explain(request: Request, id: RowId) -> Response:
        shard, seq = parse_row_id(id)
        return found_answer(await leaving.explain(seen_store(deps, request), shard, seq), f"decision {id}")

    return router


def state_routes(deps: Deps) -> APIRouter:
    """Return the routes of pending pods, shards and dead letters."""
    router = APIRouter()

    @router.get(
        "/v1/pending",
        operation_id="list_pending_groups",
        responses=answering(answers.PendingPage),
        summary="List what waits, and why",
    )
    async def pending(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        shard: ShardNumber = None,
        order: Annotated[
            Literal["largest", "oldest"],
            Query(description="largest: the group with most pods first; oldest: the one that waits longest"),
        ] = "largest",
        at: AsOf = None,
    ) -> Response:
        store = await as_of_store(deps, request, at)
        found = await list_pending(store, shard, limit=limit, at=cursor, oldest_first=order == "oldest")
        return json_answer(found)

    @router.get(
        "/v1/pending/{shard}/{signature}",
        operation_id="get_pending_group",
        responses=answering(answers.PendingGroup),
        summary="Show a group of pods that wait, and why",
    )
    async def pending_group(request: Request, shard: OfShard, signature: OfGroup) -> Response:
        store = seen_store(deps, request)
        found = await show_group(store, shard, parse_signature(signature))
        return found_answer(found, f"a group {signature} that waits in shard {shard}")

    @router.get(
        "/v1/shards",
        operation_id="list_shards",
        responses=answering(answers.ShardPage),
        summary="List shards",
    )
    async def shards() -> Response:
        return json_answer(await views.list_shards(deps.store, (await deps.lookout.glance()).lags))

    @router.get(
        "/v1/deadletters",
        operation_id="list_deadletters",
        responses=answering(answers.DeadLetterPage),
        summary="List dead letters",
    )
    async def deadletters(request: Request, limit: Limit = 20, cursor: Cursor = None) -> Response:
        return json_answer(await views.list_deadletters(seen_store(deps, request), limit=limit, at=cursor))

    @router.get(
        "/v1/deadletters/{id}",
        operation_id="get_deadletter",
        responses=answering(answers.DeadLetter),
        summary="Show a dead letter whole",
    )
    async def deadletter(request: Request, id: RowId) -> Response:
        row = await seen_store(deps, request).deadletter(*parse_row_id(id))
        return found_answer(row and views.dead_letter_of(row), f"dead letter {id}")

    return router
