"""Finds Debian's Chromium, and drives it without a window."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium_path() -> str:
    """Return where Chromium is; skip the test where there is none, but let it fail in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return found
    told = "these tests drive a real Chromium, and there is none; on Debian: apt-get install chromium"
    if os.environ.get("CI") == "true":
        pytest.fail(told)
    pytest.skip(told)


@contextlib.asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Start Chromium; nothing is downloaded, and it reaches nothing but loopback."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # its sandbox refuses root
    rules = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=chromium_path(), args=[*arguments, rules, "--disable-background-networking"]
        )
        try:
            yield browser
        finally:
            await browser.close()
