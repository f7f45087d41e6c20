"""Pages of what waits: the groups by size and age, one group with its cures, and gangs."""

from __future__ import annotations

from collections.abc import Sequence

from services.console import texts
from services.console.asking import Asking
from services.console.blocks import Block, Cell, Facts, Field, Json, Later, Link, Table, Text, View
from services.console.here import Here
from services.console.page import LIST, Page
from services.console.pages_pods import cures, pods_table
from services.phrases import plural, reasons_in_words, unknown_profile


def _why(group: Json) -> str:
    return reasons_in_words(group["reasons"]) if group["reasons"] else "not tried yet: waits its turn"


def groups_table(here: Here, caption: str, groups: Sequence[Json]) -> Table:
    """Return groups of pods that wait as a table."""
    rows = [
        (
            Cell(
                f"{each['count']:,}",
                here.to("pending", str(each["shard"]), each["signature"]),
                look="number",
                title="This group, and what would cure it",
                key=each["count"],
            ),
            texts.pods(here, each["examples"]),
            Cell(_why(each), look="bad" if each["unresolvable"] else ""),
            _waits(each),
            Cell(texts.amounts(each["requests"])),
            texts.number(each["priority"]),
            texts.shard(here, each["shard"]),
        )
        for each in groups
    ]
    titles = ("#Pods", "Such as", "Why", "Waits", "Asks for", "#Priority", "Shard")
    return Table(caption=caption, columns=texts.columns(*titles), rows=rows, empty="Nothing waits.")


def _waits(group: Json) -> Cell:
    count = group["waits_seconds"]
    return Cell(texts.seconds(count), title=group["since"], look="muted", key=count)


async def _gather_pending(ask: Asking) -> Json:
    return {"pending": await ask.get("/v1/pending", at=ask.at, **ask.asked("shard", "limit", "cursor"))}


def _view_pending(found: Json, here: Here) -> View:
    groups = found["pending"]["items"]
    oldest = max(groups, key=lambda each: each["waits_seconds"], default=None)
    table = groups_table(here, "Groups of equal pods that wait, largest first", groups)
    blocks: list[Block] = []
    if oldest is not None:
        said = f"The one that waits longest does so for {texts.seconds(oldest['waits_seconds'])}."
        target = here.link(
            "See it, and what would cure it", "pending", str(oldest["shard"]), oldest["signature"]
        )
        by_age = here.again(sort="-waits")
        blocks.append(Text(lines=[said], links=[target, Link("Sort by age", by_age)]))
    blocks += [texts.sortable(here, table), texts.pager(here, found["pending"])]
    controls = [texts.filters(here, "Filter", [Field("shard", "Shard")])]
    return View(title="What waits", controls=controls, blocks=blocks)


async def _gather_group(ask: Asking) -> Json:
    of = ask.names["shard"], ask.names["signature"]
    group = await ask.get("/v1/pending", *of)
    return {"group": group}


def _view_group(found: Json, here: Here) -> View:
    group = found["group"]
    nodes = sum(group["reasons"].values())
    blocks: list[Block] = [
        Facts(
            title="What waits",
            items=[
                ("Pods", texts.number(group["count"])),
                ("Such as", texts.pods(here, group["examples"])),
                ("Each asks for", Cell(texts.amounts(group["requests"]))),
                ("The oldest since", texts.time(group["since"])),
                ("Waits for", Cell(texts.seconds(group["waits_seconds"]))),
                ("Tried last", texts.time(group["tried_at"])),
                ("Failed attempts", texts.number(group["attempts"])),
                ("Priority", texts.number(group["priority"])),
                ("Tried before it", Cell(_before(group))),
                ("Profile", _profile(here, group)),
                ("Shard", texts.shard(here, group["shard"])),
                ("Cycle", texts.decision(here, group["cycle"])),
            ],
        )
    ]
    if group["unresolvable"]:
        said = "No node would fit even if all other pods left: evicting helps no pod here."
        blocks.insert(0, Text(lines=[said], look="bad"))
    if nodes:
        blocks.append(texts.funnel("How many nodes each reason refused", nodes, group["reasons"]))
    links = [
        here.link("Decisions about the group", "decisions", signature=group["signature"], order="newest")
    ]
    blocks.append(Text(lines=[], links=links))
    title = f"{plural(group['count'], 'pod')} of one group"
    target = here.to("pending", str(group["shard"]), group["signature"], "why")
    controls = [Later(title="Why they wait, and what would cure it", href=target)]
    crumbs = [here.link("What waits", "pending")]
    return View(title=title, crumbs=crumbs, controls=controls, blocks=blocks)


async def _gather_why(ask: Asking) -> Json:
    return {"why": await ask.get("/v1/pending", ask.names["shard"], ask.names["signature"], "why")}


def _view_why(found: Json, here: Here) -> View:
    crumbs = [here.link("What waits", "pending")]
    title = "What would cure the group"
    return View(title=title, crumbs=crumbs, blocks=cures(here, found["why"]), is_live=False)


def _profile(here: Here, group: Json) -> Cell:
    name = group["profile"]
    return Cell(name, None if unknown_profile(group["reasons"]) else here.to("profiles", name))


def _before(group: Json) -> str:
    if group["groups_before"] is None:
        return "not known to this key"
    return f"{plural(group['groups_before'], 'group')} with {plural(group['pods_before'], 'pod')}"


async def _gather_gangs(ask: Asking) -> Json:
    return {"gangs": await ask.get("/v1/gangs", at=ask.at, **ask.asked("namespace", "limit", "cursor"))}


def _view_gangs(found: Json, here: Here) -> View:
    rows = [
        (
            texts.gang(here, f"{each['namespace']}/{each['name']}"),
            texts.number(each["min_member"]),
            texts.number(each["placed"]),
            texts.number(each["waiting"]),
            texts.text(each["why"]),
            texts.time(each["since"]),
        )
        for each in found["gangs"]["items"]
    ]
    titles = ("Gang", "#At least", "#Placed", "#Waiting", "Why", "Waits since")
    table = Table(caption="Gangs", columns=texts.columns(*titles), rows=rows, empty="There are no gangs.")
    controls = [texts.filters(here, "Filter", [Field("namespace", "Namespace")])]
    blocks: list[Block] = [texts.sortable(here, table), texts.pager(here, found["gangs"])]
    return View(title="Gangs", controls=controls, blocks=blocks)


async def _gather_gang(ask: Asking) -> Json:
    return {"gang": await ask.get("/v1/gangs", ask.names["namespace"], ask.names["name"], at=ask.at)}


def _view_gang(found: Json, here: Here) -> View:
    gang = found["gang"]
    name = f"{gang['namespace']}/{gang['name']}"
    blocks: list[Block] = []
    if gang["why"]:
        lines = [gang["why"][:1].upper() + gang["why"][1:] + "."]
        if gang["missing"]:
            more = f"{gang['found']:,} more would have had a node" if gang["found"] else "no other had a node"
            lines.append(f"At the last try {gang['missing']} found no node; {more}.")
        blocks.append(Text(title="Why it waits", lines=lines, look="bad"))
    topology = f"{gang['topology_key']} ({gang['topology_mode']})" if gang["topology_key"] else None
    blocks.append(
        Facts(
            title="What it is",
            items=[
                ("At least", texts.number(gang["min_member"])),
                ("Pods", texts.number(gang["members"])),
                ("Placed", texts.number(gang["placed"])),
                ("Waiting", texts.number(gang["waiting"])),
                ("Waits since", texts.time(gang["since"])),
                ("In one", texts.text(topology)),
                ("Tried in", texts.text(gang["domain"])),
                ("Needs free", Cell(texts.amounts(gang["min_resources"]))),
            ],
        )
    )
    if gang["reasons"]:
        nodes = sum(gang["reasons"].values())
        title = "How many nodes each reason refused, for the first pod without one"
        blocks.append(texts.funnel(title, nodes, gang["reasons"]))
    blocks.append(pods_table(here, "Its pods", gang["pods"]))
    if gang["pods_next"]:
        blocks.append(Text(lines=[], links=[here.link("All its pods", "pods", gang=name)]))
    return View(title=f"Gang {name}", crumbs=[here.link("Gangs", "gangs")], blocks=blocks)


PAGES = (
    Page("/pending", _gather_pending, _view_pending, ("shard", *LIST)),
    Page("/pending/{shard}/{signature}", _gather_group, _view_group, is_timed=False),
    Page("/pending/{shard}/{signature}/why", _gather_why, _view_why, is_timed=False),
    Page("/gangs", _gather_gangs, _view_gangs, ("namespace", *LIST)),
    Page("/gangs/{namespace}/{name}", _gather_gang, _view_gang),
)
