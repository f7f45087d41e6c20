"""What pods used, what it cost and what was saved: `/v1/bill`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from services.api.answers import Page
from services.api.answers_decisions import INSTANT, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor, instant, parse_name
from services.api.routes import TIME_MAX, Cursor, Limit, Namespace, seen_store
from services.ports.bills import BillBy, BillFilter, BillSums
from services.times import moment_ms

_HOUR_MS = 3_600_000
_MILLI_SECONDS_PER_CORE_HOUR = 3_600_000
_BYTE_SECONDS_PER_GIB_HOUR = 3_600 << 30
_MICRO = 1_000_000


class BillSum(Struct, kw_only=True):
    """What pods used, and what it costs."""

    cpu_core_hours: Annotated[float, about("What they used of cpu, in cores times hours")]
    memory_gib_hours: Annotated[float, about("What they used of memory, in GiB times hours")]
    lent_cpu_core_hours: Annotated[
        float, about("How much of it was lent: what low pods used, and others beyond their requests")
    ]
    lent_memory_gib_hours: Annotated[float, about("The same of memory")]
    billed: Annotated[float, about("What all of it costs, at the prices that held when it was used")]
    saved: Annotated[float, about("How much less that is than on nodes without co-location")]


class BillItem(BillSum, kw_only=True):
    """A line of a bill."""

    name: Annotated[str, about("The namespace, the quality (high, mid, low), or the day (UTC)")]


class BillPage(Page[BillItem], kw_only=True):
    """A bill, by name."""

    by: Annotated[BillBy, about("What its lines are of")]
    since: Annotated[str | None, about(f"From when on ({INSTANT}); null: from the first hour that is kept")]
    until: Annotated[str | None, about(f"Up to when, hours that begin before ({INSTANT}); null: all")]
    total: Annotated[BillSum, about("The sum of all lines, those of other pages included")]


def _sums(row: BillSums) -> dict[str, float]:
    return {
        "cpu_core_hours": row.cpu_milli_seconds / _MILLI_SECONDS_PER_CORE_HOUR,
        "memory_gib_hours": row.memory_byte_seconds / _BYTE_SECONDS_PER_GIB_HOUR,
        "lent_cpu_core_hours": row.lent_cpu_milli_seconds / _MILLI_SECONDS_PER_CORE_HOUR,
        "lent_memory_gib_hours": row.lent_memory_byte_seconds / _BYTE_SECONDS_PER_GIB_HOUR,
        "billed": row.price_micro / _MICRO,
        "saved": row.saved_micro / _MICRO,
    }


def _item(row: BillSums, by: BillBy) -> BillItem:
    return BillItem(name=instant(int(row.key))[:10] if by is BillBy.DAY else row.key, **_sums(row))


def bill_routes(deps: Deps) -> APIRouter:
    """Return the route of the bill."""
    router = APIRouter()

    @router.get(
        "/v1/bill", operation_id="list_bill", responses=answering(BillPage), summary="Bill what pods used"
    )
    async def bill(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        since: Annotated[
            str | None,
            Query(
                description="From the hour of this moment on: 1d is a day ago; 03:17, a day, RFC 3339",
                max_length=TIME_MAX,
            ),
        ] = None,
        until: Annotated[
            str | None,
            Query(description="Only hours that begin before this moment", max_length=TIME_MAX),
        ] = None,
        namespace: Namespace = None,
        by: Annotated[BillBy, Query(description="A line for each of these")] = BillBy.NAMESPACE,
    ) -> Response:
        store = seen_store(deps, request, namespace)
        since_ms = None if since is None else moment_ms("since", since)
        which = BillFilter(
            since_ms=None if since_ms is None else since_ms - since_ms % _HOUR_MS,
            until_ms=None if until is None else moment_ms("until", until),
            namespaces=store.seen if namespace is None else (namespace,),
        )
        rows = await store.bills.lines(which, by, limit, parse_name(cursor) if cursor else None)
        total = await store.bills.total(which)
        answer = BillPage(
            items=[_item(row, by) for row in rows],
            next=_cursor(rows[-1]) if rows.more else None,
            by=by,
            since=None if which.since_ms is None else instant(which.since_ms),
            until=None if which.until_ms is None else instant(which.until_ms),
            total=BillSum(**_sums(total)),
        )
        return json_answer(answer)

    return router


def _cursor(row: BillSums) -> str:
    return cursor(row.key)
