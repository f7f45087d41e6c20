"""Pages of pods: the list, and one pod with where it is, why, and all that happened to it."""

from __future__ import annotations

from collections.abc import Sequence

from services.console import explained, texts
from services.console.asking import Asking
from services.console.blocks import Block, Cell, Facts, Field, Json, Later, Table, Text, View
from services.console.here import Here
from services.console.page import LIST, Page
from services.console.stories import story
from services.phrases import plural, reasons_in_words

_PHASES = (("", "any"), ("bound", "bound or orphaned"), ("orphaned", "orphaned"), ("pending", "pending"))
_QUALITIES = (("", "any"), ("high", "high"), ("mid", "mid"), ("low", "low"))

_PHASES_SAID = {"orphaned": "orphaned: its node was deleted, so it counts nowhere"}


def _phase_look(pod: Json) -> str:
    return "bad" if pod["phase"] in ("pending", "orphaned") else ""


def pods_table(here: Here, caption: str, pods: Sequence[Json], *, empty: str = "There are none.") -> Table:
    """Return pods as a table."""
    rows = [
        (
            texts.pod(here, f"{each['namespace']}/{each['name']}"),
            Cell(each["phase"], look=_phase_look(each) or "good", title=_PHASES_SAID.get(each["phase"])),
            texts.node(here, each["node"]),
            texts.amount(each["requests"].get("cpu"), "cpu"),
            texts.amount(each["requests"].get("memory"), "memory"),
            texts.text(each["quality"]),
            texts.number(each["priority"]),
            texts.time(each["since"]),
        )
        for each in pods
    ]
    titles = ("Pod", "Phase", "Node", "#CPU (cores)", "#Memory (GiB)", "Quality", "#Priority", "Since")
    return Table(caption=caption, columns=texts.columns(*titles), rows=rows, empty=empty)


async def _gather_pods(ask: Asking) -> Json:
    asked = ask.asked("namespace", "node", "phase", "gang", "quality", "limit", "cursor")
    return {"pods": await ask.get("/v1/pods", at=ask.at, **asked)}


def _view_pods(found: Json, here: Here) -> View:
    fields = [
        Field("namespace", "Namespace"),
        Field("node", "Node"),
        Field("phase", "Phase", options=_PHASES),
        Field("quality", "Quality", options=_QUALITIES),
        Field("gang", "Gang (namespace/name)"),
    ]
    table = pods_table(here, "Live pods", found["pods"]["items"], empty="No pod is so.")
    blocks: list[Block] = [texts.sortable(here, table), texts.pager(here, found["pods"])]
    return View(title="Pods", controls=[texts.filters(here, "Filter", fields)], blocks=blocks)


async def _gather_pod(ask: Asking) -> Json:
    of = ask.names["namespace"], ask.names["name"]
    pod = await ask.get("/v1/pods", *of, at=ask.at)
    last = pod["decisions"][0]["id"] if pod["decisions"] else None
    return {
        "pod": pod,
        "attempts": await ask.get_or_none("/v1/pods", *of, "attempts", at=ask.at),
        "explanation": last and await ask.get_or_none("/v1/decisions", last, "explanation"),
        "history": await ask.get_or_none(
            "/v1/history/pods", *of, order="newest", limit=50, until=ask.at, **ask.asked("cursor")
        ),
    }


def _view_pod(found: Json, here: Here) -> View:
    pod, attempts = found["pod"], found["attempts"]
    name = f"{pod['namespace']}/{pod['name']}"
    blocks: list[Block] = []
    if attempts is not None:
        look = "bad" if attempts["state"] == "waiting" else _phase_look(pod)
        blocks.append(Text(title="In short", lines=[attempts["summary"]], look=look))
    blocks.append(_facts(here, pod))
    if found["explanation"] is not None:
        blocks += explained.blocks(here, found["explanation"], "What was decided last")
    if attempts is not None and attempts["items"]:
        blocks.append(_attempts(here, attempts["items"]))
    blocks.append(story(here, "What happened to it", found["history"]))
    if pod["placements"]:
        blocks.append(_placements(here, pod))
    crumbs = [here.link("Pods", "pods"), here.link(pod["namespace"], "namespaces", pod["namespace"])]
    controls: list[Block] = []
    if pod["phase"] == "pending" and here.at is None:
        target = here.to("pods", pod["namespace"], pod["name"], "why")
        controls.append(Later(title="Why it waits, and what would cure it", href=target))
    return View(title=f"Pod {name}", crumbs=crumbs, controls=controls, blocks=blocks)


async def _gather_why(ask: Asking) -> Json:
    return {"why": await ask.get("/v1/pods", ask.names["namespace"], ask.names["name"], "why")}


def _view_why(found: Json, here: Here) -> View:
    why = found["why"]
    name = f"{why['namespace']}/{why['name']}"
    crumbs = [here.link("Pods", "pods"), here.link(name, "pods", why["namespace"], why["name"])]
    return View(title=f"What would cure {name}", crumbs=crumbs, blocks=cures(here, why), is_live=False)


def _facts(here: Here, pod: Json) -> Facts:
    group = pod["group"]
    items: list[tuple[str, Cell | Sequence[Cell]]] = [
        ("Phase", Cell(str(_PHASES_SAID.get(pod["phase"], pod["phase"])), look=_phase_look(pod))),
        ("Node", texts.node(here, pod["node"])),
        ("Since", texts.time(pod["since"])),
        ("Held" if pod["phase"] == "released" else "Asks for", Cell(texts.amounts(pod["requests"]))),
        ("Quality", texts.text(pod["quality"] and f"{pod['quality']} ({pod['qos_class']})")),
        ("Priority", texts.number(pod["priority"])),
        ("Gang", texts.gang(here, pod["gang"])),
        ("Devices", texts.text(", ".join(map(str, pod["devices"])))),
        ("Shard", texts.shard(here, pod["shard"])),
        ("Placed by", texts.decision(here, pod["decision"])),
        ("Uid", texts.code(pod["uid"])),
        ("Resource version", texts.text(pod["resource_version"])),
        ("Labels", texts.labels(pod["labels"])),
    ]
    if group is not None:
        said = f"{plural(group['count'], 'equal pod')} {'waits' if group['count'] == 1 else 'wait'}"
        items.insert(1, ("Group", Cell(said, here.to("pending", str(group["shard"]), group["signature"]))))
    return Facts(title="What it is", items=items)


def cures(here: Here, why: Json) -> list[Block]:
    """Return why pods wait, and what would cure it."""
    blocks: list[Block] = [Text(title="Why it waits, and what would cure it", lines=[why["summary"]])]
    if why["cures"]:
        rows = [
            (
                Cell(each["does"]),
                Cell(f"{each['pods']:,} of {each['tried']:,}", look="number", key=each["pods"]),
                [
                    texts.node(here, change["node"])
                    for change in each["changes"]
                    if change.get("node")
                ] or [texts.NOTHING],
            )
            for each in why["cures"]
        ]  # fmt: skip
        note = (
            f"Each was checked by a dry run of the engine ({why['dry_runs']:,} in all) "
            f"on the ledger as of {why['looked_at']}."
        )
        columns = texts.columns("Change", "#Pods placed then", "Node")
        blocks.append(Table(caption="Cures, the smallest first", columns=columns, rows=rows, note=note))
    return blocks


def _attempts(here: Here, items: Sequence[Json]) -> Table:
    rows = [
        (
            texts.time(each["since"]),
            texts.time(each["until"]),
            texts.number(each["times"]),
            texts.number(each["nodes"]),
            Cell(reasons_in_words(each["reasons"])),
            texts.decision(here, each["cycle"]),
        )
        for each in items
    ]
    columns = texts.columns("Since", "Until", "#Times", "#Nodes", "Reasons", "Cycle")
    return Table(caption="Why no node took it while it waited", columns=columns, rows=rows)


def _placements(here: Here, pod: Json) -> Table:
    is_lost = pod["phase"] == "orphaned"
    still = Cell("the node was deleted", look="bad") if is_lost else Cell("still there")
    rows = [
        (
            texts.node(here, each["node"]),
            texts.time(each["from"]),
            texts.time(each["to"]) if each["to"] else still,
            texts.decision(here, each["decision"]),
        )
        for each in pod["placements"]
    ]
    return Table(caption="Where it was", columns=texts.columns("Node", "From", "To", "Decision"), rows=rows)


PAGES = (
    Page("/pods", _gather_pods, _view_pods, ("namespace", "node", "phase", "gang", "quality", *LIST)),
    Page("/pods/{namespace}/{name}", _gather_pod, _view_pod, ("cursor",)),
    Page("/pods/{namespace}/{name}/why", _gather_why, _view_why, is_timed=False),
)
