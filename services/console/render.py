"""Writes views down as HTML; everything that comes from the API is escaped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jinja2
from starlette.responses import HTMLResponse

from services.build import build
from services.console.blocks import Json, Link, View
from services.console.health import Health
from services.console.here import SLIDER_MINUTES, Here

_MAY_LOAD = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _MAY_LOAD,
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send our own forms with the origin null
}

_NAVIGATION = (
    ("Overview", ""),
    ("Nodes", "nodes"),
    ("Pods", "pods"),
    ("Pending", "pending"),
    ("Gangs", "gangs"),
    ("Decisions", "decisions"),
    ("Changes", "diff"),
    ("Over time", "usage"),
    ("Try", "try"),
    ("Profiles", "profiles"),
    ("Shards", "shards"),
    ("Workers", "workers"),
    ("Audit", "audit"),
    ("API", "api"),
)


class Frame(NamedTuple):
    """A view and what stands around it. ``who`` asks; None: the visitor was not let in."""

    view: View
    here: Here
    who: Json | None
    health: Health
    is_timed: bool
    status: int

    @property
    def navigation(self) -> Sequence[tuple[Link, bool]]:
        """Links to all lists, and whether each is where the visitor is."""
        first = self.here.path.strip("/").partition("/")[0]
        return [(self.here.link(text, *filter(None, [name])), name == first) for text, name in _NAVIGATION]

    @property
    def is_live(self) -> bool:
        """Whether the page is made anew as things happen."""
        return self.view.is_live and self.here.at is None and self.status == 200

    @property
    def is_batch(self) -> bool:
        """Whether the moment of the page is named by a batch, and not by a time."""
        return self.here.at is not None and "T" not in self.here.at

    @property
    def notes(self) -> Sequence[str]:
        """What limits the answers for this visitor."""
        if self.who is None or self.who["namespaces"] is None:
            return []
        return [f"This key sees the namespaces {', '.join(self.who['namespaces']) or 'none'} alone."]


@functools.cache
def _templates() -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("services.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.globals.update(slider_minutes=SLIDER_MINUTES, version=build())
    return found


def html_answer(frame: Frame) -> HTMLResponse:
    """Return a page as an answer that no browser keeps, frames, or runs foreign scripts on."""
    asked: dict[str, Any] = {"frame": frame, "view": frame.view, "here": frame.here}
    return HTMLResponse(_templates().get_template("page.html").render(asked), frame.status, HEADERS)
