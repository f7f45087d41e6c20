"""Pages of decisions: the list, and one with its explanation, its victims and alternatives."""

from __future__ import annotations

from collections.abc import Sequence

from domain.model.decisions import Outcome
from services.console import explained, texts
from services.console.asking import Asking
from services.console.blocks import Block, Cell, Facts, Field, Json, Raw, Table, Text, View
from services.console.here import Here
from services.console.page import LIST, Page

_FILTERS = (
    "namespace", "pod", "node", "outcome", "shard", "signature", "profile", "revision", "since", "until",
    "order",
)  # fmt: skip
_WAITS = ("unschedulable", "unresolvable", "gang-waiting", "conflict", "bind-failed", "evicted")
_ORDERS = (("newest", "newest first"), ("oldest", "oldest first"))
VICTIMS_MAX = 50


def decisions_table(here: Here, caption: str, decisions: Sequence[Json]) -> Table:
    """Return decisions as a table."""
    rows = [
        (
            texts.decision(here, each["id"]),
            texts.time(each["decided_at"]),
            texts.pod(here, f"{each['pod']['namespace']}/{each['pod']['name']}"),
            Cell(each["outcome"], look="bad" if each["outcome"] in _WAITS else "good"),
            texts.node(here, each["node"]),
            texts.text(each["reason"]),
            _for_whom(here, each),
            texts.number(each["score"], 3),
        )
        for each in decisions
    ]
    titles = ("Decision", "At", "Pod", "Outcome", "Node", "Reason", "Leaves for", "#Score")
    empty = "Nothing was decided."
    return Table(caption=caption, columns=texts.columns(*titles), rows=rows, empty=empty)


def _for_whom(here: Here, decision: Json) -> Cell:
    asked = decision["preemption"]
    if asked is None or not asked["nominated"]:
        return texts.NOTHING
    return Cell(f"see {asked['nominated']}", here.to("decisions", asked["nominated"]))


async def _gather_decisions(ask: Asking) -> Json:
    asked = {"order": "newest", **ask.asked(*_FILTERS, "limit", "cursor")}
    if ask.until is not None:
        asked.setdefault("until", ask.until)
    return {"decisions": await ask.get("/v1/decisions", **asked)}


def _view_decisions(found: Json, here: Here) -> View:
    outcomes = [("", "any"), *((each.value, each.value) for each in Outcome)]
    fields = [
        Field("outcome", "Outcome", options=outcomes),
        Field("namespace", "Namespace"),
        Field("pod", "Pod"),
        Field("node", "Node"),
        Field("profile", "Profile"),
        Field("since", "Since"),
        Field("until", "Until"),
        Field("order", "Order", "newest", options=_ORDERS),
    ]
    said = {"evicted": "Who had to leave, for whom", "conflict": "Conflicts between workers"}
    caption = said.get(here.query.get("outcome", ""), "Decisions")
    table = decisions_table(here, caption, found["decisions"]["items"])
    links = [
        here.link(text, "decisions", outcome=outcome)
        for text, outcome in (
            ("Evictions", "evicted"),
            ("Nominations", "nominated"),
            ("Refusals", "unschedulable"),
            ("Conflicts", "conflict"),
        )
    ]
    blocks: list[Block] = [
        Text(lines=[], links=links), texts.sortable(here, table), texts.pager(here, found["decisions"])
    ]  # fmt: skip
    return View(title="Decisions", controls=[texts.filters(here, "Filter", fields)], blocks=blocks)


async def _gather_decision(ask: Asking) -> Json:
    explanation = await ask.get("/v1/decisions", ask.names["id"], "explanation")
    decision = explanation["decision"]
    evicted: list[Json] = []
    asked = decision["preemption"]
    if decision["outcome"] == "nominated" and asked is not None and asked["victims"]:
        near = await ask.get(
            "/v1/decisions",
            node=decision["node"],
            outcome="evicted",
            since=decision["decided_at"],
            limit=VICTIMS_MAX,
        )
        evicted = [
            each
            for each in near["items"]
            if each["preemption"] and each["preemption"]["nominated"] == decision["id"]
        ]
    nominated = None
    if asked is not None and asked["nominated"]:
        nominated = await ask.get_or_none("/v1/decisions", asked["nominated"])
    return {"explanation": explanation, "evicted": evicted, "nominated": nominated}


def _view_decision(found: Json, here: Here) -> View:
    explanation, nominated = found["explanation"], found["nominated"]
    decision = explanation["decision"]
    pod = f"{decision['pod']['namespace']}/{decision['pod']['name']}"
    blocks: list[Block] = explained.blocks(here, explanation, "In short")
    if found["evicted"]:
        blocks.insert(1, decisions_table(here, "The pods that have to leave for it", found["evicted"]))
    if nominated is not None:
        for_whom = f"{nominated['pod']['namespace']}/{nominated['pod']['name']}"
        links = [here.link(f"Pod {for_whom}", "pods", *for_whom.split("/", 1))]
        blocks.insert(1, Text(title="For whom", lines=[f"It has to leave for {for_whom}."], links=links))
    blocks.append(_facts(here, decision, pod))
    blocks.append(
        Raw(title="All of the pod that mattered for placing it", text=texts.as_text(explanation["template"]))
    )
    crumbs = [here.link("Decisions", "decisions"), here.link(pod, "pods", *pod.split("/", 1))]
    title = f"Decision {decision['id']}: {pod} {decision['outcome']}"
    return View(title=title, crumbs=crumbs, blocks=blocks)


def _facts(here: Here, decision: Json, pod: str) -> Facts:
    says = {each.value: each.says for each in Outcome}
    return Facts(
        title="The decision",
        items=[
            ("Pod", texts.pod(here, pod)),
            ("Outcome", Cell(f"{decision['outcome']}: {says.get(decision['outcome'], '')}")),
            ("Node", texts.node(here, decision["node"])),
            ("Decided", texts.time(decision["decided_at"])),
            ("Durable", texts.time(decision["recorded_at"])),
            ("Event at", texts.time(decision["event_at"])),
            ("Sent by", texts.text(decision["sent_by"])),
            ("Asked for", Cell(texts.amounts(decision["requests"]))),
            ("Profile", texts.profile(here, decision["profile"], decision["profile_revision"])),
            ("Shard", texts.shard(here, decision["shard"])),
            ("Node version", texts.text(decision["node_version"])),
            ("Cycle", texts.decision(here, decision["cycle"])),
            ("No say had", texts.text(", ".join(decision["warnings"]))),
            ("Group", Cell("decisions of its group", here.to("decisions", signature=decision["signature"]))),
        ],
    )


PAGES = (
    Page("/decisions", _gather_decisions, _view_decisions, (*_FILTERS, *LIST)),
    Page("/decisions/{id}", _gather_decision, _view_decision),
)
