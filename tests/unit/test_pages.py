"""Does the API say what it offers, and its page load from this host alone?"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from typing import Any, cast
from urllib.parse import urljoin

import httpx
import pytest_asyncio
from prometheus_client import CollectorRegistry

from services.api.app import create_app
from services.api.auth import Gate
from services.api.deps import Deps
from services.metrics import ApiMetrics


class Links(HTMLParser):
    """Collects whatever a page links or loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]


@pytest_asyncio.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of an API whose pages are all that works."""
    nothing = cast(Any, None)
    gate = Gate(nothing, keys_required=True)
    deps = Deps(nothing, nothing, nothing, gate, nothing, ApiMetrics(CollectorRegistry()), nothing)
    transport = httpx.ASGITransport(create_app(deps))
    async with httpx.AsyncClient(transport=transport, base_url="http://berth") as client:
        yield client


async def test_the_contract_page_loads_and_links_this_host_alone(client: httpx.AsyncClient) -> None:
    page = await client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    links = Links(page.text).found
    assert links
    for link in links:
        assert urljoin("http://berth/", link).startswith("http://berth/"), link
    assert "//" not in re.sub(r"<!--.*?-->", "", page.text), "neither do scripts and styles name another host"


async def test_what_the_contract_page_loads_is_there(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    for link in Links(page).found:
        assert (await client.get(link)).status_code == 200, link
    assert '"validatorUrl": null' in page
    style = (await client.get("/docs/assets/swagger-ui.css")).text
    assert all(each.startswith("data:") for each in re.findall(r"url\([\"']?([^)\"']+)", style))


async def test_the_first_answer_lists_what_can_be_asked_without_a_name(client: httpx.AsyncClient) -> None:
    contract = (await client.get("/openapi.json")).json()
    plain = {
        path[1:] for path, operations in contract["paths"].items() if "get" in operations and "{" not in path
    }
    asked = await client.get("/", headers={"Accept": "application/json"})
    assert {each["path"].partition("?")[0][1:] for each in asked.json()["links"]} == plain


async def test_parameters_of_the_first_page_exist(client: httpx.AsyncClient) -> None:
    contract = (await client.get("/openapi.json")).json()
    for link in (await client.get("/", headers={"Accept": "application/json"})).json()["links"]:
        path, _, query = link["path"].partition("?")
        known = {each["name"] for each in contract["paths"][path]["get"].get("parameters", [])}
        assert {part.partition("=")[0] for part in query.split("&") if part} <= known, link


async def test_the_contract_says_how_a_key_is_shown(client: httpx.AsyncClient) -> None:
    """This is what makes the Authorize button."""
    contract = (await client.get("/openapi.json")).json()
    ((name, scheme),) = contract["components"]["securitySchemes"].items()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, operations in contract["paths"].items():
        for operation in operations.values():
            is_open = path in ("/healthz", "/readyz")
            assert operation.get("security") == (None if is_open else [{name: []}]), path
