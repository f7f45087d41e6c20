"""The first page, what is wrong now, and what the API offers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.console import texts
from services.console.asking import Asking
from services.console.blocks import Bar, Bars, Block, Cell, Facts, Json, Link, Part, Table, Text, View
from services.console.health import Health
from services.console.here import Here
from services.console.needs import gather_needs, needs
from services.console.page import Page
from services.console.pages_cluster import shards_table
from services.console.pages_decisions import decisions_table, gather_leaving
from services.console.pages_field import FILTERS, field_data, gather_field, gather_sample
from services.console.pages_pending import groups_table
from services.console.pages_usage import RECENT_MINUTES, rates

GROUPS_SHOWN, DECISIONS_SHOWN = 10, 10


async def _gather_overview(ask: Asking) -> Json:
    """Ask for all at once, as a visitor waits for the page."""
    at = ask.at
    (sample, needed), totals, pending, shards, usage, decisions = await asyncio.gather(
        asyncio.gather(gather_sample(ask), _gather_needs(ask)),
        ask.get("/v1/totals", at=at),
        ask.get("/v1/pending", limit=GROUPS_SHOWN, order="oldest", at=at),
        ask.get_or_none("/v1/shards"),
        _gather_usage(ask),
        ask.get("/v1/decisions", order="newest", limit=DECISIONS_SHOWN, until=ask.until),
    )
    return {
        "totals": totals,
        "field": await gather_field(ask, sample, totals["nodes"]),
        "pending": pending,
        "shards": shards,
        "usage": usage,
        "decisions": decisions,
        "leaving": await gather_leaving(ask, decisions["items"]),
        "ready": await ask.ready(),
        "needs": needed,
    }


async def _gather_usage(ask: Asking) -> Json | None:
    return await ask.get_or_none("/v1/usage", since=f"{RECENT_MINUTES}m") if ask.at is None else None


async def _gather_needs(ask: Asking) -> Json | None:
    return await gather_needs(ask) if ask.at is None else None


def _view_overview(found: Json, here: Here) -> View:
    totals = found["totals"]
    blocks: list[Block] = [
        _used(totals, here),
        Facts(
            title="Pods",
            items=[
                ("Placed", _placed(here, totals)),
                ("Waiting", Cell(f"{totals['pending']:,}", here.to("pending"))),
                ("Groups that wait", Cell(f"{totals['groups']:,}", here.to("pending"))),
                ("Nodes", Cell(f"{totals['nodes']:,}", here.to("nodes"))),
            ],
        ),
        groups_table(here, "What waits, the longest first", found["pending"]["items"]),
        decisions_table(here, "What was decided last", found["decisions"]["items"], found["leaving"]),
    ]
    if found["usage"] is not None:
        blocks.insert(2, rates(found["usage"], here.now))
    if found["shards"] is not None and here.at is None:
        blocks.append(shards_table(here, found["shards"]["items"]))
    if here.at is None:
        blocks = [*_wrong(Health.of(found["ready"])), *needs(found["needs"], here), *blocks]
    return View(
        title="The cluster",
        blocks=blocks,
        extra="field.html",
        data={"field": field_data(found["field"], here)},
        scripts=("field.js",),
    )


def _placed(here: Here, totals: Json) -> Sequence[Cell]:
    """Return how many pods count on nodes, and how many lost theirs."""
    lost = totals["orphaned"]
    found = [Cell(f"{totals['bound'] - lost:,}", here.to("pods", phase="bound"))]
    if lost:
        found.append(
            Cell(f"and {lost:,} that lost their node", here.to("pods", phase="orphaned"), look="bad")
        )
    return found


def _used(totals: Json, here: Here) -> Bars:
    bars = []
    for resource, offered in totals["allocatable"].items():
        asked = totals["requested"].get(resource, "0")
        percent = texts.share(asked, offered) or 0.0
        said = texts.of_offered(asked, offered, resource)
        width = min(percent, 100.0)
        bars.append(Bar(Cell(resource), [Part("requested", 0, width, 0, f"{percent:.1f} %")], said))
    none = "There are no nodes." if here.at is None else "There were no nodes then."
    lines = [] if bars else [none]
    return Bars(title="Requested of what nodes offer", lines=lines, bars=bars)


def _wrong(health: Health) -> list[Block]:
    return [Text(title=each.title, lines=[each.says, each.remedy], look="bad") for each in health.wrong]


async def _gather_wrong(ask: Asking) -> Json:
    field, needed = await asyncio.gather(ask.get_or_none("/v1/field", resources="pods"), gather_needs(ask))
    return {"ready": await ask.ready(), "field": field, "needs": needed}


def _view_wrong(found: Json, here: Here) -> View:
    health = Health.of(found["ready"])
    blocks: list[Block] = _wrong(health)
    if not blocks:
        lines = [
            "The database answers, its tables are right, the log answers, and a worker holds every shard."
        ]
        blocks = [Text(title="berth works", lines=lines, look="good")]
    of_cluster = needs(found["needs"], here, found["field"])
    if not found["needs"]["is_known"] or found["field"] is None:
        lines = ["The API does not tell all: which pods wait or have to leave, and which nodes are ready."]
        of_cluster = [*of_cluster, Text(title="What the cluster lacks is not known", lines=lines)]
    elif not of_cluster:
        lines = [
            "As far as this key sees, the pods that wait longest would fit if others left, evicted pods "
            "leave, and nodes with pods are ready."
        ]
        of_cluster = [Text(title="The cluster lacks nothing that somebody has to see to", lines=lines)]
    blocks += of_cluster
    lags = [
        (texts.shard(here, each["shard"]), texts.number(each["records"]), texts.number(each["seconds"], 1))
        for each in health.lag
    ]
    blocks.append(
        Table(
            caption="How far each shard is behind the log",
            columns=texts.columns("Shard", "#Records", "#Age of the oldest (s)"),
            rows=lags,
            empty="It is not known: the ledger or the log does not answer.",
        )
    )
    checks = [(Cell(part), Cell(says, look="good" if says == "ok" else "bad")) for part, says in
              found["ready"].get("checks", {}).items()]  # fmt: skip
    blocks.append(Table(caption="What was checked", columns=texts.columns("Part", "Says"), rows=checks))
    return View(title="What is wrong now", blocks=blocks)


async def _gather_api(ask: Asking) -> Json:
    return await ask.get("/")


def _view_api(found: Json, here: Here) -> View:
    root = here.root.removesuffix("/console")
    lines = ["Everything that this console shows comes from the API, which programs ask the same way."]
    links = [
        Link("Read and try the API", f"{root}/docs"),
        Link("Its contract (OpenAPI)", f"{root}/openapi.json"),
    ]
    rows = [(Cell(each["path"], look="code"), Cell(each["summary"])) for each in found["links"]]
    offered = Table(
        caption="What can be asked without a name", columns=texts.columns("Path", "Answers"), rows=rows
    )
    return View(title="The API", blocks=[Text(lines=lines, links=links), offered], is_live=False)


PAGES = (
    Page("/", _gather_overview, _view_overview, FILTERS),
    Page("/wrong", _gather_wrong, _view_wrong, is_timed=False),
    Page("/api", _gather_api, _view_api, is_timed=False),
)
