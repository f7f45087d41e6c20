"""Find: leads to what a visitor looks for, or lists what is named so, and says what was looked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from services.console import texts
from services.console.asking import Asking, NotAnswered
from services.console.blocks import Block, Field, Form, Json, Table, Text, View
from services.console.here import Here
from services.console.page import Page
from services.console.pages_nodes import status
from services.console.pages_pods import pods_table
from services.phrases import plural

SHOWN_MAX = 100
_PODS_A_PAGE, _PAGES_MAX = 1_000, 3
_NAMESPACES_MAX = 20
_DECISION = re.compile(r"\d{1,9}-\d{1,18}", re.ASCII)
_LOOKED = (
    "Looked for: a decision of this id; a pod of this namespace/name, also one that is gone; a node of this "
    "name, also a deleted one; nodes whose name contains it; live pods whose namespace/name contains it, or "
    "that have it as the value of a label."
)


async def gather(ask: Asking) -> Json:
    """Ask for what has exactly this name, and where nothing has, for what is named alike."""
    text = ask.asked("q").get("q", "").strip()
    found: Json = {"decision": None, "pod": None, "node": None, "nodes": [], "pods": [], "looked_through": 0}
    if not text:
        return found
    namespace, slash, name = text.partition("/")
    if _DECISION.fullmatch(text):
        found["decision"] = await _answer(ask, "/v1/decisions", text)
    if slash and namespace and name and "/" not in name:
        found["pod"] = await _answer(ask, "/v1/pods", namespace, name, at=ask.at)
    elif not slash:
        found["node"] = await _answer(ask, "/v1/nodes", text, at=ask.at)
    if any(found[kind] is not None for kind in ("decision", "pod", "node")):
        return found
    return found | await _gather_alike(ask, text)


async def _gather_alike(ask: Asking, text: str) -> Json:
    namespace, slash, _ = text.partition("/")
    nodes = await _answer(ask, "/v1/nodes", name=text, limit=SHOWN_MAX, at=ask.at) if not slash else None
    pods = await _gather_pods(ask, namespace if slash and namespace else None)
    alike = [each for each in pods if _is_alike(each, text)]
    if not alike and not slash:
        namespaces = sorted({each["namespace"] for each in pods})[:_NAMESPACES_MAX]
        asked = [_answer(ask, "/v1/pods", each, text, at=ask.at) for each in namespaces]
        alike = [each for each in await asyncio.gather(*asked) if each is not None]
    whole = [each for each in alike if each["name"] == text] or alike
    return {
        "nodes": nodes["items"] if nodes else [],
        "pods": whole[:SHOWN_MAX],
        "looked_through": len(pods),
    }


async def _gather_pods(ask: Asking, namespace: str | None) -> list[Json]:
    """Return the first live pods: the API has no question for a part of a name."""
    pods: list[Json] = []
    cursor = None
    for _ in range(_PAGES_MAX):
        asked = {"namespace": namespace, "limit": _PODS_A_PAGE, "cursor": cursor, "at": ask.at}
        page = await _answer(ask, "/v1/pods", **asked)
        pods += page["items"] if page else []
        cursor = page["next"] if page else None
        if cursor is None:
            break
    return pods


def _is_alike(pod: Json, text: str) -> bool:
    return text in f"{pod['namespace']}/{pod['name']}" or text in pod["labels"].values()


async def _answer(ask: Asking, *segments: str, **query: object) -> Json | None:
    """Return an answer, or None where nothing can be called so; who is not let in has to sign in."""
    try:
        return await ask.get(*segments, **query)
    except NotAnswered as error:
        if error.status in (401, 429) or (error.status >= 500 and error.status != 501):
            raise
        return None


def target(found: Json, here: Here) -> str | None:
    """Return the page of the one thing that was found; None: there are several, or none."""
    there = here._replace(query={})
    if not here.query.get("q", "").strip():
        return there.to()
    if found["decision"] is not None:
        return there.to("decisions", found["decision"]["id"])
    pods = [found["pod"]] if found["pod"] is not None else found["pods"]
    nodes = [found["node"]] if found["node"] is not None else found["nodes"]
    if len(pods) == 1 and not nodes:
        return there.to("pods", pods[0]["namespace"], pods[0]["name"])
    if len(nodes) == 1 and not pods:
        return there.to("nodes", nodes[0]["name"])
    return None


def view(found: Json, here: Here) -> View:
    """Return the page of what is named alike. What was typed stands in its field alone."""
    there = here._replace(query={})
    text = here.query.get("q", "").strip()
    form = Form(
        title="Find",
        action=f"{here.root}/find",
        fields=[Field("q", "Name, or a part of it", text)],
        button="Find",
        hidden={} if here.at is None else {"at": here.at},
    )
    count = len(found["pods"]) + len(found["nodes"])
    lines = [f"{plural(count, 'thing')} {'is' if count == 1 else 'are'} named so." if count else
             "Nothing is named so, as far as this key sees.", _LOOKED]  # fmt: skip
    if found["looked_through"] >= _PODS_A_PAGE * _PAGES_MAX:
        lines.append(
            f"Only the first {found['looked_through']:,} pods were looked through; with namespace/ in front "
            "those of the namespace are."
        )
    links = [
        there.link(f"Namespace {each}", "namespaces", each)
        for each in sorted({pod["namespace"] for pod in found["pods"]})
        if text in each
    ]
    blocks: list[Block] = [Text(lines=lines, links=links)]
    if found["pods"]:
        blocks.append(pods_table(there, "Pods that are named so", found["pods"]))
    if found["nodes"]:
        blocks.append(_nodes_table(there, found["nodes"]))
    return View(title="Find", controls=[form], blocks=blocks, is_live=False)


def _nodes_table(here: Here, nodes: Sequence[Json]) -> Table:
    rows = [(texts.node(here, each["name"]), status(each)) for each in nodes]
    return Table(caption="Nodes that are named so", columns=texts.columns("Node", "Status"), rows=rows)


PAGE = Page("/find", gather, view, ("q",))
