"""The page of use and decisions over time."""

from __future__ import annotations

import datetime

from services.console import texts
from services.console.asking import Asking
from services.console.blocks import Bar, Bars, Block, Cell, Facts, Field, Json, Part, Table, View
from services.console.here import Here
from services.console.page import Page
from services.phrases import plural
from services.times import moment_ms

_SINCE, _STEP = "1d", "1h"
FEW_STEPS, SHORT_STEP = 3, "5m"
"""Where no step was asked for, and at most so many usual ones hold all there is, shorter ones are shown."""
_BY = (("cluster", "cluster"), ("namespace", "namespace"), ("node", "node"))
RECENT_MINUTES = 10


def rates(usage: Json, now: datetime.datetime) -> Facts:
    """Return how many decisions, evictions and conflicts a second there were of late."""
    decisions: dict[str, int] = {}
    for each in usage["items"]:
        for outcome, count in each["decisions"].items():
            decisions[outcome] = decisions.get(outcome, 0) + count
    seconds = max(1.0, now.timestamp() - moment_ms("since", usage["since"]) / 1000)  # it is a whole step

    def a_second(count: int) -> Cell:
        return Cell(f"{count:,}: {count / seconds:,.3g} a second")

    return Facts(
        title=f"Decided in the last {plural(max(1, round(seconds / 60)), 'minute')}",
        items=[
            ("Decisions", a_second(sum(decisions.values()))),
            ("Placed", a_second(decisions.get("bound", 0))),
            ("Evictions", a_second(decisions.get("evicted", 0))),
            ("Conflicts", a_second(decisions.get("conflict", 0))),
        ],
    )


async def _gather(ask: Asking) -> Json:
    asked = {"since": _SINCE, "step": _STEP, **ask.asked("since", "until", "step", "by", "limit", "cursor")}
    usage = await ask.get("/v1/usage", **asked)
    steps = {each["at"] for each in usage["items"]}
    if len(steps) <= FEW_STEPS and usage["next"] is None and not ask.asked("step", "cursor"):
        usage = await ask.get("/v1/usage", **(asked | {"step": SHORT_STEP}))
    return {"usage": usage}


def _view(found: Json, here: Here) -> View:
    usage = found["usage"]
    fields = [
        Field("since", "Since", _SINCE),
        Field("until", "Until"),
        Field("step", "Step", _step(usage["step_minutes"])),
        Field("by", "By", options=_BY),
    ]
    blocks: list[Block] = []
    if usage["by"] == "cluster":
        blocks.append(_requested(usage["items"]))
    blocks += [texts.sortable(here, _table(here, usage)), texts.pager(here, usage)]
    controls = [texts.filters(here, "Filter", fields)]
    return View(title="Over time", controls=controls, blocks=blocks, shows="a span of its own")


def _step(minutes: int) -> str:
    return f"{minutes}m" if minutes % 60 else f"{minutes // 60}h"


def _requested(items: list[Json]) -> Bars:
    bars = []
    for each in items:
        asked, offered = each["requested_cpu_milli"], each["allocatable_cpu_milli"]
        if not offered:
            continue
        percent = 100 * (asked or 0) / offered
        part = Part("requested", 0, min(percent, 100.0), 0, f"{percent:.1f} %")
        bars.append(Bar(texts.time(each["at"]), [part], f"{percent:.1f} % of the cpu requested"))
    return Bars(title="Requested of the cpu that nodes offered", bars=bars)


def _table(here: Here, usage: Json) -> Table:
    rows = [
        (
            texts.time(each["at"]),
            _of_what(here, usage["by"], each["name"]),
            texts.number(each["pods"]),
            texts.number(each["pending_pods"]),
            _scaled(each["requested_cpu_milli"], 1000),
            _scaled(each["measured_cpu_milli"], 1000),
            _scaled(each["requested_memory_bytes"], texts.GIB),
            _scaled(each["measured_memory_bytes"], texts.GIB),
            texts.number(sum(each["decisions"].values())),
            texts.number(each["evictions"]),
            texts.number(each["decisions"].get("conflict", 0)),
        )
        for each in usage["items"]
    ]
    titles = (
        "From", "Of", "#Pods", "#Waiting", "#CPU requested (cores)", "#CPU measured (cores)",
        "#Memory requested (GiB)", "#Memory measured (GiB)", "#Decisions", "#Evictions", "#Conflicts",
    )  # fmt: skip
    caption = f"Steps of {usage['step_minutes']} minutes"
    return Table(
        caption=caption, columns=texts.columns(*titles), rows=rows, empty="Nothing was counted then."
    )


def _scaled(amount: float | None, unit: int) -> Cell:
    return texts.number(None if amount is None else amount / unit)


def _of_what(here: Here, by: str, name: str) -> Cell:
    if by == "node":
        return texts.node(here, name)
    return texts.namespace(here, name) if by == "namespace" else Cell("the cluster")


PAGES = (
    Page(
        "/usage",
        _gather,
        _view,
        ("since", "until", "step", "by", "limit", "cursor", "sort"),
        is_timed=False,
    ),
)
