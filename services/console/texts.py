"""How values of the API's answers look on pages: cells, amounts in units, names with their links."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from domain.model.quantities import to_milli
from services.console.blocks import Bar, Bars, Cell, Column, Field, Form, Json, Link, Pager, Part, Table
from services.console.here import Here
from services.phrases import plural, reason_in_words

GIB = 1 << 30
_BYTES = ("memory", "ephemeral-storage")
NOTHING = Cell("-", look="muted", key=float("-inf"))
LIMITS = ("50", "100", "200", "500", "1000")
COLOURS = 10


def value(amount: str | None, resource: str) -> float:
    """Return a quantity as a number: cores, GiB, or so many of anything else."""
    if amount is None:
        return 0.0
    exact = to_milli(amount) / 1000
    return exact / GIB if resource in _BYTES or resource.startswith("hugepages-") else exact


def unit(resource: str) -> str:
    """Return the unit in which ``value`` counts a resource."""
    if resource == "cpu":
        return "cores"
    return "GiB" if resource in _BYTES or resource.startswith("hugepages-") else ""


def number(amount: float | None, digits: int = 2) -> Cell:
    """Return a number with its thousands apart, and no more digits than it has."""
    if amount is None:
        return NOTHING
    text = f"{amount:,.{digits}f}"
    return Cell(text.rstrip("0").rstrip(".") if "." in text else text, look="number", key=float(amount))


def amount(quantity: str | None, resource: str) -> Cell:
    """Return a quantity as a number in its unit; the exact one is its title."""
    if quantity is None:
        return NOTHING
    found = number(value(quantity, resource))
    return Cell(found.text, look="number", title=f"{resource} {quantity}", key=found.key)


def with_unit(quantity: str, resource: str) -> str:
    """Return ``cpu 1.5 cores``."""
    of = unit(resource)
    return f"{resource} {number(value(quantity, resource)).text}{f' {of}' if of else ''}"


def of_offered(asked: str, offered: str, resource: str) -> str:
    """Return ``81,765.8 of 125,514 cores, 65.1 %``."""
    first, second = (number(value(each, resource)).text for each in (asked, offered))
    part = share(asked, offered)
    return " ".join(filter(None, [first, "of", second, unit(resource)])) + (
        "" if part is None else f", {part:.1f} %"
    )


def amounts(quantities: Mapping[str, str]) -> str:
    """Return all amounts in their units, with commas."""
    return ", ".join(with_unit(quantity, name) for name, quantity in quantities.items()) or "nothing"


def share(part: str | None, whole: str | None) -> float | None:
    """Return how much of a quantity another one is, in percent."""
    of = to_milli(whole) if whole else 0
    return None if not of else 100 * to_milli(part or "0") / of


def time(at: str | None) -> Cell:
    """Return a time."""
    return NOTHING if at is None else Cell(at, look="time", key=at)


def text(said: object) -> Cell:
    """Return a text; a dash for none."""
    return NOTHING if said is None or said == "" else Cell(str(said))


def code(said: str | None) -> Cell:
    """Return a name or an id as such."""
    return NOTHING if not said else Cell(said, look="code")


def node(here: Here, name: str | None) -> Cell:
    """Return the link to a node."""
    return NOTHING if name is None else Cell(name, here.to("nodes", name))


def pod_of(decision: Json) -> str:
    """Return the pod of a decision, as namespace/name."""
    return f"{decision['pod']['namespace']}/{decision['pod']['name']}"


def pod(here: Here, name: str | None) -> Cell:
    """Return the link to a pod, of ``namespace/name``."""
    if name is None:
        return NOTHING
    namespace, slash, of = name.partition("/")
    return Cell(name, here.to("pods", namespace, of)) if slash and of else Cell(name)


def pods(here: Here, names: Sequence[str]) -> Sequence[Cell]:
    """Return links to pods."""
    return [pod(here, name) for name in names] or [NOTHING]


def decision(here: Here, id: str | None) -> Cell:
    """Return the link to a decision."""
    return NOTHING if id is None else Cell(id, here.to("decisions", id))


def gang(here: Here, name: str | None) -> Cell:
    """Return the link to a gang, of ``namespace/name``."""
    if name is None:
        return NOTHING
    namespace, _, of = name.partition("/")
    return Cell(name, here.to("gangs", namespace, of))


def profile(here: Here, name: str, revision: int | None) -> Cell:
    """Return the link to a revision of a profile; without one there was no such profile."""
    if not revision:
        return Cell(name)
    return Cell(f"{name}, revision {revision}", here.to("profiles", name, revision=revision))


def namespace(here: Here, name: str) -> Cell:
    """Return the link to a namespace."""
    return Cell(name, here.to("namespaces", name))


def shard(here: Here, number: int) -> Cell:
    """Return the link to a shard."""
    return Cell(str(number), here.to("shards", str(number)), key=number)


def seconds(count: float | None) -> str:
    """Return a span as people say it: ``3 h 20 min``."""
    if count is None:
        return "-"
    whole = int(count)
    if whole < 60:
        return f"{count:.3g} s" if count < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def labels(given: Mapping[str, str]) -> Sequence[Cell]:
    """Return labels as ``key=value``."""
    return [Cell(f"{key}={said}", look="code") for key, said in given.items()] or [NOTHING]


def ordered(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return reasons with their nodes, the most frequent first."""
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def funnel(title: str, nodes: int, reasons: Mapping[str, int], feasible: int | None = None) -> Bars:
    """Return how many nodes each reason refused, and how many were left behind it."""
    widest = max(nodes, 1)
    bars, left = [_funnel_bar("nodes looked at", nodes, 0, widest, "")], nodes
    for reason, count in ordered(reasons):
        left = max(0, left - count)
        said = f"{plural(count, 'node')} {reason_in_words(reason, count)}; {left:,} left"
        bars.append(_funnel_bar(reason, left, count, widest, said))
    if feasible is not None:
        bars.append(_funnel_bar("could take it", feasible, 0, widest, plural(feasible, "node")))
    return Bars(title=title, bars=bars, legend=[("left", 0), ("refused here", 1)])


def _funnel_bar(name: str, left: int, refused: int, widest: int, said: str) -> Bar:
    parts = [Part("left", 0, 100 * left / widest, 0, f"{left:,}")]
    if refused:
        parts.append(Part("refused", 100 * left / widest, 100 * refused / widest, 1, f"{refused:,}"))
    return Bar(Cell(name), parts, said or f"{left:,}")


def filters(here: Here, title: str, fields: Sequence[Field]) -> Form:
    """Return the form that filters a list; what it leaves empty is no filter."""
    given = [
        Field(f.name, f.label, here.query.get(f.name, f.value), f.options, f.rows, f.hint) for f in fields
    ]
    limit = Field("limit", "Rows", here.query.get("limit", "100"), [(each, each) for each in LIMITS])
    hidden = {} if here.at is None else {"at": here.at}
    return Form(
        title=title,
        action=here.root + here.path,
        fields=[*given, limit],
        button="Filter",
        hidden=hidden,
        clear=here._replace(query={}).again(),
    )


def pager(here: Here, page: Mapping[str, Any]) -> Pager:
    """Return the links from page to page of a list."""
    following = here.again(cursor=page["next"]) if page.get("next") else None
    return Pager(first=here.again(cursor=None) if here.query.get("cursor") else None, following=following)


def sortable(here: Here, table: Table) -> Table:
    """Return a table sorted as the URL says (``sort=name``, or ``-name`` downwards), with links for it."""
    asked = here.query.get("sort", "")
    names = [column.name for column in table.columns]
    sorts = {name: here.again(sort=f"-{name}" if asked == name else name) for name in names if name}
    rows = list(table.rows)
    if asked.lstrip("-") in sorts:
        at = names.index(asked.lstrip("-"))
        rows.sort(key=lambda row: _key(row[at]), reverse=asked.startswith("-"))
    else:
        asked = ""
    note = table.note or ("Sorted within this page of the list." if asked else "")
    return dataclasses.replace(table, rows=rows, sorts=sorts, sorted_by=asked, note=note)


def _key(line: Cell | Sequence[Cell]) -> tuple[int, float, str]:
    """Return what a line is sorted by: numbers before texts."""
    first = line if isinstance(line, Cell) else line[0]
    key = first.text if first.key is None else first.key
    return (0, float(key), "") if isinstance(key, int | float) else (1, 0.0, key)


def columns(*titles: str) -> list[Column]:
    """Return columns of texts; a title that begins with ``#`` is one of numbers. They sort by their title."""
    return [
        Column(title.lstrip("#"), title.lstrip("#").lower().replace(" ", "-"), title.startswith("#"))
        for title in titles
    ]


def item_links(here: Here, links: Mapping[str, str]) -> list[Link]:
    """Return links of the API's own answers as links to the pages of what they name."""
    found = []
    for name, target in links.items():
        path = target.partition("?")[0].removeprefix("/v1/")
        if path.startswith(("pods/", "nodes/", "decisions/", "profiles/")) and not path.endswith(
            "/explanation"
        ):
            at = "" if here.at is None else f"?at={here.at}"
            end = "/" if path.endswith(".json") else ""
            found.append(Link(name, f"{here.root}/{path}{end}{at}"))
    return found


def as_text(value: Json | Sequence[Any]) -> str:
    """Return a value as JSON for people."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
