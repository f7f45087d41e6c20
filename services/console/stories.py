"""The story of an object, as its history tells it."""

from __future__ import annotations

from services.console import texts
from services.console.blocks import Happened, Json, Link, Story
from services.console.here import Here


def story(here: Here, title: str, history: Json | None) -> Story:
    """Return a history as a block; None: the caller may not see it, or it is not kept."""
    if history is None:
        return Story(title=title, entries=[], lines=["Its history cannot be shown."])
    entries = []
    for each in history["items"]:
        links = texts.item_links(here, each["links"])
        what = each["decision"]["outcome"] if each["decision"] else each["kind"]
        entries.append(Happened(each["at"], what, each["says"], links))
    lines = [history["why_now"]["summary"]] if history["why_now"] else []
    if here.looked_at is not None:
        lines.append("The story ends at the moment that is chosen.")
    if history["journal"] and history["journal"]["missing"]:
        kept = history["journal"]
        lines.append(f"Of its batches {kept['first']} to {kept['last']}, {kept['missing']} are not kept.")
    more = Link("Older", here.again(cursor=history["next"])) if history["next"] else None
    return Story(title=title, entries=entries, lines=lines, more=more)
