"""Pages of the console: what each asks the API, what it makes of the answers, and its twin with these."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import quote

import orjson
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from domain.model.errors import FieldError
from services.api.formats import instant
from services.console.asking import Asking, NotAnswered
from services.console.blocks import Json, Table, View
from services.console.errors import error_view
from services.console.health import Health
from services.console.here import Here, moment_before
from services.console.render import Frame, html_answer
from services.console.session import FORM_COOKIE, SESSION_COOKIE, Visitor, set_cookie
from services.times import BatchId, as_of

PATH = "/console"
LIST = ("limit", "cursor", "sort")
"""Parameters of a page that is a list."""
_OF_ALL = ("at", "ago")
_FULL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z", re.ASCII)
"""A moment that is the same tomorrow, and for everybody."""
NOT_BEGUN = "Nothing was known yet: the moment is before all records."


class Page(NamedTuple):
    """A page by its path below the console.

    ``gather`` asks the API, ``view`` makes a page of the answers, ``filters`` are the parameters that it
    takes. Without ``is_timed`` it shows what is now, whatever the moment.
    """

    path: str
    gather: Callable[[Asking], Awaitable[Json]]
    view: Callable[[Json, Here], View]
    filters: Sequence[str] = ()
    is_timed: bool = True


def root_of(request: Request) -> str:
    """Return where the console is on this host, without a slash at its end."""
    return f"{request.scope.get('root_path', '')}{PATH}"


def here_of(request: Request, visitor: Visitor) -> Here:
    """Return where a visitor is."""
    prefix = len(request.scope.get("root_path", "")) if _has_root(request) else 0
    path = request.scope["path"][prefix:].removeprefix(PATH)
    query = {name: each for name, each in request.query_params.items() if name not in _OF_ALL and each}
    at = (request.query_params.get("at") or "").strip() or None
    now = datetime.datetime.now(datetime.UTC)
    return Here(root_of(request), quote(path, safe="/:@") or "/", query, at, visitor.token, now)


def _has_root(request: Request) -> bool:
    return str(request.scope["path"]).startswith(request.scope.get("root_path", "") + PATH)


async def show(page: Page, request: Request) -> Response:
    """Return a page, or the one that says why it cannot be shown."""
    visitor = Visitor.of(request)
    here, asking = here_of(request, visitor), Asking(request, visitor.session)
    if (moved := _fixed(request, here)) is not None:
        return RedirectResponse(moved, 303)
    who: Json | None = None
    try:
        who = await asking.get("/v1/caller")
        _check_query(page, request.query_params.keys())
        if page.is_timed and here.at is not None:
            told = await asking.look()
            here = here._replace(looked_at=told["at"], begins=told["begins"])
        view = _before_all(page.view(await page.gather(asking), here), here)
        status = 200
    except NotAnswered as error:
        view, status = error_view(error, here, is_signed_in=visitor.session is not None), error.status
    return await framed(request, visitor, here, view, status=status, who=who, is_timed=page.is_timed)


async def framed(
    request: Request,
    visitor: Visitor,
    here: Here,
    view: View,
    *,
    status: int,
    who: Json | None,
    is_timed: bool = True,
) -> Response:
    """Return a view as an answer, with what stands on all pages around it."""
    health = Health.of(await Asking(request, None).ready())
    frame = Frame(view=view, here=here, who=who, health=health, is_timed=is_timed, status=status)
    answer = html_answer(frame)
    if status == 401 and visitor.session is not None:
        set_cookie(request, answer, SESSION_COOKIE, None, root_of(request))
    if visitor.is_new or (status == 401 and visitor.session is not None):
        keep_secret(request, answer, visitor)
    return answer


async def refuse(request: Request, visitor: Visitor, error: NotAnswered) -> Response:
    """Return the page that says why something is not done."""
    try:
        who = await Asking(request, visitor.session).get("/v1/caller")
    except NotAnswered:
        who = None
    here = here_of(request, visitor)
    view = error_view(error, here, is_signed_in=visitor.session is not None)
    return await framed(request, visitor, here, view, status=error.status, who=who)


def refusing(
    answer: Callable[[Request, Visitor], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers a form of a visitor, or says on a page why it is not done."""

    async def handle(request: Request) -> Response:
        visitor = Visitor.of(request)
        try:
            return await answer(request, visitor)
        except NotAnswered as error:
            return await refuse(request, visitor, error)

    return handle


def keep_secret(request: Request, answer: Response, visitor: Visitor) -> None:
    """Let a browser keep the secret to which the forms are bound that it was just shown."""
    set_cookie(request, answer, FORM_COOKIE, visitor.secret, root_of(request))


async def show_twin(page: Page, request: Request) -> Response:
    """Return what a page was made of."""
    asking = Asking(request, Visitor.of(request).session)
    try:
        await asking.get("/v1/caller")
        _check_query(page, request.query_params.keys())
        if page.is_timed and asking.at is not None:
            await asking.look()
        status, answer = 200, await page.gather(asking)
    except NotAnswered as error:
        status, answer = error.status, error.body
    return Response(orjson.dumps(answer), status, media_type="application/json")


def _fixed(request: Request, here: Here) -> str | None:
    """Return the same URL with a moment that stays: an age and a clock time mean another one later."""
    ago = request.query_params.get("ago")
    if ago is not None:
        minutes = int(ago) if re.fullmatch(r"\d{1,6}", ago, re.ASCII) else 0
        return here.at_another(moment_before(here.now, minutes))
    if here.at == "now":
        return here.at_another(None)
    if here.at is None or _FULL.fullmatch(here.at):
        return None
    with contextlib.suppress(FieldError):  # the API says what is wrong with it
        at = as_of("at", here.at, here.now)
        return None if isinstance(at, BatchId) else here.at_another(instant(at).replace(".000Z", "Z"))
    return None


def _before_all(view: View, here: Here) -> View:
    """Return a view whose empty tables say that nothing was known yet, where that is so."""
    if here.begins is None:
        return view
    blocks = [
        dataclasses.replace(each, empty=NOT_BEGUN) if isinstance(each, Table) else each
        for each in view.blocks
    ]
    return dataclasses.replace(view, blocks=blocks)


def _check_query(page: Page, names: Iterable[str]) -> None:
    """Refuse a parameter that the page does not take: a misspelt filter would otherwise list everything."""
    for name in names:
        if name not in (*page.filters, *_OF_ALL):
            allowed = ", ".join(page.filters) or "there are none here"
            told = f"unknown parameter {str(name)[:60]!a}; allowed besides at: {allowed}"
            raise NotAnswered.of(422, "invalid-field", told)
