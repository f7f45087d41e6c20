"""What was requested, measured and decided over time: `/v1/usage`."""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from domain.model.errors import FieldError
from domain.model.timestamps import clamp_ms
from domain.model.validation import shown
from services.api.answers import Page
from services.api.answers_decisions import INSTANT, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor, instant, parse_point
from services.api.routes import TIME_MAX, Cursor, Limit, seen_store
from services.ports.rollups import STEP_MS, By, Figure, UsageFilter, UsagePoint
from services.times import moment_ms

SINCE = "1h"
EVICTED = "evicted"
_STEP = re.compile(r"([0-9]{1,5})([mhd])", re.ASCII)
_MINUTES = {"m": 1, "h": 60, "d": 1440}
_MEAN = "mean of the samples; null: there is none"
_MILLI, _BYTES = f"in thousandths of a core, {_MEAN}", f"in bytes, {_MEAN}"


class UsageItem(Struct, kw_only=True):
    """What was requested of, measured on and decided for a namespace, a node or the cluster in a step."""

    at: Annotated[str, about(f"When the step begins ({INSTANT}, log time)")]
    name: Annotated[str, about("The namespace or the node; empty: the cluster")]
    samples: Annotated[
        int, about("How many samples the means are of, one each 5 minutes of log time at most")
    ]
    pods: Annotated[int | None, about(f"Pods that had a node, {_MEAN}")]
    pending_pods: Annotated[int | None, about(f"Pods that waited, {_MEAN}; null of a node")]
    requested_cpu_milli: Annotated[int | None, about(f"What pods with a node requested of cpu, {_MILLI}")]
    requested_memory_bytes: Annotated[int | None, about(f"The same of memory, {_BYTES}")]
    allocatable_cpu_milli: Annotated[
        int | None, about(f"What nodes offered of cpu, {_MILLI}; null of a namespace")
    ]
    allocatable_memory_bytes: Annotated[int | None, about(f"The same of memory, {_BYTES}")]
    measured_cpu_milli: Annotated[
        int | None, about(f"What was measured of cpu, {_MILLI} in which it was measured; null of a namespace")
    ]
    measured_memory_bytes: Annotated[int | None, about(f"The same of memory, {_BYTES}")]
    decisions: Annotated[
        dict[str, int],
        about("Decisions by outcome; empty of a node for a key that is limited to namespaces"),
    ]
    evictions: Annotated[int, about("How many of them were evictions")]


class UsagePage(Page[UsageItem], kw_only=True):
    """Usage over time, by time and name."""

    by: Annotated[By, about("What its items are of")]
    since: Annotated[str, about(f"From when on ({INSTANT})")]
    until: Annotated[str, about(f"Before when the last step begins ({INSTANT})")]
    step_minutes: Annotated[int, about("How long each step is")]


class _Time(NamedTuple):
    since_ms: int
    until_ms: int
    span_ms: int


def _time(since: str, until: str | None, step: str | None) -> _Time:
    """Return whole steps: the first one that is touched, and those that begin before the end."""
    since_ms = clamp_ms(moment_ms("since", since))
    until_ms = clamp_ms(moment_ms("until", until or "now"))
    if until is None:
        until_ms += STEP_MS  # log time is that of the log's clock
    since_ms -= since_ms % STEP_MS
    until_ms += -until_ms % STEP_MS
    return _Time(since_ms, until_ms, _span_ms(step, until_ms - since_ms))


def _span_ms(step: str | None, whole_ms: int) -> int:
    if step is None:
        return max(STEP_MS, whole_ms)
    found = _STEP.fullmatch(step)
    minutes = int(found[1]) * _MINUTES[found[2]] if found else 0
    if minutes == 0 or minutes * 60_000 % STEP_MS:
        raise FieldError("step", f"{shown(step)} is no step; multiples of 5m are allowed, as 15m, 1h or 1d")
    return minutes * 60_000


def _item(point: UsagePoint) -> UsageItem:
    figures = {figure.value: point.figures.get(figure) for figure in Figure}
    return UsageItem(
        at=instant(point.at_ms),
        name=point.name,
        samples=point.samples_count,
        decisions=dict(point.decisions),
        evictions=point.decisions.get(EVICTED, 0),
        **figures,
    )


def usage_routes(deps: Deps) -> APIRouter:
    """Return the route of usage over time."""
    router = APIRouter()

    @router.get(
        "/v1/usage",
        operation_id="list_usage",
        responses=answering(UsagePage),
        summary="Show usage and decisions over time",
    )
    async def usage(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        since: Annotated[
            str,
            Query(
                description="From the step of this moment on (log time): 1h is an hour ago; 03:17, RFC 3339",
                max_length=TIME_MAX,
            ),
        ] = SINCE,
        until: Annotated[
            str | None, Query(description="Only steps that begin before this moment", max_length=TIME_MAX)
        ] = None,
        step: Annotated[
            str | None,
            Query(
                description="How long a step is: 5m or a multiple, as 1h; without it there is one",
                max_length=TIME_MAX,
            ),
        ] = None,
        by: Annotated[By, Query(description="An item for each of these in each step")] = By.CLUSTER,
    ) -> Response:
        time, after = _time(since, until, step), None
        if cursor is not None:  # times that are so long ago are others by now
            *bounds, at_ms, name = parse_point(cursor)
            time, after = _Time(*bounds), (at_ms, name)
        store = seen_store(deps, request)
        rows = await store.over_time.points(UsageFilter(*time, by, store.seen), limit, after)
        answer = UsagePage(
            items=list(map(_item, rows)),
            next=_cursor(time, rows[-1]) if rows.more else None,
            by=by,
            since=instant(time.since_ms),
            until=instant(time.until_ms),
            step_minutes=time.span_ms // 60_000,
        )
        return json_answer(answer)

    return router


def _cursor(time: _Time, point: UsagePoint) -> str:
    return cursor(*time, point.at_ms, point.name)
