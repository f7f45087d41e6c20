"""Whole tables for other programs, piece by piece: `/v1/export/{what}`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from domain.model.errors import BerthError, FieldError
from services.api.deps import Deps
from services.api.explanation import OF_THE_POD
from services.api.routes import TIME_MAX, Namespace, seen_store
from services.codec.exported import ExportFormat, ExportWriter, export_writer
from services.ports.exports import SCHEMAS, ExportFilter, ExportRow, Schema, What
from services.times import moment_ms

_log = logging.getLogger("berth.api")

SCHEMA_HEADER = "Berth-Schema"
"""The header that names the schema of an export, and its version."""

HIDDEN: dict[What, frozenset[str]] = {
    What.DECISIONS: frozenset({"victims", "preemptor", "preemptor_priority", "nominated"}),
    What.NODES: frozenset({"spec_sent_by"}),
}
"""The columns that a key with namespaces does not see; ``decision_of`` and ``show_node`` hide the same."""

_CONTENT = {form.media_type: {"schema": {"type": "string"}} for form in ExportFormat}


class Cut(Exception):
    """An export ended in its middle; no ``BerthError``, as an answer that has begun keeps its status."""


def redacted(schema: Schema, rows: Sequence[ExportRow]) -> list[ExportRow]:
    """Return rows as a key with namespaces sees them: without what names others."""
    hidden = [at for at, name in enumerate(schema.names) if name in HIDDEN.get(schema.what, ())]
    found: list[ExportRow] = []
    for row in rows:
        values = list(row)
        for at in hidden:
            values[at] = None
        if schema.what is What.DECISIONS and values[schema.names.index("outcome")] not in OF_THE_POD:
            values[schema.names.index("sent_by")] = None
        found.append(values)
    return found


async def _pieces(
    rows: AsyncGenerator[Sequence[ExportRow], None], schema: Schema, writer: ExportWriter, *, sees_all: bool
) -> AsyncGenerator[bytes, None]:
    """Yield an export. Another thread writes it: others would have to wait for thousands of rows."""
    async with contextlib.aclosing(rows) as reading:
        async for some in reading:
            shown = some if sees_all else redacted(schema, some)
            if piece := await asyncio.to_thread(writer.rows, shown):
                yield piece
    yield await asyncio.to_thread(writer.end)


async def _begun(pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Return the same pieces once the first is there: what keeps an export from beginning is an answer."""
    first = await anext(pieces)

    async def all_of_it() -> AsyncGenerator[bytes, None]:
        async with contextlib.aclosing(pieces) as rest:
            yield first
            try:
                async for piece in rest:
                    yield piece
            except BerthError as error:
                _log.warning("an export was cut: %s", error)
                raise Cut(str(error)) from None

    return all_of_it()


def _filter(
    schema: Schema, namespace: str | None, seen: Collection[str] | None, since: str | None, until: str | None
) -> ExportFilter:
    if namespace is not None and not schema.by_namespace:
        raise FieldError("namespace", f"{schema.what} are of no namespace; leave it out")
    return ExportFilter(
        since_ms=moment_ms("since", since) if since else None,
        until_ms=moment_ms("until", until) if until else None,
        namespaces=seen if namespace is None else (namespace,),
        with_shared=namespace is None,
    )


def export_routes(deps: Deps) -> APIRouter:
    """Return the route of exports."""
    router = APIRouter()

    @router.get(
        "/v1/export/{what}",
        operation_id="export_table",
        response_class=Response,
        responses={
            200: {"description": "The rows; docs/export.md describes the columns", "content": _CONTENT}
        },
        summary="Export whole tables",
    )
    async def export(
        request: Request,
        what: Annotated[What, Path(description="What to export")],
        format: Annotated[ExportFormat, Query(description="How it is written")] = ExportFormat.CSV,
        since: Annotated[
            str | None,
            Query(
                description="Only at or after (log time): 1h is an hour ago; 03:17, a day, RFC 3339",
                max_length=TIME_MAX,
            ),
        ] = None,
        until: Annotated[
            str | None, Query(description="Only before this moment (log time)", max_length=TIME_MAX)
        ] = None,
        namespace: Namespace = None,
    ) -> Response:
        schema, store = SCHEMAS[what], seen_store(deps, request, namespace)
        which = _filter(schema, namespace, store.seen, since, until)
        writer = export_writer(schema, format)
        rows = store.exports.rows(schema, which)
        pieces = await _begun(_pieces(rows, schema, writer, sees_all=store.seen is None))
        headers: dict[str, Any] = {
            SCHEMA_HEADER: schema.label,
            "Content-Disposition": f'attachment; filename="{what}.{format}"',
        }
        return StreamingResponse(pieces, media_type=format.media_type, headers=headers)

    return router
