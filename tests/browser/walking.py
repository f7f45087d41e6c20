"""What several walks through the console do: sign in, wait for the field, and look for barriers."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Locator, Page, ViewportSize, expect

RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
"""Everything that axe-core knows of, but for its experiments."""
NARROW: ViewportSize = {"width": 360, "height": 740}

expect.set_options(timeout=30_000)  # a machine that does much else may take more than 5 s for what it shows


async def sign_in(page: Page, key: str, path: str = "") -> None:
    """Open a page of the console, show a key, and be there."""
    await page.goto(f"/console/{path}")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"**/console/{path}")


async def drawn(page: Page, nodes_count: int | None = None) -> Locator:
    """Return the field once it is drawn; with a number, once it has so many nodes."""
    field = page.locator("#node-field")
    if nodes_count is None:
        await page.wait_for_selector("#node-field[data-drawn]")
    else:
        await expect(field).to_have_attribute("data-drawn", str(nodes_count))
    return field


async def barriers(page: Page) -> list[str]:
    """Return what keeps people out by the rules of WCAG, each with where it is."""
    found: Any = await Axe().run(page, options=RULES)
    return [
        f"{each['id']} ({each['help']}): {', '.join(node['html'][:200] for node in each['nodes'])}"
        for each in found.response["violations"]
    ]


async def overflow(page: Page) -> int:
    """Return by how many pixels the page is wider than its window."""
    return int(await page.evaluate("document.documentElement.scrollWidth - innerWidth"))
