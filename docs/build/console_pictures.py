"""Takes pictures of the console that shows a real cluster's trace: `make pictures`.

Few colours are enough for pages that have few, and make small files.
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image
from playwright.async_api import Browser, ViewportSize

from ops.chromium import open_browser
from ops.postgres.server import EmbeddedServer
from services.traces import openb
from tests.browser.site import BOSS, Site, Steps, open_site
from tests.browser.walking import sign_in
from tests.servers import scratch_dir

PICTURES = Path(__file__).parent.parent / "pictures"
MODEL = "nvidia.com/gpu.product"
COLOURS = 128
_MINUTES = 50
_EVENTS_AT_ONCE = 1_000
_WIDE: ViewportSize = {"width": 1280, "height": 800}
_PHONE: ViewportSize = {"width": 360, "height": 1200}


class Picture(NamedTuple):
    """A picture: its name, the page below ``/console/``, and how it is looked at.

    ``ready`` is a selector of what the page waits for, ``press`` the name of a button that is pressed before.
    """

    name: str
    path: str
    scheme: Literal["light", "dark"] = "light"
    size: ViewportSize = _WIDE
    ready: str = "main h1"
    press: str = ""


def steps() -> Steps:
    """Return the trace: its nodes, and its pods some at a time, each part some minutes later."""
    events = list(openb.events())
    parts = [events[at : at + _EVENTS_AT_ONCE] for at in range(0, len(events), _EVENTS_AT_ONCE)]
    return [(_MINUTES * (len(parts) - number - 1) // len(parts), part) for number, part in enumerate(parts)]


async def pictures_of(site: Site) -> list[Picture]:
    """Return all pictures; pods and groups are those of which there is most to say."""
    waiting = (await site.client.get("/v1/pending?limit=1")).json()["items"][0]
    placed = (await site.client.get("/v1/decisions?order=newest&outcome=bound&limit=1")).json()["items"][0]
    pod = f"{placed['pod']['namespace']}/{placed['pod']['name']}"
    group = f"pending/{waiting['shard']}/{waiting['signature']}"
    drawn, table = "#node-field[data-drawn]", "main table"
    return [
        Picture("overview", f"?by={MODEL}", ready=drawn),
        Picture("overview-dark", f"?by={MODEL}&colour=devices", scheme="dark", ready=drawn),
        Picture("phone", f"?by={MODEL}&colour=devices", scheme="dark", size=_PHONE, ready=drawn),
        Picture("then", f"?by={MODEL}&at=20m", ready=drawn),
        Picture("nodes", "nodes", ready=table),
        Picture("node", f"nodes/{placed['node']}"),
        Picture("pods", "pods", ready=table),
        Picture("pod", f"pods/{pod}"),
        Picture("waiting", f"pods/{waiting['examples'][0]}"),
        Picture("cures", f"pods/{waiting['examples'][0]}/why", ready=table),
        Picture("pending", "pending", ready=table),
        Picture("group", group),
        Picture("decisions", "decisions?order=newest", ready=table),
        Picture("decision", f"decisions/{placed['id']}", ready=".bars"),
        Picture("diff", "diff?from=15m", ready=table),
        Picture("try", "try", press="Plan", ready="text=The plan"),
        Picture("shards", "shards", ready=table),
        Picture("shard", "shards/0"),
        Picture("workers", "workers", ready=table),
        Picture("profiles", "profiles", ready=table),
        Picture("profile", "profiles/default-scheduler"),
        Picture("namespace", f"namespaces/{placed['pod']['namespace']}"),
        Picture("audit", "audit"),
        Picture("wrong", "wrong"),
    ]


async def take(browser: Browser, site: Site, picture: Picture) -> Path:
    """Take a picture; return where it is."""
    context = await browser.new_context(
        base_url=site.url, viewport=picture.size, color_scheme=picture.scheme, locale="en-GB"
    )
    page = await context.new_page()
    await sign_in(page, BOSS)
    await page.goto(f"/console/{picture.path}")
    if picture.press:
        await page.get_by_role("button", name=picture.press, exact=True).click()
    await page.wait_for_selector(picture.ready, timeout=60_000)
    target = PICTURES / f"console-{picture.name}.png"
    _write(target, await page.screenshot())
    await context.close()
    return target


def _write(target: Path, shot: bytes) -> None:
    """Write a picture with few colours."""
    image = Image.open(io.BytesIO(shot)).convert("RGB")
    few = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(target, optimize=True)


async def main() -> None:
    """Fill a cluster from the trace, and take all pictures."""
    with scratch_dir() as path, EmbeddedServer(path) as dsn:
        async with open_site(dsn, steps()) as site, open_browser() as browser:
            for picture in await pictures_of(site):
                target = await take(browser, site, picture)
                sys.stdout.write(f"{target.name}: {target.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    asyncio.run(main())
