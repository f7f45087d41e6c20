"""A console over a ledger in memory in which all kinds of things happened, and people's browsers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from services.console.app import install
from services.console.session import SESSION_COOKIE
from tests.builders import (
    Json,
    node_manifest,
    pod_group_manifest,
    pod_manifest,
    profile_manifest,
    usage_manifest,
)
from tests.property.site import Site
from tests.security.keyed import House, keyed_house
from tests.unit.preempted import high

GANG = "scheduling.x-k8s.io/pod-group"


def busy_site() -> Site:
    """Return a site with placed, waiting and evicted pods, a gang and a profile, in two namespaces."""
    site = Site(preempts=True)
    zones = [{"topology.kubernetes.io/zone": zone, "note": "a-b"} for zone in ("a", "b")]
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    site.tell(
        "ADDED",
        node_manifest("n1", cpu=4, labels=zones[0]),
        node_manifest("n2", cpu=4, labels=zones[1]),
        node_manifest("n3.json", cpu=1, labels=zones[1], taints=[taint]),
        node_manifest("n4", cpu=64, unschedulable=True, gpu=2),
        profile_manifest("packing", resource_version=1),
        pod_group_manifest("crew", 2, "shop"),
        usage_manifest("n1", percent={"cpu": 40, "memory": 10}),
    )
    low = [pod_manifest(f"low{i}", "shop", cpu=2, priority=0, labels={"app": "web"}) for i in range(4)]
    site.tell("ADDED", *low)
    crew = [pod_manifest(f"crew{i}", "shop", cpu=3, labels={GANG: "crew"}) for i in range(2)]
    gated = pod_manifest("gated", "bank", cpu=1, spec={"schedulingGates": [{"name": "example.com/quota"}]})
    lost = pod_manifest("secret-lost", "bank", cpu=1, scheduler_name="nowhere")
    site.tell("ADDED", *crew, gated, lost, pod_manifest("secret-huge", "bank", cpu=500))
    site.tell("ADDED", high("first", namespace="bank"))
    return site


class Parsed(HTMLParser):
    """What a page holds: links, what it loads, forms, labels, and what is amiss with its tags."""

    VOID = frozenset({"meta", "link", "input", "br", "rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.links: list[str] = []
        self.loads: list[str] = []
        self.inputs: list[dict[str, str]] = []
        self.labels: set[str] = set()
        self.ids: list[str] = []
        self.wrong: list[str] = []
        self.refers: set[str] = set()
        self.headings: list[str] = []
        self.tags: dict[str, int] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.wrong += [f"<{each}> is not closed" for each in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if len(given) < len(attrs):
            self.wrong.append(f"<{tag}> has an attribute twice")
        self.wrong += [f"<{tag} {name}>" for name in given if name.startswith("on") or name == "style"]
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.loads += [given[name] for name in ("src", "href") if name in given and tag != "a"]
        self.ids += [given["id"]] if "id" in given else []
        self.refers |= {
            each for name in ("aria-labelledby", "aria-describedby") for each in given.get(name, "").split()
        }
        if tag == "label":
            self.labels.add(given["for"])
        if tag in ("input", "select", "textarea") and given.get("type") != "hidden":
            self.inputs.append(given)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.VOID:
            return
        if not self._open or self._open[-1] != tag:
            self.wrong.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def amiss(self) -> list[str]:
        """Return all that is wrong with the page for a browser or a screen reader."""
        wrong = list(self.wrong)
        wrong += [
            f"input {each.get('name')} has no label"
            for each in self.inputs
            if each.get("id") not in self.labels
        ]
        wrong += [f"the id {each} is there twice" for each in set(self.ids) if self.ids.count(each) > 1]
        wrong += [f"the id {each} is not there" for each in self.refers - set(self.ids)]
        wrong += [] if self.headings.count("h1") == 1 else ["there is not one h1"]
        return wrong


class Browser:
    """Somebody with cookies who follows no redirect by himself."""

    def __init__(self, house: House, *, address: str = "127.0.0.1") -> None:
        transport = httpx.ASGITransport(house.app, raise_app_exceptions=False, client=(address, 1))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    @property
    def session(self) -> str | None:
        """The token of the session that it shows."""
        return self.client.cookies.get(SESSION_COOKIE)

    async def get(self, target: str, **how: Any) -> httpx.Response:
        """Ask for a page by its path below the console."""
        return await self.client.get(f"/console/{target}", **how)

    async def token(self, target: str = "sign-in") -> str:
        """Return the token that the forms of a page carry."""
        return await token_of(self.client, target)

    async def send(self, target: str, token: str, **fields: str) -> httpx.Response:
        """Send a form."""
        return await self.client.post(f"/console/{target}", data={"token": token, **fields})

    async def sign_in(self, key: str, after: str = "") -> httpx.Response:
        """Sign in with a key."""
        return await self.send("sign-in", await self.token(), key=key, next=after)


@contextlib.asynccontextmanager
async def console(*, keys: bool = True) -> AsyncIterator[House]:
    """Open the console of an API that asks for keys, with one key of each kind, or that asks for none."""
    site = await asyncio.to_thread(busy_site)
    site.database.now_ms = lambda: 1_700_000_000_000
    async with keyed_house(site.database, keys_required=keys) as house:
        install(house.app)
        if not keys:
            yield house
            return
        await house.key("auditor", ["auditor"])
        await house.key("admin", ["admin"])
        await house.key("shop", ["auditor", "producer"], namespaces=["shop"])
        await house.key("producer", ["producer"])
        yield house


PAGES = (
    "", "field", "field?by=-&colour=pods", "?by=zone&colour=measured-cpu",
    "wrong", "api", "nodes", "nodes?name=n1", "nodes?sort=-name", "nodes/n1", "nodes/n3.json/",
    "nodes/n4", "pods", "pods?phase=pending", "pods?namespace=shop&sort=-node", "pods/shop/low0",
    "pods/shop/crew0", "pending", "pending?sort=-waits", "gangs", "gangs/shop/crew", "decisions",
    "decisions?outcome=evicted", "decisions?node=n1&order=oldest", "profiles", "profiles/packing",
    "profiles/default-scheduler", "shards", "shards/0", "workers", "namespaces/shop", "diff",
    "diff?from=2d&until=now&namespace=shop", "usage", "usage?by=namespace&since=5d&step=1d", "try",
)  # fmt: skip
"""Pages that everybody sees who sees the namespace shop."""
OF_ALL = ("pods/bank/secret-lost", "pods/bank/gated", "pods/bank/first", "namespaces/bank", "audit")
"""Pages of those who see everything."""


def links_of(page: httpx.Response) -> Iterator[str]:
    """Yield the links of a page, without the host and what is behind #."""
    for link in Parsed(page.text).links:
        found = urlsplit(urljoin(str(page.url), link))
        assert found.hostname == "localhost", link
        yield found.path + (f"?{found.query}" if found.query else "")


@contextlib.asynccontextmanager
async def signed_in(app: Any, key: str) -> AsyncIterator[httpx.AsyncClient]:
    """Open a browser that is signed in at the console of an API."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:
        token = await token_of(browser, "sign-in")
        answer = await browser.post("/console/sign-in", data={"token": token, "key": key})
        assert answer.status_code == 303, answer.text
        yield browser


async def token_of(browser: httpx.AsyncClient, page: str) -> str:
    """Return the token that the forms of a page carry."""
    found = re.search(r'name="token" value="([0-9a-f]+)"', (await browser.get(f"/console/{page}")).text)
    assert found is not None
    return found[1]


async def walked(browser: httpx.AsyncClient, pages_max: int) -> AsyncIterator[tuple[str, httpx.Response]]:
    """Yield the pages and twins that links lead to from the first page on, each once."""
    todo, seen = ["/console/", "/console/namespaces/default"], set[str]()
    while todo and len(seen) < pages_max:
        path = todo.pop(0)
        if path in seen or path.startswith("/console/audit/ledger"):
            continue
        seen.add(path)
        answer = await browser.get(path, follow_redirects=True)
        yield path, answer
        if answer.headers.get("content-type", "").startswith("text/html") and path.startswith("/console"):
            todo += links_of(answer)


def strings_replaced(value: Any, by: str) -> Any:
    """Return an answer all of whose free texts are something else."""
    if isinstance(value, dict):
        return {name: strings_replaced(each, by) for name, each in value.items()}
    if isinstance(value, list):
        return [strings_replaced(each, by) for each in value]
    return by if isinstance(value, str) else value


def manifests_text(*manifests: Json) -> str:
    """Return manifests as JSON documents."""
    import orjson

    return "\n---\n".join(orjson.dumps(each).decode() for each in manifests)
