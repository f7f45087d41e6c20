"""Try: paste manifests, and see where they would go, now or then; who may write applies them from there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from domain.model.errors import FieldError
from services.console import explained, texts
from services.console.asking import Asking, NotAnswered
from services.console.blocks import Block, Cell, Field, Form, Json, Table, Text, View
from services.console.here import Here
from services.console.page import PATH, Page, framed, here_of, refusing, show
from services.console.pages_decisions import decisions_table
from services.console.session import Visitor, read_form
from services.phrases import plural
from services.plan.kinds import Use, use_of
from services.plan.reading import read_manifests

SHOWN_MAX, ATTEMPTS_MAX = 200, 3
_WAIT = "5s"
_CHOICES = (("no", "no"), ("yes", "yes"))
_EXAMPLE = """apiVersion: v1
kind: Pod
metadata: {name: try, namespace: default}
spec:
  containers:
  - name: main
    resources: {requests: {cpu: "1", memory: 1Gi}}
"""


async def _gather(ask: Asking) -> Json:
    """Ask nothing: there is no plan before manifests are pasted."""
    return {"example": _EXAMPLE}


def _view(found: Json, here: Here) -> View:
    controls = [_form(here, {"manifests": found["example"]})]
    return View(title="Try", controls=controls, blocks=[], is_live=False, has_twin=False)


PAGE = Page("/try", _gather, _view)


def _form(here: Here, fields: dict[str, str]) -> Form:
    when = "now" if here.at is None else f"as of {here.at}"
    return Form(
        title=f"Where would these go, {when}? Nothing is written.",
        action=here._replace(path="/try", query={}).again(),
        fields=[
            Field(
                "manifests",
                "Manifests (YAML or JSON)",
                fields.get("manifests", ""),
                rows=14,
                hint="Pods, Deployments and other workloads; also nodes and classes that are to be there.",
            ),
            Field("profile", "Profile for all", fields.get("profile", "")),
            Field("replicas", "Copies of each", fields.get("replicas", "")),
            Field("how_many", "How many more fit", fields.get("how_many", "yes"), _CHOICES),
            Field("cures", "What would cure", fields.get("cures", "yes"), _CHOICES),
        ],
        button="Plan",
        token=here.token,
    )


def add_routes(router: APIRouter) -> None:
    """Add the page, its form, and what applies a plan."""

    @router.get(f"{PATH}/try")
    async def first(request: Request) -> Response:
        return await show(PAGE, request)

    @router.post(f"{PATH}/try")
    @refusing
    async def plan(request: Request, visitor: Visitor) -> Response:
        here, asking = here_of(request, visitor), Asking(request, visitor.session)
        who = await asking.get("/v1/caller")
        fields = await read_form(request, visitor)
        status = 200
        try:
            blocks = plan_blocks(here, await asking.send("POST", "/v1/plan", body=_wanted(fields, here.at)))
        except NotAnswered as error:
            if error.status in (401, 429):
                raise
            status, blocks = error.status, _why_not(error)
        controls = [_form(here, fields)]
        if status == 200 and here.at is None and "write" in who["may"]:
            blocks.append(await offer(here, fields))
        view = View(title="Try", controls=controls, blocks=blocks, is_live=False, has_twin=False)
        return await framed(request, visitor, here._replace(query={}), view, status=status, who=who)

    @router.post(f"{PATH}/apply")
    @refusing
    async def apply(request: Request, visitor: Visitor) -> Response:
        here, asking = here_of(request, visitor), Asking(request, visitor.session)
        who = await asking.get("/v1/caller")
        fields = await read_form(request, visitor)
        events, left_out = await asyncio.to_thread(_events, fields.get("manifests", ""))
        done = await asking.send("POST", "/v1/events", body=events, wait=_WAIT, until="decided")
        view = View(title="Applied", blocks=_applied(here, done, left_out), is_live=False, has_twin=False)
        here = here._replace(path="/try", query={})
        return await framed(request, visitor, here, view, status=200, who=who)


def _wanted(fields: dict[str, str], at: str | None) -> Json:
    """Return the plan that a form asks for."""
    wanted: Json = {"manifests": fields.get("manifests", "").replace("\r\n", "\n"), "at": at}
    wanted |= {name: fields.get(name) == "yes" for name in ("how_many", "cures")}
    if profile := fields.get("profile", "").strip():
        wanted["profile"] = profile
    if replicas := fields.get("replicas", "").strip():
        if not replicas.isdecimal() or len(replicas) > 6:
            raise _invalid("replicas", "is no number of copies; 1 and more is allowed")
        wanted["replicas"] = int(replicas)
    return wanted


def _invalid(path: str, message: str) -> NotAnswered:
    return NotAnswered.of(422, "invalid-field", message, path)


def _why_not(error: NotAnswered) -> list[Block]:
    said = f"{error.path}: {error.message}" if error.path else error.message
    return [Text(title="This cannot be planned", lines=[said], look="bad")]


# ------------------------------------------------------------------------------------------- what is planned


def plan_blocks(here: Here, found: Json) -> list[Block]:
    """Return a plan: how many pods go where, how many more would fit, and what would cure the rest."""
    total = found["placed"] + found["waiting"]
    lines = [
        f"{found['placed']:,} of {plural(total, 'pod')} would be placed; there are {found['nodes']:,} nodes."
    ]
    if found["evictions"]:
        named = ", ".join(each["pod"] for each in found["evictions"])
        lines.append(
            f"For {named} pods of lower priority may be evicted: this plan evicts none, but workers do it "
            "once these manifests are applied. See below which."
        )
    if found["looked_at"]:
        lines.append(f"Planned on the ledger as of {found['looked_at']}. Nothing was written.")
    look = "good" if not found["waiting"] else "bad"
    blocks: list[Block] = [Text(title="The plan", lines=lines, look=look), _pods(here, found["pods"])]
    if found["notes"]:
        blocks.append(Text(title="What to know", lines=found["notes"]))
    if found["more"]:
        blocks.append(_more(found["more"]))
    blocks += [_cures(here, each) for each in found["cures"]]
    blocks += [_evictions(here, each) for each in found["evictions"]]
    blocks += _attempts(here, found)
    return blocks


def _pods(here: Here, pods: Sequence[Json]) -> Table:
    rows = [
        (
            Cell(each["pod"]),
            Cell(each["outcome"], look="good" if each["node"] else "bad"),
            texts.node(here, each["node"]),
            texts.number(each["score"], 3),
            texts.text(each["why"]),
        )
        for each in pods[:SHOWN_MAX]
    ]
    note = f"{len(pods) - SHOWN_MAX:,} more are not shown." if len(pods) > SHOWN_MAX else ""
    columns = texts.columns("Pod", "Outcome", "Node", "#Score", "Why not")
    return Table(caption="Pods, in the order of decision", columns=columns, rows=rows, note=note)


def _more(items: Sequence[Json]) -> Table:
    rows = [
        (
            Cell(each["pod"]),
            texts.number(each["count"]),
            texts.number(each["nodes"]),
            Cell(each["why"] or "more than are counted would fit"),
        )
        for each in items
    ]
    columns = texts.columns("Pod", "#More would fit", "#On nodes", "The next one waits as")
    return Table(caption="How many more would fit beside these", columns=columns, rows=rows)


def _cures(here: Here, of: Json) -> Table:
    rows = [
        (Cell(each["does"]), Cell(f"{each['pods']:,} of {each['tried']:,}", look="number", key=each["pods"]))
        for each in of["cures"]
    ]
    caption = f"What would cure {of['pod']}"
    if of["waiting"] > 1:
        caption += f" and {of['waiting'] - 1:,} like it"
    note = "" if of["reached"] else "The search was cut off; there may be smaller cures."
    columns = texts.columns("Change", "#Pods placed then")
    empty = "No change of one or two things was found that would."
    return Table(caption=caption, columns=columns, rows=rows, note=note, empty=empty)


def _evictions(here: Here, of: Json) -> Table:
    rows = [
        (
            texts.node(here, each["node"]),
            [*texts.pods(here, each["victims"]), *_others(each["victims_of_others"])],
            texts.number(each["violations"]),
            texts.number(each["highest_priority"]),
        )
        for each in of["nodes"]
    ]
    caption = f"Pods that would have to leave for {of['pod']}, and the alternatives"
    helped = plural(of["nodes_helped"], "node")
    note = f"Evicting pods of lower priority would help on {helped}; workers do it once the pod is applied."
    columns = texts.columns("Node", "Victims", "#Budgets broken", "#Highest priority")
    return Table(caption=caption, columns=columns, rows=rows, note=note)


def _others(count: int) -> list[Cell]:
    return [Cell(f"and {plural(count, 'pod')} of other namespaces", look="muted")] if count else []


def _attempts(here: Here, found: Json) -> list[Block]:
    """Return why of the first few kinds of pods: the funnel of filters and the bars of plugins."""
    blocks: list[Block] = []
    for number, each in enumerate(found["attempts"][:ATTEMPTS_MAX]):
        first = next((pod for pod in found["pods"] if pod["attempt"] == number), None)
        if first is None:
            continue
        cycle = each["explained"]
        reasons = each["reasons"] if first["node"] is None else cycle["reasons"]
        if reasons:
            nodes = max(cycle["nodes"], sum(reasons.values()))
            title = f"How many nodes each reason refused, for {first['pod']}"
            blocks.append(texts.funnel(title, nodes, reasons, cycle["feasible"] if first["node"] else None))
        blocks += explained.attempt(here, cycle, first["node"])
    return blocks


# ------------------------------------------------------------------------------------------- what is applied


async def offer(here: Here, fields: dict[str, str]) -> Form | Text:
    """Return the form that applies what was planned, or why there is nothing to apply."""
    try:
        events, _ = await asyncio.to_thread(_events, fields["manifests"])
    except NotAnswered as error:
        return Text(title="Nothing here can be applied", lines=[f"The manifests {error.message}."])
    copies = fields.get("replicas", "").strip()
    once = ", each once and not in copies" if copies not in ("", "1") else ""
    return _apply_form(here, fields["manifests"], f"{plural(len(events), 'object')}{once}")


def _apply_form(here: Here, manifests: str, what: str) -> Form:
    return Form(
        title=f"Apply {what}: it goes into the log, is decided for good, and may have other pods evicted",
        action=f"{here.root}/apply",
        fields=[],
        button="Apply",
        hidden={"manifests": manifests},
        token=here.token,
    )


def _events(text: str) -> tuple[list[Json], list[str]]:
    """Return the events of manifests, and what is left out: a controller makes pods of workloads."""
    try:
        given, notes = read_manifests(text.replace("\r\n", "\n"))
    except FieldError as error:
        raise _invalid(error.path, error.message) from None
    events = [
        {"type": each.type, "object": each.manifest} for each in given if use_of(each.manifest) is Use.EVENT
    ]
    workloads = len(given) - len(events)
    if workloads:
        notes.append(f"{plural(workloads, 'workload')} left out: a controller turns such objects into pods.")
    if not events:
        raise _invalid("manifests", "hold nothing that the log takes: a controller makes pods of workloads")
    return events, notes


def _applied(here: Here, done: Json, left_out: Sequence[str]) -> list[Block]:
    lines = [f"{plural(done['accepted'], 'event')} went into the log."]
    if done["duplicates"]:
        lines.append(f"{plural(done['duplicates'], 'event')} had been accepted before.")
    if not done.get("folded"):
        lines.append(f"Not all of it took effect within {_WAIT}: see what is wrong, or what waits.")
    lines += left_out
    lines += [f"{each['path']}: {each['message']}" for each in done.get("deadletters") or ()]
    links = [here.link("Try more", "try"), here.link("What waits", "pending")]
    blocks: list[Block] = [Text(title="Done", lines=lines, links=links, look="good")]
    if done.get("decisions"):
        blocks.append(decisions_table(here, "What was decided", done["decisions"]))
    return blocks
