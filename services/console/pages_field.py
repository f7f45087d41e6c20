"""The field: all nodes as squares by group, on the overview and on a page of its own that needs no script."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from services.console.asking import Asking, inner_scope
from services.console.blocks import Json, View
from services.console.field_views import COLOURS, GROUPS_MAX, SQUARES_MAX, STEPS, groups_of
from services.console.here import Here
from services.console.page import Page
from services.console.session import Visitor

FILTERS = ("by", "colour")
NO_LABEL = "-"
"""What the URL has as ``by`` where nodes are not to be grouped."""
ZONES = ("topology.kubernetes.io/zone", "zone")
"""Labels by which nodes are grouped where the URL names none, if nodes have them."""
_SAMPLE = 20


async def gather_sample(asking: Asking) -> Json:
    """Return a few nodes, whose labels can group all."""
    return await asking.get("/v1/nodes", limit=_SAMPLE, at=asking.at)


async def gather_field(asking: Asking, sample: Json, nodes_count: int | None = None) -> Json:
    """Return what the field of a page needs: what it is grouped and coloured by, which labels there are.

    The field itself is among it where nodes are few, or where their number is not given.
    """
    asked = asking.asked(*FILTERS)
    labels = sorted({label for node in sample["items"] for label in node["labels"]})
    usual = next((zone for zone in ZONES if zone in labels), "")
    by = asked.get("by", usual).removeprefix(NO_LABEL)
    colour = asked.get("colour", "")
    found: Json = {
        "by": by,
        "colour": colour if colour in COLOURS else "cpu",
        "labels": labels,
        "field": None,
    }
    if nodes_count is None or nodes_count <= SQUARES_MAX:
        measured = "true" if COLOURS[found["colour"]].is_measured else None
        found["field"] = await asking.get("/v1/field", by=by or None, measured=measured, at=asking.at)
    return found


def field_data(gathered: Json, here: Here) -> Json:
    """Return what the template of the field writes down."""
    field, colour = gathered["field"], COLOURS[gathered["colour"]]
    at = "" if here.at is None else f"?{urlencode({'at': here.at})}"
    return {
        **gathered,
        "colours": {name: each.name for name, each in COLOURS.items()},
        "name": colour.name,
        "groups": None if field is None else groups_of(field, colour),
        "more": 0 if field is None else max(0, len(field["groups"]) - GROUPS_MAX),
        "steps": range(STEPS),
        "src": f"{here.root}/data/field{at}",
        "node": f"{here.root}/nodes",
        "at": here.at or "",
        "plain": here._replace(query={}).to(
            "field", by=gathered["by"] or NO_LABEL, colour=gathered["colour"]
        ),
    }


async def _gather(asking: Asking) -> Json:
    return {"field": await gather_field(asking, await gather_sample(asking))}


def _view(found: Json, here: Here) -> View:
    return View(
        title="All nodes",
        blocks=(),
        extra="field.html",
        data={"field": field_data(found["field"], here)},
        scripts=("field.js",),
    )


class FieldData:
    """Passes the API's field on as it comes, compressed, and with its mark: a script draws it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ask with the visitor's session, and let the API answer by itself."""
        request = Request(scope)
        query = scope["query_string"].decode("latin-1")
        inner = inner_scope(request, "GET", "/v1/field", query, Visitor.of(request).session)
        passed_on = (b"accept-encoding", b"if-none-match")
        inner["headers"] += [(name, value) for name, value in scope["headers"] if name in passed_on]
        await request.app(inner, receive, send)


PAGES = (Page("/field", _gather, _view, FILTERS),)
