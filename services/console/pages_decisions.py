"""Pages of decisions: the list, and one with its explanation, its victims and alternatives."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from domain.manifests.codes import ignored_in_words
from domain.model.decisions import Outcome
from services.console import explained, texts
from services.console.asking import Asking
from services.console.blocks import Block, Cell, Facts, Field, Json, Line, Raw, Table, Text, View
from services.console.here import Here
from services.console.page import LIST, Page
from services.phrases import said_in_words

_FILTERS = (
    "namespace", "pod", "node", "outcome", "shard", "signature", "profile", "revision", "since", "until",
    "order",
)  # fmt: skip
_WAITS = (
    *("unschedulable", "unresolvable", "gang-waiting", "conflict", "bind-failed", "nominated", "cleared"),
    *("evicted", "orphaned"),
)
_ORDERS = (("newest", "newest first"), ("oldest", "oldest first"))
VICTIMS_MAX = 50
_NEAR_MAX = 1000
"""Decisions that are looked through for the pods that evicted ones leave for, and for those that may stay."""


async def gather_leaving(ask: Asking, decisions: Sequence[Json]) -> Json:
    """Ask for the pods that evicted ones leave for, by decision, and which evicted ones may stay after all.

    Both lie behind the first of these decisions.
    """
    evicted = [each for each in decisions if each["preemption"] and each["preemption"]["nominated"]]
    if not evicted:
        return {"for": {}, "spared": {}}
    since = min(each["decided_at"] for each in evicted)
    near = {"since": since, "until": ask.until, "limit": _NEAR_MAX, "order": "oldest"}
    nominated, spared = await asyncio.gather(
        ask.get("/v1/decisions", **near, outcome="nominated"),
        ask.get("/v1/decisions", **near, outcome="spared"),
    )
    names = {each["id"]: texts.pod_of(each) for each in nominated["items"]}
    stayed = {each["id"]: _spared(each, spared["items"]) for each in evicted}
    return {"for": names, "spared": {id: by for id, by in stayed.items() if by is not None}}


def _spared(evicted: Json, spared: Sequence[Json]) -> Json | None:
    """Return the decision that takes an eviction back."""
    of = evicted["pod"]["uid"], evicted["shard"], evicted["preemption"]["preemptor"]
    return next(
        (
            each
            for each in spared
            if (each["pod"]["uid"], each["shard"], (each["preemption"] or {}).get("preemptor")) == of
            and each["seq"] > evicted["seq"]
        ),
        None,
    )


def decisions_table(
    here: Here, caption: str, decisions: Sequence[Json], leaving: Json | None = None, note: str = ""
) -> Table:
    """Return decisions as a table; ``leaving`` is what ``gather_leaving`` found."""
    leaving = leaving or {"for": {}, "spared": {}}
    rows = [
        (
            texts.decision(here, each["id"]),
            texts.time(each["decided_at"]),
            texts.pod(here, texts.pod_of(each)),
            _outcome(here, each, leaving["spared"].get(each["id"])),
            texts.node(here, each["node"]),
            texts.text(said_in_words(each["reason"])),
            _for_whom(here, each, leaving["for"]),
            texts.number(each["score"], 3),
        )
        for each in decisions
    ]
    titles = ("Decision", "At", "Pod", "Outcome", "Node", "Reason", "Leaves for", "#Score")
    empty = "Nothing was decided."
    return Table(caption=caption, columns=texts.columns(*titles), rows=rows, empty=empty, note=note)


def _outcome(here: Here, decision: Json, spared: Json | None) -> Line:
    said = Cell(decision["outcome"], look="bad" if decision["outcome"] in _WAITS else "good")
    if spared is None:
        return said
    title = f"At {spared['decided_at']}: {spared['reason']}"
    return [said, Cell("taken back", here.to("decisions", spared["id"]), look="good", title=title)]


def _for_whom(here: Here, decision: Json, names: Mapping[str, str]) -> Cell:
    """Return the pod for which one leaves; its decision where the pod is not known."""
    asked = decision["preemption"]
    if asked is None or not asked["nominated"]:
        return texts.NOTHING
    if asked["nominated"] in names:
        return texts.pod(here, names[asked["nominated"]])
    return Cell(f"decision {asked['nominated']}", here.to("decisions", asked["nominated"]))


async def _gather_decisions(ask: Asking) -> Json:
    asked = {"order": "newest", **ask.asked(*_FILTERS, "limit", "cursor")}
    if ask.until is not None:
        asked.setdefault("until", ask.until)
    decisions = await ask.get("/v1/decisions", **asked)
    return {"decisions": decisions, "leaving": await gather_leaving(ask, decisions["items"])}


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
    said = {
        "evicted": "Evicted pods, and the pods they made room for",
        "conflict": "Conflicts between workers",
    }
    caption = said.get(here.query.get("outcome", ""), "Decisions")
    note = _TAKEN_BACK if found["leaving"]["spared"] else ""
    table = decisions_table(here, caption, found["decisions"]["items"], found["leaving"], note)
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


_TAKEN_BACK = (
    "An eviction that was taken back is marked so: the pod stays. A pod may be told to leave, and be spared, "
    "more than once."
)


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
    following = await _gather_following(ask, decision)
    return {"explanation": explanation, "evicted": evicted, "nominated": nominated, "following": following}


async def _gather_following(ask: Asking, decision: Json) -> Json | None:
    """Return the next decision about the pod."""
    later = await ask.get(
        "/v1/decisions",
        pod=texts.pod_of(decision),
        since=decision["decided_at"],
        order="oldest",
        limit=VICTIMS_MAX,
    )
    same = [each for each in later["items"] if each["shard"] == decision["shard"]]
    return next((each for each in same if each["seq"] > decision["seq"]), None)


def _view_decision(found: Json, here: Here) -> View:
    explanation, nominated = found["explanation"], found["nominated"]
    decision = explanation["decision"]
    pod = texts.pod_of(decision)
    blocks: list[Block] = explained.blocks(here, explanation, "What held when it was decided")
    if found["following"] is not None:
        blocks.insert(1, _what_came_of_it(here, found["following"]))
    if found["evicted"]:
        names = {"for": {decision["id"]: pod}, "spared": {}}
        blocks.insert(1, decisions_table(here, "The pods that were to leave for it", found["evicted"], names))
    if nominated is not None:
        preemptor = texts.pod_of(nominated)
        links = [here.link(f"Pod {preemptor}", "pods", *preemptor.split("/", 1))]
        said = f"It was to leave for {preemptor}."
        blocks.insert(1, Text(title="The pod that it made room for", lines=[said], links=links))
    blocks.append(_facts(here, decision, pod))
    blocks.append(
        Raw(title="All of the pod that mattered for placing it", text=texts.as_text(explanation["template"]))
    )
    crumbs = [here.link("Decisions", "decisions"), here.link(pod, "pods", *pod.split("/", 1))]
    title = f"Decision {decision['id']}: {pod} {decision['outcome']}"
    return View(title=title, crumbs=crumbs, blocks=blocks)


def _what_came_of_it(here: Here, following: Json) -> Text:
    """Return what was decided about the pod next: from then on the decision of the page holds no more."""
    reason = f": {said_in_words(following['reason'])}" if following["reason"] else ""
    node = f" ({following['node']})" if following["node"] else ""
    said = f"At {following['decided_at']} came the next decision about the pod: "
    said += f"{following['outcome']}{node}{reason}."
    link = here.link(f"Decision {following['id']}", "decisions", following["id"])
    return Text(title="What came of it", lines=[said], links=[link])


def _facts(here: Here, decision: Json, pod: str) -> Facts:
    says = {each.value: each.says for each in Outcome}
    return Facts(
        title="The decision",
        items=[
            ("Pod", texts.pod(here, pod)),
            ("Outcome", Cell(f"{decision['outcome']}: {says.get(decision['outcome'], '')}")),
            ("Node", texts.node(here, decision["node"])),
            ("Decided", texts.time(decision["decided_at"])),
            ("In the ledger since", texts.time(decision["recorded_at"])),
            ("Event at", texts.time(decision["event_at"])),
            ("Sent by", texts.text(decision["sent_by"])),
            ("Asked for", Cell(texts.amounts(decision["requests"]))),
            ("Profile", texts.profile(here, decision["profile"], decision["profile_revision"])),
            ("Shard", texts.shard(here, decision["shard"])),
            ("Changes of the node", texts.text(decision["node_version"])),
            ("Cycle", texts.decision(here, decision["cycle"])),
            ("Not looked at", texts.text("; ".join(map(ignored_in_words, decision["warnings"])))),
            ("Group", Cell("decisions of its group", here.to("decisions", signature=decision["signature"]))),
        ],
    )


PAGES = (
    Page("/decisions", _gather_decisions, _view_decisions, (*_FILTERS, *LIST)),
    Page("/decisions/{id}", _gather_decision, _view_decision),
)
