"""One browser and one filled console for the tests of a file, and a page of its own for each.

A console that stayed open until the end of the run would keep its connections, its worker and its browser
beside the tests of other files.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from ops.chromium import REMEDY, chromium_path, open_browser
from tests.browser.site import Site, open_site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Return Chromium. Where there is none tests are skipped, but in CI they fail."""
    if chromium_path() is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(REMEDY)
    async with open_browser() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(browser: Browser, embedded_dsn: str) -> AsyncIterator[Site]:
    """Return a console that shows a small cluster; nothing is filled where there is no browser."""
    async with open_site(embedded_dsn) as found:
        yield found


@pytest_asyncio.fixture
async def page(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """Return a page of a browser that has no cookies; no script on it may fail."""
    context = await browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900})
    found, failed = await context.new_page(), list[str]()
    found.on("pageerror", lambda error: failed.append(str(error)))
    yield found
    await context.close()
    assert not failed
