"""What the cluster lacks though berth works: room for pods, a controller that evicts, nodes that are well."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from services.console import texts
from services.console.asking import Asking
from services.console.blocks import Block, Json, Text
from services.console.here import Here
from services.phrases import plural

ASKED_MAX = 100
RECENT_MINUTES = 15
NAMED_MAX = 3
_LATE = "did not leave in time"


async def gather_needs(ask: Asking) -> Json:
    """Ask for what waits, which pods have a nominated node, and which nominations ended of late."""
    pending, nominations, cleared = await asyncio.gather(
        ask.get_or_none("/v1/pending", limit=ASKED_MAX, order="oldest"),
        ask.get_or_none("/v1/nominations", limit=ASKED_MAX),
        ask.get_or_none(
            "/v1/decisions", outcome="cleared", since=f"{RECENT_MINUTES}m", order="newest", limit=ASKED_MAX
        ),
    )
    return {
        "is_known": None not in (pending, nominations, cleared),
        "pending": _items(pending),
        "nominations": _items(nominations),
        "late": [each for each in _items(cleared) if _LATE in (each["reason"] or "")],
    }


def _items(page: Json | None) -> list[Json]:
    """Return what a page has; nothing of one that cannot be read: what is wrong is told by the checks."""
    return [] if page is None else page["items"]


def needs(found: Json, here: Here, field: Json | None = None) -> list[Block]:
    """Return what somebody has to see to; ``field``: all nodes as columns, where it was asked for."""
    return [*_no_room(found["pending"], here), *_stays(found, here), *_ill(field, here)]


def _no_room(groups: list[Json], here: Here) -> Iterator[Text]:
    hopeless = [each for each in groups if each["unresolvable"]]
    if hopeless:
        pods = sum(each["count"] for each in hopeless)
        yield Text(
            title=f"{plural(pods, 'pod')} would find no node even if all others left",
            lines=[
                "More free room does not help them: see what would, each change tried before it is shown."
            ],
            links=[
                here.link(f"Why {each['examples'][0]} waits", "pods", *each["examples"][0].split("/"), "why")
                for each in hopeless[:NAMED_MAX]
                if each["examples"]
            ],
            look="bad",
        )


def _stays(found: Json, here: Here) -> Iterator[Text]:
    """Say that what deletes evicted pods seems not to run: nominations ended before the victims had left."""
    late = found["late"]
    if not late:
        return
    pods = sorted({texts.pod_of(each) for each in late})
    lines = [
        f"{plural(len(late), 'nomination')} of a node ended in the last {RECENT_MINUTES} minutes, as the "
        "pods that had to leave it were still there. berth tells which pods to evict; a controller, or "
        "`berth executor`, deletes them. See that it runs."
    ]
    if found["nominations"]:
        lines.append(f"{plural(len(found['nominations']), 'pod')} wait for others to leave now.")
    yield Text(
        title="Pods that are evicted do not leave",
        lines=lines,
        links=[here.link(name, "pods", *name.split("/")) for name in pods[:NAMED_MAX]],
        look="bad",
    )


def _ill(field: Json | None, here: Here) -> Iterator[Text]:
    if field is None:
        return
    column = next((each for each in field["resources"] if each["name"] == "pods"), None)
    ill = [at for at in field["not_ready"] if column is None or column["requested"][at]]
    if ill:
        yield Text(
            title=f"Not ready, with pods on them: {plural(len(ill), 'node')}",
            lines=["What is placed there stays placed until its controller deletes it."],
            links=[here.link(field["names"][at], "nodes", field["names"][at]) for at in ill[:NAMED_MAX]],
            look="bad",
        )
