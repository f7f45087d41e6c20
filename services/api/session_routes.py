"""Who asks, and the sessions of people who sign in with a key once and show a token from then on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from msgspec import Struct

from domain.model.limits import session_seconds_max
from services.api.answers_decisions import INSTANT, about
from services.api.auth import key_of
from services.api.caller import MAY, Caller, caller_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.formats import stamp
from services.api.keys import is_session, key_hash, new_session


class Asking(Struct, kw_only=True):
    """Who asks, and what the answers are limited to."""

    name: Annotated[str | None, about("Name of the key; null: this API asks the caller for none")]
    roles: Annotated[list[str], about("Its roles")]
    namespaces: Annotated[list[str] | None, about("The namespaces that it sees; null: all")]
    may: Annotated[list[str], about(f"What its roles may do, of {', '.join(MAY)}")]
    session_until: Annotated[
        str | None, about(f"Until when the session lasts at most ({INSTANT}); null: it is none")
    ]


class NewSession(Struct, kw_only=True):
    """A session that was begun."""

    token: Annotated[str, about("Show it as a key; it is shown this once")]
    until: Annotated[str, about(f"Until when it lasts at most ({INSTANT}); it ends with its key before")]


class SessionEnded(Struct, kw_only=True):
    """A session that was ended."""

    ended: Annotated[bool, about("Whether it is")]


def _asking(caller: Caller, until: str | None) -> Asking:
    return Asking(
        name=caller.name,
        roles=sorted(caller.roles),
        namespaces=None if caller.namespaces is None else sorted(caller.namespaces),
        may=[action for action, roles in MAY.items() if roles & caller.roles],
        session_until=until,
    )


def session_routes(deps: Deps) -> APIRouter:
    """Return the routes of who asks and of sessions."""
    router = APIRouter()

    def token_of(request: Request) -> str:
        token = key_of(request.headers)
        if token is None or not is_session(token):
            raise ApiError("not-found", "no session is shown, so there is none to end")
        return token

    @router.get(
        "/v1/caller",
        operation_id="get_caller",
        responses=answering(Asking),
        summary="Say who asks, and what he sees",
    )
    async def caller(request: Request) -> Response:
        session = getattr(request.state, "session", None)
        return json_answer(_asking(caller_of(request), session and stamp(session.expires_at)))

    @router.post(
        "/v1/sessions",
        operation_id="begin_session",
        status_code=201,
        responses=answering(NewSession, 201),
        summary="Begin a session of the key that is shown",
    )
    async def begin(request: Request) -> Response:
        key, token = key_of(request.headers), new_session()
        if caller_of(request).grant is None or key is None:
            raise ApiError("not-found", "this API asks for no key, so nobody has to sign in")
        if is_session(key):
            raise ApiError("forbidden", "a session begins no other; show a key")
        hashes = key_hash(token), key_hash(key)
        session = await deps.store.callers.begin_session(*hashes, session_seconds_max)
        if session is None:
            raise ApiError("unauthorized", "this key was revoked")
        return json_answer(NewSession(token=token, until=str(stamp(session.expires_at))), 201)

    @router.delete(
        "/v1/sessions",
        operation_id="end_session",
        responses=answering(SessionEnded),
        summary="End the session that is shown",
    )
    async def end(request: Request) -> Response:
        await deps.store.callers.end_session(key_hash(token_of(request)))
        return json_answer(SessionEnded(ended=True))

    return router
