"""Pages of nodes: the list, and one node with what is on it, was measured on it and happened to it."""

from __future__ import annotations

from services.console import texts
from services.console.asking import Asking
from services.console.blocks import Bar, Bars, Block, Cell, Facts, Field, Json, Part, Table, Text, View
from services.console.here import Here
from services.console.page import LIST, Page
from services.console.pages_pods import pods_table
from services.console.stories import story


def status(node: Json) -> Cell:
    """Return what state a node is in."""
    if node["deleted"]:
        return Cell("deleted", look="bad")
    said = ["not ready" if node["ready"] is False else "ready"]
    said += ["cordoned"] * bool(node["unschedulable"]) + ["overcommitted"] * bool(node["overcommitted"])
    return Cell(", ".join(said), look="good" if said == ["ready"] else "bad")


async def _gather_nodes(ask: Asking) -> Json:
    return {"nodes": await ask.get("/v1/nodes", at=ask.at, **ask.asked("name", "limit", "cursor"))}


def _view_nodes(found: Json, here: Here) -> View:
    nodes = found["nodes"]["items"]
    others = sorted({name for node in nodes for name in node["allocatable"]} - {"cpu", "memory", "pods"})
    titles = ["Name", "Status", "#CPU (cores)", "#CPU %", "#Memory (GiB)", "#Memory %", "#Pods"]
    rows = []
    for node in nodes:
        asked, offered = node["requested"], node["allocatable"]
        rows.append(
            [
                texts.node(here, node["name"]),
                status(node),
                _of(node, "cpu"),
                texts.number(texts.share(asked.get("cpu"), offered.get("cpu")), 0),
                _of(node, "memory"),
                texts.number(texts.share(asked.get("memory"), offered.get("memory")), 0),
                _of(node, "pods"),
                *(_of(node, name) for name in others),
            ]
        )
    table = Table(
        caption="Nodes: requested of what they offer",
        columns=texts.columns(*titles, *(f"#{name}" for name in others)),
        rows=rows,
        empty="No node has such a name." if here.query.get("name") else "There are no nodes.",
    )
    controls = [texts.filters(here, "Filter", [Field("name", "Name contains")])]
    blocks: list[Block] = [texts.sortable(here, table), texts.pager(here, found["nodes"])]
    return View(title="Nodes", controls=controls, blocks=blocks)


def _of(node: Json, resource: str) -> Cell:
    """Return requested and offered of a resource; they sort by what is requested."""
    offered = node["allocatable"].get(resource)
    if offered is None:
        return texts.NOTHING
    asked = node["requested"].get(resource, "0")
    first, second = texts.amount(asked, resource), texts.amount(offered, resource)
    return Cell(f"{first.text} / {second.text}", look="number", title=f"{asked} of {offered}", key=first.key)


async def _gather_node(ask: Asking) -> Json:
    name = ask.names["name"]
    return {
        "node": await ask.get("/v1/nodes", name, at=ask.at),
        "history": await ask.get_or_none(
            "/v1/history/nodes", name, order="newest", limit=50, until=ask.at, **ask.asked("cursor")
        ),
        "decisions": await ask.get("/v1/decisions", node=name, order="newest", limit=1),
    }


def _view_node(found: Json, here: Here) -> View:
    node = found["node"]
    zone = node["labels"].get("topology.kubernetes.io/zone")
    blocks: list[Block] = []
    if node["overcommitted"] and not node["deleted"]:
        said = f"Its pods hold more than it offers of {', '.join(node['overcommitted'])}."
        blocks.append(Text(title="Overcommitted", lines=[said], look="bad"))
    if node.get("heat") and node["heat"]["hot"]:
        blocks.append(
            Text(title="Hot", lines=[*node["heat"]["why"], "It takes no mid or low pods."], look="bad")
        )
    blocks += [
        Facts(
            title="What it is",
            items=[
                ("Status", status(node)),
                ("Zone", texts.text(zone)),
                ("Spec changed", texts.time(node["spec_changed_at"])),
                ("Said by", texts.text(node["spec_sent_by"])),
                ("Version", texts.text(node["version"])),
                ("Policy", texts.text(node["policy"])),
                ("Taints", [Cell(_taint(each), look="code") for each in node["taints"]] or [texts.NOTHING]),
                ("Labels", texts.labels(node["labels"])),
            ],
        ),
        _resources(node),
        *([] if node["deleted"] else _devices(node)),
        *_usage(node),
        pods_table(here, "Pods on it", node["pods"]),
    ]
    if node["pods_next"]:
        more = here.link("All pods on this node", "pods", node=node["name"], phase="bound")
        blocks.append(Text(lines=[], links=[more]))
    if node["others"]:
        held = texts.amounts({name: each for name, each in node["others"].items() if name != "pods"})
        said = (
            f"{node['others'].get('pods', '0')} pods of namespaces that this key does not see request {held}."
        )
        blocks.append(Text(title="Others", lines=[said]))
    blocks += [*_moves(here, node), story(here, "What happened to it and on it", found["history"])]
    blocks.append(Text(lines=[], links=[here.link("All decisions about it", "decisions", node=node["name"])]))
    return View(title=f"Node {node['name']}", crumbs=[here.link("Nodes", "nodes")], blocks=blocks)


def _taint(taint: Json) -> str:
    return f"{taint['key']}{'=' if taint['value'] else ''}{taint['value']}:{taint['effect']}"


def _resources(node: Json) -> Block:
    if node["deleted"]:
        lines = ["A deleted node offers nothing."]
        if node["requested"]:
            held = texts.amounts(node["requested"])
            lines[0] += f" Its pods ask for {held}, and count nowhere until it returns."
        return Text(title="What it offers", lines=lines, look="bad")
    bars = []
    for name, offered in node["allocatable"].items():
        asked, free = node["requested"].get(name, "0"), node["free"].get(name, "0")
        percent = texts.share(asked, offered) or 0.0
        said = f"{texts.of_offered(asked, offered, name)}; {texts.number(texts.value(free, name)).text} free"
        colour = 4 if percent > 100 else 0
        bars.append(
            Bar(Cell(name), [Part("requested", 0, min(100.0, percent), colour, f"{percent:.1f} %")], said)
        )
    return Bars(title="Requested of what it offers", bars=bars)


def _devices(node: Json) -> list[Block]:
    if not node["devices"]:
        return []
    bars = [
        Bar(
            Cell(f"device {i}"),
            [Part("taken", 0, taken / 10, 3, f"{taken / 10:g} %")],
            f"{taken / 10:g} % taken",
        )
        for i, taken in enumerate(node["devices"])
    ]
    return [Bars(title="Devices, one by one", bars=bars)]


def _usage(node: Json) -> list[Block]:
    usage = node["usage"]
    if usage is None:
        return []
    rows = [
        (
            Cell(name),
            *(texts.number(each[what], 1) for what in ("avg", "std", "latest", "peak_yesterday")),
            texts.number(each["samples"]),
        )
        for name, each in usage["resources"].items()
    ]
    titles = ("Resource", "#Average %", "#Deviation %", "#Latest %", "#Peak yesterday %", "#Samples")
    note = f"Measured last at {usage['at']}."
    return [Table(caption="Measured", columns=texts.columns(*titles), rows=rows, note=note)]


def _moves(here: Here, node: Json) -> list[Block]:
    blocks: list[Block] = []
    if node["moves"]:
        rows = [
            (
                texts.pod(here, f"{each['namespace']}/{each['name']}"),
                texts.node(here, each["to"]),
                texts.time(each["since"]),
                texts.time(each["expires"]),
            )
            for each in node["moves"]
        ]
        columns = texts.columns("Pod", "Room found on", "Told", "May stay after")
        blocks.append(Table(caption="Pods that have to leave it as it is hot", columns=columns, rows=rows))
    if node["actions"]:
        acts = [
            (texts.time(each["at"]), Cell(each["action"]), Cell(each["quality"]), texts.text(each["amount"]),
             texts.pod(here, each["pod"]), texts.number(each["times"]), Cell(each["reason"]))
            for each in node["actions"]
        ]  # fmt: skip
        columns = texts.columns("At", "Act", "Quality", "Amount", "Pod", "#Times", "Reason")
        blocks.append(Table(caption="What its agent did", columns=columns, rows=acts))
    return blocks


PAGES = (
    Page("/nodes", _gather_nodes, _view_nodes, ("name", *LIST)),
    Page("/nodes/{name}", _gather_node, _view_node, ("cursor",)),
)
