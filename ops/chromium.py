"""A real Chromium without a window, for tests, measurements and pictures: the one that is installed."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
REMEDY = "there is no Chromium here; on Debian `apt-get install chromium` brings it"


def chromium_path() -> str | None:
    """Return where Chromium is; None: there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Start Chromium; nothing is downloaded for it, and it reaches nothing but this machine.

    It needs the package playwright, which is among the development dependencies.
    """
    from playwright.async_api import async_playwright

    found = chromium_path()
    if found is None:
        raise FileNotFoundError(REMEDY)
    arguments = [
        "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
        "--disable-background-networking",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),  # its sandbox refuses root
    ]
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=found, args=arguments)
        try:
            yield browser
        finally:
            await browser.close()
