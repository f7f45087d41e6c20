"""The field: all live nodes as columns, for a page or a program that draws or sums them at once.

It is the same for all who may read, so that one read of the ledger serves all of them, and each is kept for
a while: a twentieth of the time at most goes into reading it again, however many pages show it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, NamedTuple

import msgspec
from fastapi import APIRouter, Query, Request, Response
from msgspec import Struct

from domain.model.errors import FieldError
from services.api.answers_decisions import about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.formats import instant
from services.api.routes import AsOf, as_of_store
from services.ports.field import FIELD_RESOURCES, FieldFilter
from services.ports.field import Field as Columns
from services.ports.past import Moment
from services.ports.store import Store

RESOURCES_MAX = 16
NAME_MAX = 317  # a label's key: 253 characters, a slash, 63 characters
KEPT_MAX = 8
"""Fields that are kept, at some 1.5 MB each where there are 20,000 nodes."""
READS_SHARE = 20
"""A field whose read took a second is given again for this many, whatever was committed meanwhile."""
_LEVEL = 5


class FieldGroup(Struct, kw_only=True):
    """Nodes in a row with one value of the label."""

    value: Annotated[str | None, about("Value of the label; null: these nodes do not have it")]
    nodes: Annotated[int, about("How many nodes these are")]


class FieldColumn(Struct, kw_only=True):
    """One resource, with an entry for each node."""

    name: Annotated[
        str,
        about(
            "The resource. Amounts of cpu are in thousandths of a core, of nvidia.com/gpu in thousandths of "
            "a device, of memory in bytes, of others in their own units"
        ),
    ]
    allocatable: Annotated[list[int], about("What each node offers")]
    requested: Annotated[list[int], about("What the pods of each node ask for together")]
    measured: Annotated[
        list[float | None] | None,
        about(
            "What was measured on each node last, in percent of its capacity, null where nothing was; "
            "instead of a list null where it was not asked for, and of the past"
        ),
    ]


class Field(Struct, kw_only=True):
    """All live nodes as columns: what stands at one index in each list is of one node."""

    at: Annotated[str | None, about("Log time of the moment that was asked for; null: now, or before all")]
    by: Annotated[str | None, about("Label whose values group the nodes; null: none does")]
    groups: Annotated[list[FieldGroup], about("Which nodes have which value, in the order of the lists")]
    names: Annotated[list[str], about("Names of the nodes, by group, then by name")]
    resources: Annotated[list[FieldColumn], about("The columns, in the order in which they were asked for")]
    unschedulable: Annotated[list[int], about("Indices of the nodes that take no new pods (cordoned)")]
    not_ready: Annotated[list[int], about("Indices of the nodes that say that they are not ready")]
    tainted: Annotated[
        list[int], about("Indices of the nodes with a taint that keeps pods off: NoSchedule or NoExecute")
    ]
    hot: Annotated[
        list[int] | None,
        about(
            "Indices of the nodes that are hot; null where measurements were not asked for, and of the past"
        ),
    ]


class _Key(NamedTuple):
    which: FieldFilter
    position: int | None  # of the moment; None: now


class Kept(NamedTuple):
    """An answer: its bytes, plain and compressed, their mark, and for what and until when it holds."""

    plain: bytes
    packed: bytes
    etag: str
    committed: tuple[object, ...]  # how far each shard had read
    good_until: float


class Given(NamedTuple):
    """An answer that is kept, and in how many seconds a newer one can be had; 0: it is the newest."""

    kept: Kept
    newer_seconds: float


class FieldCache:
    """Reads fields for all callers, one at a time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: OrderedDict[_Key, Kept] = OrderedDict()
        self._reading = asyncio.Lock()

    async def get(self, store: Store, which: FieldFilter, *, is_fresh: bool = False) -> Given:
        """Return a field as it is now or was at the store's moment; ``is_fresh``: not one of a while ago."""
        moment = store.moment
        key = _Key(which, None if moment is None else moment.position)
        if (given := await self._given(store, key, is_fresh=is_fresh)) is not None:
            return given
        async with self._reading:
            if (given := await self._given(store, key, is_fresh=is_fresh)) is not None:
                return given  # who was here before has read it
            return Given(await self._read(store, key), 0)

    async def _given(self, store: Store, key: _Key, *, is_fresh: bool) -> Given | None:
        """Return what is kept, where it may be given."""
        found = self._kept.get(key)
        if found is None or key.position is not None or found.committed == await _committed(store):
            return None if found is None else Given(found, 0)
        old_seconds = found.good_until - self._now()
        return None if is_fresh or old_seconds <= 0 else Given(found, old_seconds)

    async def _read(self, store: Store, key: _Key) -> Kept:
        committed, began = await _committed(store), self._now()
        columns = await store.fields.field(key.which, store.moment)
        took = self._now() - began
        plain, packed, etag = await asyncio.to_thread(_encode, key.which, store.moment, columns)
        good_until = self._now() + READS_SHARE * took
        kept = Kept(plain, packed, etag, committed, good_until)
        self._kept[key] = kept
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return kept


async def _committed(store: Store) -> tuple[object, ...]:
    """Return what changes with each batch that is committed."""
    return tuple(await store.processes.offsets()) if store.moment is None else ()


def field_of(which: FieldFilter, moment: Moment | None, columns: Columns) -> Field:
    """Return columns as the API shows them."""
    has_measured = which.measured and moment is None
    return Field(
        at=instant(moment.log_time_ms) if moment is not None and moment.position else None,
        by=which.by or None,
        groups=[FieldGroup(value=each.value, nodes=each.nodes_count) for each in columns.groups],
        names=list(columns.names),
        resources=[
            FieldColumn(
                name=name,
                allocatable=list(column.offered),
                requested=list(column.taken),
                measured=list(column.measured) if has_measured else None,
            )
            for name, column in columns.columns.items()
        ],
        unschedulable=list(columns.unschedulable),
        not_ready=list(columns.not_ready),
        tainted=list(columns.repelling),
        hot=list(columns.hot) if has_measured else None,
    )


def _encode(which: FieldFilter, moment: Moment | None, columns: Columns) -> tuple[bytes, bytes, str]:
    plain = msgspec.json.encode(field_of(which, moment, columns))
    mark = hashlib.blake2b(plain, digest_size=12).hexdigest()
    return plain, gzip.compress(plain, _LEVEL, mtime=0), f'W/"{mark}"'


def parse_resources(text: str | None) -> tuple[str, ...]:
    if text is None:
        return FIELD_RESOURCES
    names = tuple(dict.fromkeys(filter(None, text.split(","))))
    if not 0 < len(names) <= RESOURCES_MAX:
        allowed = f"1 to {RESOURCES_MAX} names with commas between them are allowed"
        raise FieldError("resources", f"has {len(names)} names; {allowed}")
    return names


By = Annotated[
    str | None,
    Query(
        description="Group nodes by the values of this label, as topology.kubernetes.io/zone",
        max_length=NAME_MAX,
    ),
]
Resources = Annotated[
    str | None,
    Query(
        description=f"These resources, with commas between them; else {', '.join(FIELD_RESOURCES)}",
        max_length=(NAME_MAX + 1) * RESOURCES_MAX,
    ),
]


def field_routes(deps: Deps) -> APIRouter:
    """Return the route of the field."""
    router, cache = APIRouter(), FieldCache()

    @router.get(
        "/v1/field",
        operation_id="get_field",
        responses=answering(Field),
        summary="Show all nodes at once, as columns",
    )
    async def field(
        request: Request,
        by: By = None,
        resources: Resources = None,
        measured: Annotated[
            bool, Query(description="Whether to say what was measured, and what is hot")
        ] = False,
        at: AsOf = None,
    ) -> Response:
        store = await as_of_store(deps, request, at)
        which = FieldFilter(by or "", parse_resources(resources), measured)
        kept, newer_seconds = await cache.get(store, which, is_fresh="wait" in request.query_params)
        headers = {"ETag": kept.etag, "Vary": "Accept-Encoding"}
        if newer_seconds:
            headers["Retry-After"] = str(math.ceil(newer_seconds))
        if kept.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(kept.packed, headers=headers, media_type="application/json")
        return Response(kept.plain, headers=headers, media_type="application/json")

    return router
