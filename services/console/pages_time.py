"""The page that says what changed between two moments."""

from __future__ import annotations

import dataclasses

from services.console import texts
from services.console.asking import Asking
from services.console.blocks import Block, Cell, Facts, Field, Form, Json, Table, Text, View
from services.console.here import Here
from services.console.page import Page
from services.phrases import plural

_USUAL = "1h"
SHOWN_MAX = 500
_BAD = ("evicted", "orphaned", "returned", "waiting")
_COUNTS = (
    *(("nodes", "nodes"), ("pods placed", "bound"), ("of these, pods that lost their node", "orphaned")),
    ("pods waiting", "pending"),
)


async def _gather_diff(ask: Asking) -> Json:
    asked = {"from": _USUAL, **ask.asked("from", "until", "namespace")}
    asked.setdefault("until", "now")
    return {"diff": await ask.get("/v1/diff", **asked)}


def _view_diff(found: Json, here: Here) -> View:
    diff = found["diff"]
    form = Form(
        title="Between two moments",
        action=here.root + here.path,
        fields=[
            Field(
                "from", "From", here.query.get("from", _USUAL), hint="1h, 14:00, a day, RFC 3339, or 0:1234"
            ),
            Field("until", "Until", here.query.get("until", "now")),
            Field("namespace", "Namespace", here.query.get("namespace", "")),
        ],
        button="Compare",
    )
    lines = [f"{plural(len(diff['nodes']), 'node')} and {plural(len(diff['pods']), 'pod')} differ."]
    if diff["more"]:
        lines.append("There are more changes than are told; choose a shorter time, or a namespace.")
    blocks: list[Block] = [
        Text(lines=lines),
        Facts(
            title="The records compared: each the last at or before what was asked for",
            items=[("From", _record(diff["from"])), ("Until", _record(diff["until"]))],
        ),
        _sums(diff),
        _pods(here, diff),
        _nodes(here, diff),
    ]
    shows = "what differs between two moments of its own"
    return View(title="What changed", controls=[form], blocks=blocks, is_live=False, shows=shows)


def _record(at: str | None) -> Cell:
    return Cell("none: this is before all records") if at is None else texts.time(at)


def _sums(diff: Json) -> Table:
    before, after = diff["before"], diff["after"]
    rows = [
        (
            Cell(title),
            texts.number(before[name]),
            texts.number(after[name]),
            _changed(after[name] - before[name]),
        )
        for title, name in _COUNTS
    ]
    for what in ("allocatable", "requested"):
        for name in dict.fromkeys((*before[what], *after[what])):
            a, b = (texts.value(each[what].get(name), name) for each in (before, after))
            unit = texts.unit(name)
            title = f"{name} {what}{f' ({unit})' if unit else ''}"
            rows.append((Cell(title), texts.number(a), texts.number(b), _changed(b - a)))
    return Table(caption="Sums", columns=texts.columns("What", "#Before", "#After", "#Change"), rows=rows)


def _changed(count: float) -> Cell:
    """Return a difference with its sign."""
    found = texts.number(count)
    return dataclasses.replace(found, text=f"+{found.text}") if count > 0 else found


def _pods(here: Here, diff: Json) -> Table:
    rows = [
        (
            texts.pod(here, f"{each['namespace']}/{each['name']}"),
            Cell(each["change"], look="bad" if each["change"] in _BAD else ""),
            texts.node(here, each["before"]),
            texts.node(here, each["after"]),
        )
        for each in diff["pods"][:SHOWN_MAX]
    ]
    columns = texts.columns("Pod", "Change", "Before", "After")
    caption = "Pods that are elsewhere, lost their node, wait or are gone"
    table = Table(caption=caption, columns=columns, rows=rows, note=_rest(len(diff["pods"])))
    return texts.sortable(here, table)


def _nodes(here: Here, diff: Json) -> Table:
    rows = [
        (
            texts.node(here, each["name"]),
            Cell(each["change"]),
            Cell("; ".join(f"{name}: {_short(said)}" for name, said in each["fields"].items()) or "-"),
        )
        for each in diff["nodes"][:SHOWN_MAX]
    ]
    columns = texts.columns("Node", "Change", "What")
    note = _rest(len(diff["nodes"]))
    return Table(caption="Nodes that came, went or changed", columns=columns, rows=rows, note=note)


def _rest(count: int) -> str:
    """Return how many are not shown."""
    if count <= SHOWN_MAX:
        return ""
    return f"{count - SHOWN_MAX:,} more are in this page as JSON; choose a shorter time, or a namespace."


def _short(said: Json) -> str:
    return f"{said['before']} -> {said['after']}"


PAGES = (Page("/diff", _gather_diff, _view_diff, ("from", "until", "namespace", "sort"), is_timed=False),)
