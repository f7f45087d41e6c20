"""The console: pages for people on the API of this process, at `/console/`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import urlencode

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.responses import RedirectResponse
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from services.console import (
    finding,
    pages_cluster,
    pages_decisions,
    pages_field,
    pages_nodes,
    pages_overview,
    pages_pending,
    pages_pods,
    pages_time,
    pages_usage,
    trying,
)
from services.console.asking import Asking, NotAnswered, inner_scope
from services.console.blocks import Json
from services.console.errors import sign_in_view
from services.console.page import PATH, Page, framed, here_of, refuse, refusing, root_of, show, show_twin
from services.console.render import HEADERS
from services.console.session import (
    FORM_COOKIE,
    SESSION_COOKIE,
    Visitor,
    read_form,
    safe_next,
    set_cookie,
)

PAGES: Sequence[Page] = (
    *pages_overview.PAGES,
    *pages_field.PAGES,
    *pages_nodes.PAGES,
    *pages_pods.PAGES,
    *pages_pending.PAGES,
    *pages_decisions.PAGES,
    *pages_cluster.PAGES,
    *pages_time.PAGES,
    *pages_usage.PAGES,
)


def install(app: FastAPI) -> None:
    """Add the console to the API that it shows."""
    router = APIRouter(include_in_schema=False)
    for page in PAGES:
        _add_page(router, page)
    for each in (_sign_in_routes, _find_route, trying.add_routes):
        each(router)
    router.add_api_route(PATH, _to_first_page, methods=["GET"])
    app.include_router(router)
    app.router.routes.append(Route(f"{PATH}/events", _Events()))
    app.router.routes.append(Route(f"{PATH}/data/field", pages_field.FieldData()))
    files = _Files(packages=[("services.console", "static")])
    app.mount(f"{PATH}/static", files, name="console-static")
    app.router.routes.append(Route(f"{PATH}/{{rest:path}}", _no_page, methods=["GET"]))
    app.state.home = f"{PATH}/"


class _Files(StaticFiles):
    """The style, the scripts and the picture of all pages, which hold nothing of anybody's."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Let browsers keep a file: pages name it by the version of berth."""
        found = await super().get_response(path, scope)
        if found.status_code == 200:
            found.headers["Cache-Control"] = "public, max-age=86400"
        return found


def _add_page(router: APIRouter, page: Page) -> None:
    """Add a page and its twin. An object whose name ends with ``.json`` has its page behind a slash."""
    twin = "/overview.json" if page.path == "/" else f"{page.path}.json"
    router.add_api_route(f"{PATH}{twin}", _handler(partial(show_twin, page)), methods=["GET"])
    router.add_api_route(f"{PATH}{page.path}", _handler(partial(show, page)), methods=["GET"])
    if page.path.endswith("}"):
        router.add_api_route(f"{PATH}{page.path}/", _handler(partial(show, page)), methods=["GET"])


def _handler(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        return await answer(request)

    return handle


async def _to_first_page(request: Request) -> Response:
    return RedirectResponse(f"{root_of(request)}/", 307)


async def _no_page(request: Request) -> Response:
    """Answer what leads nowhere."""
    message = "no page of the console is here; the links above lead to all of them"
    return await refuse(request, Visitor.of(request), NotAnswered.of(404, "not-found", message))


class _Events:
    """Passes the API's stream of events on, as it comes: nothing of it is held here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask for the stream with the visitor's session, and let it answer by itself."""
        request = Request(scope)
        session = Visitor.of(request).session
        inner = inner_scope(request, "GET", "/v1/events", "", session)
        request.state.is_stream = True
        await request.app(inner, receive, send)


def _find_route(router: APIRouter) -> None:
    page = finding.PAGE
    router.add_api_route(f"{PATH}{page.path}.json", _handler(partial(show_twin, page)), methods=["GET"])

    @router.get(f"{PATH}{page.path}")
    async def find(request: Request) -> Response:
        """Lead to the one thing that a visitor looks for, or show what is named alike."""
        visitor = Visitor.of(request)
        here = here_of(request, visitor)
        try:
            found = await page.gather(Asking(request, visitor.session))
        except NotAnswered:
            return await show(page, request)  # which says why
        if (target := finding.target(found, here)) is not None:
            return RedirectResponse(target, 303)

        async def known(_: Asking) -> Json:
            return found

        return await show(page._replace(gather=known), request)


def _sign_in_routes(router: APIRouter) -> None:
    @router.get(f"{PATH}/sign-in")
    async def ask_for_key(request: Request) -> Response:
        visitor = Visitor.of(request)
        here = here_of(request, visitor)
        after = safe_next(request.query_params.get("next", ""), here.root)
        view = sign_in_view(here, "", after)
        return await framed(request, visitor, here._replace(query={}), view, status=200, who=None)

    @router.post(f"{PATH}/sign-in")
    async def sign_in(request: Request) -> Response:
        visitor = Visitor.of(request)
        here = here_of(request, visitor)
        after = here.to()
        try:
            fields = await read_form(request, visitor)
            after = safe_next(fields.get("next", ""), here.root)
            key = fields.get("key", "").strip()
            if not key or not key.isascii() or not key.isprintable():
                raise NotAnswered.of(401, "unauthorized", "Type the key.")
            begun = await Asking(request, key).send("POST", "/v1/sessions")
        except NotAnswered as error:
            if error.status not in (401, 403, 404, 429):
                return await refuse(request, visitor, error)
            view = sign_in_view(here, f"This did not work: {error.message}", after)
            return await framed(request, visitor, here, view, status=error.status, who=None)
        if visitor.session is not None:
            await _end(request, visitor.session)
        answer = RedirectResponse(after, 303, HEADERS)
        set_cookie(request, answer, SESSION_COOKIE, str(begun["token"]), here.root)
        set_cookie(request, answer, FORM_COOKIE, None, here.root)
        return answer

    @router.post(f"{PATH}/sign-out")
    @refusing
    async def sign_out(request: Request, visitor: Visitor) -> Response:
        await read_form(request, visitor)
        if visitor.session is not None:
            await _end(request, visitor.session)
        target = f"{root_of(request)}/sign-in?{urlencode({'next': f'{root_of(request)}/'})}"
        answer = RedirectResponse(target, 303, HEADERS)
        set_cookie(request, answer, SESSION_COOKIE, None, root_of(request))
        return answer


async def _end(request: Request, session: str) -> None:
    with contextlib.suppress(NotAnswered):  # it had ended already
        await Asking(request, session).send("DELETE", "/v1/sessions")
