"""Sends the event of a dead letter again, as the caller would send it anew."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
import orjson
from fastapi import APIRouter, Path, Request, Response

from domain.model.errors import LogTruncated
from services.api.answers import Ingested
from services.api.caller import caller_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.formats import parse_row_id
from services.api.ingest import Taken, ingest
from services.ports.ledger import DeadLetter
from services.ports.log import Log, Record, TopicPartition

_READ_SECONDS = 2.0


async def _record(log: Log, letter: DeadLetter) -> Record | None:
    """Return a dead letter's record as the log has it; None where the log no longer does."""
    reader = await log.reader()
    try:
        await reader.assign({TopicPartition(letter.topic, letter.partition): letter.offset})
        with contextlib.suppress(LogTruncated):
            for record in await reader.poll(1, _READ_SECONDS):
                if record.offset == letter.offset and record.key == letter.key:
                    return record
        return None
    finally:
        await reader.aclose()


def _event_of(record: Record) -> msgspec.Raw:
    """Return a record's event without its id: by that it would be known already."""
    try:
        event = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        event = None
    if not isinstance(event, dict):
        raise ApiError("invalid-events", "its record is no event, so there is nothing to send again")
    event.pop("id", None)
    return msgspec.Raw(orjson.dumps(event))


def resend_routes(deps: Deps) -> APIRouter:
    """Return the route that sends a dead letter's event again."""
    router, taken = APIRouter(), Taken()

    @router.post(
        "/v1/deadletters/{id}/resend",
        operation_id="resend_deadletter",
        status_code=202,
        responses=answering(Ingested, 202),
        summary="Send the event of a dead letter again, as the log has it",
    )
    async def resend(request: Request, id: Annotated[str, Path(description="<shard>-<seq>")]) -> Response:
        caller, allowance = caller_of(request), deps.gate.allowance
        allowance.check(caller)
        row = await deps.store.seen_by(caller.namespaces).deadletter(*parse_row_id(id))
        if row is None:
            raise ApiError("not-found", f"dead letter {id} is not known here")
        record = await _record(deps.log, row.letter)
        if record is None:
            raise ApiError("not-found", f"the log no longer has the record of dead letter {id}")
        event = _event_of(record)
        allowance.spend(caller, "bytes", len(bytes(event)))
        allowance.spend(caller, "events", 1)
        request.state.sent = sent = await ingest(deps, taken, caller, [event], partial=False)
        return json_answer(sent.answer, 202)

    return router
