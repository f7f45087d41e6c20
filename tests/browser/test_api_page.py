"""Do the pages of the API work in a browser?"""

from __future__ import annotations

from playwright.async_api import Page, expect


async def test_the_contract_is_read_and_tried(page: Page) -> None:
    await page.goto("/docs")
    await expect(page.get_by_role("heading", name="berth", exact=False).first).to_be_visible()
    await expect(page.locator(".opblock").first).to_be_visible()
