"""Does axe-core find a barrier on any page, light or dark, wide or narrow?"""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.async_api import Browser, Page, ViewportSize

from tests.browser.site import BOSS, Site
from tests.browser.walking import NARROW, barriers, drawn, sign_in

PAGES = (
    *("", "field", "nodes", "nodes/n0", "pods", "pods/shop/web-0", "pods/shop/huge-0", "pending", "gangs"),
    *(
        "decisions",
        "diff?from=2h",
        "profiles",
        "shards",
        "workers",
        "audit",
        "wrong",
        "api",
        "pods/shop/none",
        "find?q=web",
        "decisions?outcome=evicted",
    ),
)
WIDE: ViewportSize = {"width": 1280, "height": 900}


@pytest.mark.deep
@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", NARROW)])
async def test_no_page_has_a_barrier(
    browser: Browser, site: Site, scheme: Literal["light", "dark"], size: ViewportSize
) -> None:
    context = await browser.new_context(base_url=site.url, color_scheme=scheme, viewport=size)
    page, found = await context.new_page(), {}
    await page.goto("/console/")
    found["sign in"] = await barriers(page)
    await sign_in(page, BOSS)
    for path in PAGES:
        await page.goto(f"/console/{path}")
        if path in ("", "field"):
            await (await drawn(page)).get_by_text("The same as a table").click()
        found[path] = await barriers(page)
    await context.close()
    assert not {path: each for path, each in found.items() if each}


async def test_the_test_sees_a_barrier(page: Page) -> None:
    await page.goto("/console/")
    await page.evaluate("document.querySelectorAll('label').forEach((each) => each.remove())")
    await page.evaluate("document.documentElement.lang = ''")
    assert {"label", "html-has-lang"} <= {each.split()[0] for each in await barriers(page)}
