"""The stream of events, `GET /v1/events`: what is decided and what changes, as server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from domain.model.errors import FieldError
from domain.model.validation import shown
from services.api.caller import caller_of
from services.api.deps import Deps
from services.api.live import Live
from services.api.routes import TIME_MAX, Namespace, NodeName, PodGiven, seen_store
from services.api.stream import Asked, EventStream
from services.api.stream_events import KINDS, Wanted
from services.api.stream_ids import parse_id
from services.times import moment_ms

_KINDS_MAX = 100
_ID_MAX = 100

_EVENT: dict[str, Any] = {
    "type": "object",
    "title": "An event of the stream",
    "properties": {
        "id": {"type": "string", "description": "Go on behind it by `after` or the header Last-Event-ID"},
        "event": {"enum": [*KINDS, "end"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "anyOf": [
                    {"$ref": f"#/components/schemas/{name}"}
                    for name in ("Decision", "NodeChange", "ShardChange", "Error")
                ]
            },
        },
    },
    "required": ["event", "data"],
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: of each an id, the kind as `event`, and an object as `data`: a "
        "Decision, a NodeChange or a ShardChange; at last one of the kind `end`, with an Error that says why",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}


def parse_kinds(text: str | None) -> frozenset[str]:
    """Return kinds of events that are given with commas; None: all of them."""
    asked = list(KINDS) if text is None else [each.strip() for each in text.split(",")]
    for each in asked:
        if each not in KINDS:
            raise FieldError("kinds", f"{shown(each)} is no kind of event; allowed are {', '.join(KINDS)}")
    return frozenset(asked)


def stream_routes(deps: Deps, live: Live) -> APIRouter:
    """Return the route of the stream of events."""
    router = APIRouter()

    @router.get(
        "/v1/events",
        operation_id="stream_events",
        status_code=200,
        response_class=EventStream,
        responses=_STREAM,
        summary="Stream what is decided and what changes, as server-sent events",
    )
    async def events(
        request: Request,
        kinds: Annotated[
            str | None,
            Query(description=f"Only these kinds: {', '.join(KINDS)}, with commas", max_length=_KINDS_MAX),
        ] = None,
        namespace: Namespace = None,
        node: NodeName = None,
        pod: PodGiven = None,
        since: Annotated[
            str | None,
            Query(
                description="Begin at this log time: 1h is an hour ago; 03:17, a day, RFC 3339",
                max_length=TIME_MAX,
            ),
        ] = None,
        after: Annotated[
            str | None, Query(description="Begin behind the event with this id", max_length=_ID_MAX)
        ] = None,
        last_event_id: Annotated[
            str | None,
            Header(description="The same, as browsers send it; it goes before", max_length=_ID_MAX),
        ] = None,
    ) -> EventStream:
        name = pod
        if pod is not None and "/" in pod:
            namespace, _, name = pod.partition("/")
        seen_store(deps, request, namespace)  # refuses a namespace that the caller does not see
        caller, given = caller_of(request), last_event_id or after
        since_ms = moment_ms("since", since) if since else None
        wanted = Wanted(parse_kinds(kinds), namespace, name, node, since_ms, caller.namespaces)
        where = "Last-Event-ID" if last_event_id else "after"
        request.state.is_stream = True  # for the access log, which notes it when it begins
        return EventStream(live, caller, Asked(parse_id(given, where) if given else None, wanted))

    return router
