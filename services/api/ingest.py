"""The write side: checks a batch of events, drops repeated ones, and appends the rest to the log."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Annotated, Any

import msgspec
import orjson
from fastapi import APIRouter, Query, Request, Response

from domain.model import limits
from domain.model.errors import FieldError
from domain.model.validation import check_count, shown
from services.api.answers import ErrorDetail, Ingested, Position
from services.api.caller import Caller, caller_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.scope import Scope
from services.api.waiting import Appended, Folding, Until, next_letters, seconds_of, wait_for
from services.codec.gateway import Outgoing
from services.metrics import ApiMetrics
from services.phrases import plural
from services.ports.store import Store

_TURN_SECONDS = 0.01
"""How long events are read before other requests have their turn."""

_OF_ONE_EVENT = {"type", "object", "kind"}  # a manifest by itself is told what it lacks
_BODY = 'allowed are an event {"type", "object"}, a list of events, and {"events": [...]}'


async def read_body(
    request: Request,
    charge: Callable[[int], None] = lambda _: None,
    hold_bytes: Callable[[int], None] = lambda _: None,
) -> bytes:
    """Read the body, and charge what came of it; refuse it as soon as it is too large to hold."""
    chunks, size = [], 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limits.request_bytes_max:
                raise ApiError(
                    "too-large", f"a request may hold {limits.request_bytes_max} bytes (request_bytes_max)"
                )
            hold_bytes(len(chunk))
            chunks.append(chunk)
    finally:
        charge(size)
    return b"".join(chunks)


_ABSENT = msgspec.Raw(b"null")


class _Body(msgspec.Struct):
    """The fields of a body that is an object."""

    events: msgspec.Raw = _ABSENT
    type: msgspec.Raw = _ABSENT
    object: msgspec.Raw = _ABSENT
    kind: msgspec.Raw = _ABSENT


_read_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_read_object = msgspec.json.Decoder(_Body).decode


def _events(body: bytes) -> list[msgspec.Raw]:
    """Return the texts of a body's events: a list, bare or under ``events``, or one event by itself."""
    values = _values_count(body)
    if values > limits.request_values_max:
        allowed = f"{limits.request_values_max} are allowed (request_values_max)"
        raise ApiError("too-large", f"{values} values; {allowed}")
    try:
        found = body
        if body.lstrip()[:1] == b"{":
            parts = _read_object(body)
            if any(getattr(parts, name) is not _ABSENT for name in _OF_ONE_EVENT):
                return [msgspec.Raw(body)]
            found = bytes(parts.events)
        events = _read_list(found)
    except msgspec.ValidationError:
        raise FieldError("events", f"there is no list of events; {_BODY}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_json(error) from None
    if len(events) > limits.events_per_request_max:
        raise ApiError(
            "too-large",
            f"{len(events)} events; {limits.events_per_request_max} are allowed (events_per_request_max)",
        )
    return events


def _values_count(text: bytes) -> int:
    """Return how many values a text has at most. That takes no time, unlike making objects of them."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _not_json(error: Exception) -> ApiError:
    return ApiError("not-json", f"the body is not JSON: {error}; {_BODY}")


def _read(text: msgspec.Raw) -> Any:
    """Read one event, unless that takes so long that others would wait for it."""
    raw = bytes(text)
    if len(raw) > limits.sent_event_bytes_max:
        allowed = f"{limits.sent_event_bytes_max} are allowed (sent_event_bytes_max)"
        raise FieldError("", f"is {len(raw)} bytes as it was sent; {allowed}")
    check_count(_values_count(raw), limits.event_values_max, "event_values_max", "")
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _not_json(error) from None


Refused = dict[int, ErrorDetail]
"""What is wrong with events, by their position in the request."""


def _detail(index: int, error: FieldError) -> ErrorDetail:
    return ErrorDetail(index=index, path=error.path, message=error.message)


async def check(
    deps: Deps, scope: Scope, events: list[msgspec.Raw]
) -> tuple[dict[int, Outgoing], Refused, Refused]:
    """Return the events to send by position, what is wrong with others, and what the caller may not send.

    Other requests have their turn every few milliseconds.
    """
    good: dict[int, Outgoing] = {}
    bad: Refused = {}
    forbidden: Refused = {}
    began = time.perf_counter()
    for index, text in enumerate(events):
        if time.perf_counter() - began > _TURN_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()
        refused = bad
        try:
            prepared = deps.gateway.prepare(_read(text))
            refused = forbidden
            scope.check(prepared)
            good[index] = prepared
        except FieldError as error:
            refused[index] = _detail(index, error)
        except RecursionError:
            bad[index] = ErrorDetail(index=index, path="", message="is nested too deeply")
    for index, foreign in (await scope.foreign_bindings(deps.store, good)).items():
        del good[index]
        forbidden[index] = _detail(index, foreign)
    return good, bad, forbidden


async def _fresh(store: Store, holder: str, good: Mapping[int, Outgoing]) -> tuple[list[Outgoing], Refused]:
    """Drop events that were accepted before; refuse a known id with other content."""
    ids = [each.id for each in good.values() if each.id]
    seen = dict(await store.callers.known_events(holder, ids)) if ids else {}
    fresh: list[Outgoing] = []
    bad: Refused = {}
    for index, each in good.items():
        if each.id is None or each.id not in seen:
            fresh.append(each)
        elif seen[each.id] not in (None, each.digest):
            message = f"{shown(each.id)} was accepted before with other content; an event's id is its own"
            bad[index] = ErrorDetail(index=index, path="id", message=message)
        if each.id is not None:
            seen.setdefault(each.id, each.digest)
    return fresh, bad


class Taken:
    """The ids of the events that some request of this process is about to append, each with its holder.

    An id is looked up before its event is appended and recorded after; between the two no other request may
    do the same.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], asyncio.Event] = {}

    @contextlib.asynccontextmanager
    async def alone(self, ids: Collection[tuple[str, str]]) -> AsyncIterator[None]:
        """Wait until no other request has one of these ids, and have all of them at once."""
        while others := [self._until[each] for each in ids if each in self._until]:
            await others[0].wait()
        done = asyncio.Event()
        self._until.update(dict.fromkeys(ids, done))
        try:
            yield
        finally:
            for each in ids:
                del self._until[each]
            done.set()


async def ingest(
    deps: Deps, taken: Taken, caller: Caller, events: list[msgspec.Raw], *, partial: bool
) -> Appended:
    """Append events; return the counts, and where the events are.

    An id is recorded only after its event is durable in the log. A request that is repeated because its
    outcome was unknown may append an event twice; folding an event twice changes nothing.
    """
    async with deps.gate.allowance.reading(caller):
        good, bad, forbidden = await check(deps, Scope(caller), events)
    holder = caller.name or ""
    ids = {(holder, each.id) for each in good.values() if each.id}
    async with deps.gate.allowance.appending(caller), taken.alone(ids):
        fresh, reused = await _fresh(deps.store, holder, good)
        refused = bad | forbidden | reused
        _count(deps.metrics, "invalid", len(bad) + len(reused))
        _count(deps.metrics, "forbidden", len(forbidden))
        if refused and not partial:
            raise _nothing_sent(refused, forbidden)
        return await _append(deps, caller, good, fresh, reused, refused)


def _nothing_sent(refused: Refused, forbidden: Refused) -> ApiError:
    """Return the error that names the first event that is refused; one that is forbidden goes before."""
    first = min((forbidden or refused).values(), key=lambda each: int(each.index or 0))
    path = ".".join(filter(None, (f"events[{first.index}]", first.path)))
    more = f" (and {plural(len(refused) - 1, 'more event')})" if len(refused) > 1 else ""
    return ApiError(
        "forbidden" if forbidden else "invalid-events",
        f"nothing was sent, for {path}: {first.message}{more}; partial=true sends the others",
        [refused[index] for index in sorted(refused)],
    )


async def _append(
    deps: Deps,
    caller: Caller,
    good: Mapping[int, Outgoing],
    fresh: list[Outgoing],
    reused: Refused,
    refused: Refused,
) -> Appended:
    spans = await deps.appender.append(fresh, caller.sent_by)
    if digests := {each.id: each.digest for each in fresh if each.id}:
        await deps.store.callers.record_events(caller.name or "", digests)
    duplicates_count = len(good) - len(reused) - len(fresh)
    _count(deps.metrics, "accepted", len(fresh))
    _count(deps.metrics, "duplicate", duplicates_count)
    answer = Ingested(
        accepted=len(fresh),
        duplicates=duplicates_count,
        invalid=len(refused),
        errors=[refused[index] for index in sorted(refused)],
        positions=[Position(topic=at.topic, partition=at.partition, offset=at.end - 1) for at in spans],
    )
    return Appended(answer, [each for index, each in good.items() if index not in reused], spans)


def _count(metrics: ApiMetrics, outcome: str, count: int) -> None:
    if count:
        metrics.events.labels(outcome).inc(count)


def ingest_routes(deps: Deps, folding: Folding) -> APIRouter:
    """Return the route that takes events."""
    router, taken = APIRouter(), Taken()
    one = {"$ref": "#/components/schemas/Event"}
    several = {"type": "array", "items": one, "title": "The events, in order"}
    schema = {"anyOf": [{"$ref": "#/components/schemas/EventList"}, several, one]}

    @router.post(
        "/v1/events",
        operation_id="append_events",
        status_code=202,
        responses=answering(Ingested, 202),
        summary="Append events to the log",
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}
        },
    )
    async def post_events(
        request: Request,
        partial: bool = Query(False, description="Send the valid events even when others are invalid"),
        wait: Annotated[
            str, Query(description="Answer when the events are folded, or after this time")
        ] = "0s",
        until: Annotated[
            Until, Query(description="With wait: decided adds the decision of each pod")
        ] = "folded",
    ) -> Response:
        seconds = seconds_of(wait)
        caller, allowance = caller_of(request), deps.gate.allowance
        allowance.check(caller)  # a caller over its limit is told before it sends more
        with allowance.body(caller) as hold_bytes:
            body = await read_body(request, lambda size: allowance.spend(caller, "bytes", size), hold_bytes)
            events = _events(body)
            allowance.spend(caller, "events", len(events))
            letters = await next_letters(deps.store) if seconds else {}
            sent = await ingest(deps, taken, caller, events, partial=partial)
            del body, events  # a request that waits holds only what is kept of them
            request.state.sent = sent  # for the access log
            if not seconds:
                return json_answer(sent.answer, 202)
            seen = deps.store.seen_by(caller_of(request).namespaces)
            answer = await wait_for(sent, folding, seen, deps.log, letters, until=until, seconds=seconds)
            return json_answer(answer, 202)

    return router
