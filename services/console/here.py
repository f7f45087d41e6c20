"""Where a visitor is: the page, the moment, what he filters by; and the links that lead on from there."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from services.console.blocks import Link


class Here(NamedTuple):
    """A page, and the moment that all of it shows.

    ``root`` is where the console is, without a slash at its end. ``path`` is the page below it, ``query``
    what it was asked for besides the moment. ``at`` is the moment as the URL has it; None: now. Once the API
    said what it means, ``looked_at`` is its time, and ``begins`` when the records begin if it is before all.
    """

    root: str
    path: str
    query: Mapping[str, str]
    at: str | None
    token: str
    now: datetime.datetime
    looked_at: str | None = None
    begins: str | None = None

    def to(self, *names: str, **query: object) -> str:
        """Return the link to a page by its names, at the same moment."""
        path = "/".join(quote(name, safe=":@") for name in names)
        end = "/" if names and names[-1].endswith(".json") else ""
        return self._link(f"/{path}{end}", {name: str(each) for name, each in query.items() if each})

    def link(self, text: str, *names: str, **query: object) -> Link:
        """Return the same with its text."""
        return Link(text, self.to(*names, **query))

    def again(self, **changes: object) -> str:
        """Return the link to this page with other values; None and "" take one away."""
        asked = {**self.query, **changes}
        return self._link(self.path, {name: str(each) for name, each in asked.items() if each})

    def at_another(self, at: str | None) -> str:
        """Return the link to this page at another moment, from the beginning of its list."""
        asked = {name: each for name, each in self.query.items() if name != "cursor"}
        return self._replace(at=at)._link(self.path, asked)

    @property
    def twin(self) -> str:
        """The link to the data that the page was made of."""
        path = self.path.rstrip("/") or "/overview"
        return self._link(f"{path}.json", self.query)

    @property
    def minutes_ago(self) -> int:
        """How long ago the moment is, for the slider: 0 to ``SLIDER_MINUTES``; 0 where it is no time."""
        if self.at is None:
            return 0
        try:
            then = datetime.datetime.fromisoformat((self.looked_at or self.at).replace("Z", "+00:00"))
        except ValueError:
            return 0
        if then.tzinfo is None:
            then = then.replace(tzinfo=datetime.UTC)
        return max(0, min(SLIDER_MINUTES, round((self.now - then).total_seconds() / 60)))

    def _link(self, path: str, query: Mapping[str, str]) -> str:
        asked = dict(query) if self.at is None else {**query, "at": self.at}
        return f"{self.root}{path}" + (f"?{urlencode(asked)}" if asked else "")


SLIDER_MINUTES = 24 * 60
"""How far back the slider goes; other moments are typed."""


def moment_before(now: datetime.datetime, minutes: int) -> str | None:
    """Return the moment so many minutes ago as URLs have it; None: now."""
    if minutes <= 0:
        return None
    return f"{now - datetime.timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
