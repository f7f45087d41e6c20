"""Which workers there are, and which of them owned which shard when: `/v1/workers` and `/v1/owners`."""

from __future__ import annotations

import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response
from msgspec import Struct, field

from domain.model.errors import FieldError
from services.api.answers import Page
from services.api.answers_decisions import INSTANT, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor, parse_position, stamp
from services.api.routes import TIME_MAX, Cursor, Limit, ShardNumber
from services.ports.store import OwnerFilter, OwnerSpan, WorkerState
from services.times import TIMES, moment_ms

HEARD_OF_SINCE = "1h"
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)


class WorkerAnswer(Struct, kw_only=True):
    """A worker since its process began."""

    name: Annotated[str, about("Its name, as in the leases")]
    incarnation: Annotated[str, about("Made anew at each start of a process")]
    state: Annotated[
        str, about("ready (to take shards), starting, silent (no heartbeat, as after a crash) or stopped")
    ]
    shards: Annotated[list[int], about("The shards that it owns now")]
    build: Annotated[str, about("Its version of berth")]
    started: Annotated[str, about(f"When it began ({INSTANT}, the ledger's clock)")]
    seen: Annotated[str, about(f"Its last heartbeat ({INSTANT})")]
    stopped: Annotated[str | None, about(f"When it stopped ({INSTANT}); null: it runs, or was killed")]
    decisions_per_second: Annotated[float | None, about("Committed before its last heartbeat")]
    moved: Annotated[int | None, about("Pods that it placed although another worker had changed their node")]
    conflicts: Annotated[int | None, about("Pods that it could not place, for this reason")]
    journal_lag_seconds: Annotated[float | None, about("By how much it is behind what other workers did")]


class WorkerPage(Page[WorkerAnswer]):
    """Workers, by name, the latest start first."""


class Owner(Struct, kw_only=True):
    """A worker that owned a shard, from when to when."""

    shard: Annotated[int, about("Number of the shard, from 0")]
    owner: Annotated[str, about("Name of the worker")]
    epoch: Annotated[int, about("Counts the owners of the shard")]
    started: Annotated[str, about(f"When it took the shard ({INSTANT}, the ledger's clock)")] = field(
        name="from"
    )
    ended: Annotated[
        str | None,
        about(f"When it gave it back, lost it, or its lease ran out ({INSTANT}); null: it owns it"),
    ] = field(name="to")


class OwnerPage(Page[Owner]):
    """Owners of shards, the latest first."""


def _worker(row: WorkerState) -> WorkerAnswer:
    figures = row.figures
    running = "ready" if row.is_ready else "starting"
    return WorkerAnswer(
        name=row.name,
        incarnation=row.incarnation,
        state="stopped" if row.stopped_at is not None else running if row.is_up else "silent",
        shards=list(row.shards),
        build=row.build,
        started=str(stamp(row.started_at)),
        seen=str(stamp(row.seen_at)),
        stopped=stamp(row.stopped_at),
        decisions_per_second=figures.decisions_per_second if figures else None,
        moved=figures.moved if figures else None,
        conflicts=figures.conflicts if figures else None,
        journal_lag_seconds=figures.journal_seconds if figures else None,
    )


def _owner(row: OwnerSpan) -> Owner:
    return Owner(
        shard=row.shard,
        owner=row.owner,
        epoch=row.epoch,
        started=str(stamp(row.taken_at)),
        ended=stamp(row.ended_at),
    )


def _moment(path: str, text: str) -> datetime.datetime:
    return _after_epoch(path, moment_ms(path, text) * 1000)


def _after_epoch(path: str, microseconds: int) -> datetime.datetime:
    try:
        return _EPOCH + microseconds * _MICROSECOND
    except OverflowError:
        raise FieldError(path, "is no time of the years 1 to 9999, UTC") from None


def worker_routes(deps: Deps) -> APIRouter:
    """Return the routes of workers and of owners."""
    router = APIRouter()

    @router.get(
        "/v1/workers",
        operation_id="list_workers",
        responses=answering(WorkerPage),
        summary="List workers, and what each owns",
    )
    async def workers(
        since: Annotated[
            str, Query(description=f"Heard of at or after: {TIMES}", max_length=TIME_MAX)
        ] = HEARD_OF_SINCE,
    ) -> Response:
        rows = await deps.store.processes.workers(_moment("since", since or HEARD_OF_SINCE))
        return json_answer(WorkerPage(items=list(map(_worker, rows))))

    @router.get(
        "/v1/owners",
        operation_id="list_owners",
        responses=answering(OwnerPage),
        summary="List which worker owned which shard when",
    )
    async def owners(
        limit: Limit = 100,
        cursor: Cursor = None,
        shard: ShardNumber = None,
        since: Annotated[
            str | None, Query(description=f"Owned it at or after: {TIMES}", max_length=TIME_MAX)
        ] = None,
        until: Annotated[str | None, Query(description="Owned it before", max_length=TIME_MAX)] = None,
    ) -> Response:
        which = OwnerFilter(
            shard, _moment("since", since) if since else None, _moment("until", until) if until else None
        )
        after = parse_position(cursor) if cursor else None
        place = None if after is None else (_after_epoch("cursor", after[0]), after[1])
        rows = await deps.store.processes.owners(which, limit, place)
        following = _cursor(rows[-1]) if rows.more else None
        return json_answer(OwnerPage(items=list(map(_owner, rows)), next=following))

    return router


def _cursor(row: OwnerSpan) -> str:
    return cursor((row.taken_at - _EPOCH) // _MICROSECOND, row.shard)
