"""Who asked the API for what: the access log, for admins and for auditors of the whole cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from services.api.answers import Page
from services.api.answers_decisions import INSTANT, about
from services.api.caller import caller_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.formats import cursor, instant, parse_access
from services.api.routes import Cursor, Limit
from services.codec.seal import of_key
from services.ports.access import Access, AccessFilter
from services.times import moment_ms


class EventSpan(Struct, kw_only=True):
    """Neighbouring records of one partition of the log."""

    topic: Annotated[str, about("Topic")]
    partition: Annotated[int, about("Partition")]
    first: Annotated[int, about("Offset of the first record")]
    last: Annotated[int, about("Offset of the last record")]


class AccessEntry(Struct, kw_only=True):
    """A request, or equal ones of one minute."""

    at: Annotated[str, about(f"When it was answered, or the first of them ({INSTANT}, the API's clock)")]
    last_at: Annotated[str, about(f"When the last of them was answered ({INSTANT})")]
    times: Annotated[int, about("How many equal requests of the minute this stands for")]
    caller: Annotated[str | None, about("Who: key:<name> or anonymous; null: nobody was let in")]
    roles: Annotated[list[str], about("The caller's roles")]
    address: Annotated[str, about("From where; `others`: one of too many strangers")]
    method: Annotated[str, about("Method")]
    route: Annotated[str, about("Path, with the names of its parameters; `unknown`: no route")]
    target: Annotated[str, about("Path and query as asked, where somebody was let in")]
    status: Annotated[int, about("Status of the answer; 0 with the code `lost`")]
    code: Annotated[str, about("Code of the error; no-key and wrong-key are failed logins; lost: not noted")]
    duration_ms: Annotated[int, about("Milliseconds that the answer took, of the slowest")]
    events: Annotated[int | None, about("Events that the log took; null: none were sent")]
    positions: Annotated[list[EventSpan], about("Where the log has them")]


class AccessPage(Page[AccessEntry]):
    """Requests, those of the latest minute first."""


def _entry(row: Access) -> AccessEntry:
    return AccessEntry(
        at=instant(row.at_ms),
        last_at=instant(row.last_at_ms),
        times=row.times,
        caller=row.caller,
        roles=list(row.roles),
        address=row.address,
        method=row.method,
        route=row.route,
        target=row.target,
        status=row.status,
        code=row.code,
        duration_ms=row.duration_ms,
        events=row.events_count,
        positions=[
            EventSpan(topic=at.topic, partition=at.partition, first=at.first, last=at.end - 1)
            for at in row.spans
        ],
    )


def access_routes(deps: Deps) -> APIRouter:
    """Return the route of the access log."""
    router = APIRouter()

    @router.get(
        "/v1/accesses",
        operation_id="list_accesses",
        responses=answering(AccessPage),
        summary="List who asked for what",
    )
    async def accesses(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        key: Annotated[
            str | None, Query(description="Only with the keys of this name", max_length=253)
        ] = None,
        status: Annotated[int | None, Query(ge=0, le=599, description="Only with this status")] = None,
        since: Annotated[
            str | None,
            Query(description="At or after (the API's clock): 1h is an hour ago; 03:17, a day, RFC 3339"),
        ] = None,
        until: Annotated[
            str | None,
            Query(description="Before (the API's clock): 1h is an hour ago; 03:17, a day, RFC 3339"),
        ] = None,
    ) -> Response:
        if caller_of(request).namespaces is not None:
            raise ApiError("forbidden", "the access log is of all namespaces; this key is limited to some")
        which = AccessFilter(
            caller=None if key is None else of_key(key),
            status=status,
            since_ms=moment_ms("since", since) if since else None,
            until_ms=moment_ms("until", until) if until else None,
        )
        rows = await deps.store.callers.accesses(which, limit, parse_access(cursor) if cursor else None)
        following = _cursor(rows[-1]) if len(rows) == limit else None
        return json_answer(AccessPage(items=list(map(_entry, rows)), next=following))

    return router


def _cursor(row: Access) -> str:
    return cursor(row.minute_ms, row.digest.hex())
