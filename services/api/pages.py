"""What this API offers, at ``/``, and its contract to read and try at ``/docs``.

Where the console is, ``/`` leads browsers there (``app.state.home``). The page loads nothing from elsewhere,
so it works where there is no internet.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response, Security
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.security import HTTPBearer
from starlette.staticfiles import StaticFiles

from services.api.failures import json_answer

ASSETS = "/docs/assets"

KEY = Security(
    HTTPBearer(
        scheme_name="key",
        description="`berth api-key create NAME --role ROLE` makes a key; on loopback all goes without any.",
        auto_error=False,
    )
)
"""Describes in the contract how a client shows its key; ``auth.Gate`` checks the key."""

_TRY = {
    "/v1/diff": "?from=1h",
    "/v1/pods": "?phase=bound&limit=20",
    "/v1/decisions": "?order=newest&limit=20",
}
"""Parameters that make an answer one can read in a browser."""

_MAY_LOAD = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'{scripts}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _page(text: str) -> HTMLResponse:
    """Return a page on which no script runs but those of this host and those that it came with."""
    own = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in own]
    scripts = "".join(f" 'sha256-{each}'" for each in hashes)
    return HTMLResponse(text, headers={"Content-Security-Policy": _MAY_LOAD.format(scripts=scripts)})


def install(app: FastAPI) -> None:
    """Add the pages. Call it after all other routes of the API, since the first page lists them."""

    @functools.cache  # to write it takes 10 ms
    def contract() -> bytes:
        return msgspec.json.encode(app.openapi())

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(contract(), media_type="application/json")

    app.mount(ASSETS, StaticFiles(packages=[("fastapi_offline", "static")]), name="assets")

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> HTMLResponse:
        root = request.scope.get("root_path", "")
        page = get_swagger_ui_html(
            openapi_url=f"{root}/openapi.json",
            title=f"{app.title}: the API",
            swagger_js_url=f"{root}{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f"{root}{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f"{root}{ASSETS}/favicon.png",
            # Without this the page asks a validator on the internet about our contract.
            swagger_ui_parameters={"validatorUrl": None, "persistAuthorization": True},
        )
        return _page(bytes(page.body).decode())

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        home = getattr(request.app.state, "home", None)
        if home is not None and "application/json" not in request.headers.get("accept", ""):
            return RedirectResponse(request.scope.get("root_path", "") + home)
        links = [{"path": path, "summary": summary} for path, summary in _offered(app.openapi())]
        return json_answer({"name": app.title, "docs": "/docs", "openapi": "/openapi.json", "links": links})


def _offered(contract: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield path and summary of each route that needs no name."""
    for path, operations in contract["paths"].items():
        if "get" in operations and "{" not in path:
            yield path + _TRY.get(path, ""), operations["get"]["summary"]
