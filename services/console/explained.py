"""An explained decision: bars per plugin beside the next best nodes, filters as a funnel, pods that leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from services.console import texts
from services.console.blocks import Bar, Bars, Block, Cell, Facts, Json, Part, Table, Text
from services.console.here import Here
from services.phrases import plural, tied_in_words, weighted

_OF_ITS_OWN_NODE = ("orphaned", "returned", "adopted", "resized")
"""Outcomes whose reasons are about the node of the pod: no other one was looked at."""


def blocks(here: Here, explanation: Json, title: str) -> list[Block]:
    """Return what there is to say about a decision."""
    decision, cycle = explanation["decision"], explanation["cycle"]
    found: list[Block] = [
        Text(
            title=title,
            lines=[f"At {decision['decided_at']}: {explanation['summary']}"],
            links=[here.link(f"Decision {decision['id']}", "decisions", decision["id"])],
        )
    ]
    found += preemption(here, decision)
    if explanation["reasons"] and decision["outcome"] not in _OF_ITS_OWN_NODE:
        nodes = sum(explanation["reasons"].values())
        feasible = None
        if cycle is not None and decision["node"] is not None and decision["outcome"] == "bound":
            nodes, feasible = max(cycle["nodes_home"] or cycle["nodes"], nodes), cycle["feasible"]
        caption = "Why the other nodes did not take it" if decision["node"] else "Why no node took it"
        found.append(texts.funnel(caption, nodes, explanation["reasons"], feasible))
    if cycle is not None:
        found += [*attempt(here, cycle, decision["node"]), _cycle(here, cycle)]
    return found


def attempt(here: Here, cycle: Json, chosen: str | None) -> list[Block]:
    """Return the best nodes of an attempt, and the rules over other pods that refused some."""
    return [*_candidates(here, cycle, chosen), *_rules(cycle)]


def preemption(here: Here, decision: Json) -> list[Block]:
    """Return which pods have to leave for which, where some have to."""
    asked, moved = decision["preemption"], decision["migration"]
    found: list[Block] = []
    if asked is not None and (asked["victims"] or asked["preemptor"] or asked["nominated"]):
        items: list[tuple[str, Cell | Sequence[Cell]]] = [("Node", texts.node(here, decision["node"]))]
        if asked["victims"]:
            items.append(("Were to leave", [Cell(each, look="code") for each in asked["victims"]]))
            items.append(("Budgets broken", texts.number(asked["violations"])))
            items.append(("Nominated until", texts.time(asked["expires_at"])))
        if asked["preemptor"]:
            items.append(("Was to leave for", Cell(asked["preemptor"], look="code")))
        if asked["nominated"]:
            items.append(("Decided in", texts.decision(here, asked["nominated"])))
        if asked["priority"] is not None:
            items.append(("Of priority", texts.number(asked["priority"])))
        found.append(Facts(title="The pods that were to leave, and for which", items=items))
    if moved is not None:
        facts = [
            ("From", texts.node(here, moved["from"])),
            ("Hot by", Cell("; ".join(moved["why"]))),
            ("Room found on", texts.node(here, moved["to"])),
        ]
        found.append(Facts(title="Why it has to leave a hot node", items=facts))
    return found


def _candidates(here: Here, cycle: Json, chosen: str | None) -> list[Block]:
    """Return the best nodes with the share that each plugin has in their scores."""
    nodes, weights = cycle["candidates"], cycle["weights"]
    if not nodes:
        return []
    names = list(dict.fromkeys(name for each in nodes for name in each["parts"]))
    colour = {name: i % texts.COLOURS for i, name in enumerate(names)}
    lines = ["As the first pod of its group saw them; each part is the plugin's score times its weight."]
    best = next((each["score"] for each in nodes if each["node"] == chosen), nodes[0]["score"])
    if (tied_count := sum(each["score"] == best for each in nodes)) > 1:
        lines.append(f"{tied_in_words(tied_count)}.")
    widest = max((_sum(each["parts"], weights) for each in nodes), default=0.0) or 1.0
    bars = [_bar(here, each, weights, colour, widest, chosen) for each in nodes]
    columns = texts.columns("Node", "#Score", *(f"#{weighted(name, weights.get(name, 1))}" for name in names))
    rows = [
        [
            texts.node(here, each["node"]),
            texts.number(each["score"], 3),
            *(texts.number(each["parts"].get(name), 2) for name in names),
        ]
        for each in nodes
    ]
    return [
        Bars(
            title="The best nodes, by plugin",
            lines=lines,
            bars=bars,
            legend=[(weighted(name, weights.get(name, 1)), colour[name]) for name in names],
        ),
        Table(caption="The same in numbers: 0 to 100 before the weight", columns=columns, rows=rows),
        *_inputs(here, nodes),
    ]


def _sum(parts: Mapping[str, float], weights: Mapping[str, float]) -> float:
    return sum(abs(value * weights.get(name, 1)) for name, value in parts.items())


def _bar(
    here: Here,
    candidate: Json,
    weights: Mapping[str, float],
    colour: Mapping[str, int],
    widest: float,
    chosen: str | None,
) -> Bar:
    parts, x = [], 0.0
    for name, value in candidate["parts"].items():
        score = value * weights.get(name, 1)
        width = 100 * abs(score) / widest
        parts.append(Part(name, x, width, colour[name], f"{score:.6g}"))
        x += width
    name = candidate["node"]
    said = f"{candidate['score']:.6g}" + (", chosen" if name == chosen else "")
    return Bar(texts.node(here, name), parts, said)


def _inputs(here: Here, nodes: Sequence[Json]) -> list[Block]:
    rows = [
        (
            texts.node(here, each["node"]),
            Cell(resource),
            texts.amount(sums["requested"], resource),
            texts.amount(sums["allocatable"], resource),
        )
        for each in nodes
        if each["inputs"] is not None
        for resource, sums in each["inputs"]["sums"].items()
        if not resource.startswith("~")
    ]
    if not rows:
        return []
    columns = texts.columns("Node", "Resource", "#Requested", "#Offered")
    caption = "What they were scored from, before the pod (cores, GiB)"
    return [Table(caption=caption, columns=columns, rows=rows)]


def _rules(cycle: Json) -> list[Block]:
    rows = [
        (
            Cell(each["text"]),
            texts.number(each["count_max"]),
            texts.number(each["count_min"]),
            Cell(", ".join(f"{domain}: {count}" for domain, count in each["domains"].items()) or "-"),
        )
        for each in cycle["rules"]
    ]
    if not rows:
        return []
    columns = texts.columns("Rule", "#At most", "#Lowest", "Domains beyond")
    return [Table(caption="Rules over other pods that refused nodes", columns=columns, rows=rows)]


def _cycle(here: Here, cycle: Json) -> Facts:
    looked = f"{cycle['nodes_home']:,} home nodes of {cycle['nodes']:,}" if cycle["nodes_home"] else None
    return Facts(
        title=f"The cycle {cycle['id']} behind it",
        items=[
            ("Profile", texts.profile(here, cycle["profile"], cycle["profile_revision"])),
            ("Looked at", texts.time(cycle["looked_at"])),
            ("Nodes", Cell(looked or plural(cycle["nodes"], "node"))),
            ("Feasible", texts.number(cycle["feasible"])),
            ("Pods of the group", Cell(f"{cycle['bound']:,} of {cycle['pods']:,} placed")),
            ("Seed of ties", texts.text(cycle["seed"])),
            ("State looked at", Cell(f"generation {cycle['generation']}")),
            ("Batch took", Cell(f"{cycle['duration_us'] / 1000:,.1f} ms")),
        ],
    )
