"""May a reader type the times that he sees, in his own zone?"""

from __future__ import annotations

import datetime
import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser.site import BOSS, Site
from tests.browser.walking import sign_in

ZONE = ZoneInfo("Asia/Kolkata")
"""Half an hour beside most others, and never that of summer."""


@pytest_asyncio.fixture
async def far(browser: Browser, site: Site) -> AsyncIterator[Page]:
    """Return a page of somebody who is signed in, far away from Greenwich."""
    context = await browser.new_context(base_url=site.url, timezone_id=str(ZONE), locale="de-DE")
    page = await context.new_page()
    await sign_in(page, BOSS)
    yield page
    await context.close()


def asked(page: Page, name: str) -> str:
    """Return what the URL asks for."""
    return parse_qs(urlsplit(page.url).query).get(name, [""])[0]


def as_typed(at: datetime.datetime, form: str) -> str:
    return at.astimezone(ZONE).strftime(form)


@pytest.mark.parametrize("form", ["%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%m-%d %H:%M:%S"])
async def test_a_moment_is_typed_as_it_is_shown(far: Page, form: str) -> None:
    then = datetime.datetime.now(datetime.UTC).replace(microsecond=0) - datetime.timedelta(minutes=30)
    await far.get_by_label("Moment").fill(as_typed(then, form))
    await far.get_by_label("Moment").press("Enter")
    await far.wait_for_url(re.compile("at="))
    assert asked(far, "at") == f"{then:%Y-%m-%dT%H:%M:%SZ}"
    shown = as_typed(then, "%Y-%m-%d %H:%M:%S")
    await expect(far.locator(".banner").first).to_contain_text(f"As of {shown}")
    await expect(far.get_by_label("Moment")).to_have_value(shown)
    await expect(far.locator("output")).to_have_text(shown)
    assert abs(int(await far.get_by_label("Minutes ago").input_value()) - 30) <= 1
    await expect(far.locator("[data-zone]")).to_contain_text(
        re.compile("Times are of Asia/(Kolkata|Calcutta).")
    )


async def test_other_fields_take_what_is_shown_as_well(far: Page) -> None:
    then = datetime.datetime.now(datetime.UTC).replace(second=0, microsecond=0) - datetime.timedelta(
        minutes=30
    )
    await far.goto("/console/diff")
    await far.get_by_label("From").fill(as_typed(then, "%H:%M"))
    await far.get_by_role("button", name="Compare").click()
    await far.wait_for_url(re.compile("from="))
    assert asked(far, "from") == f"{then:%Y-%m-%dT%H:%M:%SZ}"
    assert asked(far, "until") == "now"
    await expect(far.get_by_role("main")).to_contain_text("2 nodes and ")
    await far.goto("/console/decisions")
    await far.get_by_label("Since").fill(as_typed(then, "%Y-%m-%d"))
    await far.get_by_role("button", name="Filter").click()
    await far.wait_for_url(re.compile("since="))
    day = then.astimezone(ZONE).replace(hour=0, minute=0).astimezone(datetime.UTC)
    assert asked(far, "since") == f"{day:%Y-%m-%dT%H:%M:%SZ}"


@pytest.mark.parametrize(
    "typed",
    ["30m", "0:1", "0:12", "batch:0:1", "now", "25:00", "10:61", "02-30 08:00", "foo", "08:00Z", "2026-02-30",
     "2026-01-31T08:00:00Z", "2026-01-31T08:00:00+01:00", ""],
)  # fmt: skip
async def test_what_says_itself_which_time_it_is_is_sent_as_it_is(far: Page, typed: str) -> None:
    assert await far.evaluate("text => full(text, true)", typed) == typed


async def test_a_clock_time_that_has_not_come_today_was_yesterday(far: Page) -> None:
    now = datetime.datetime.now(ZONE)
    later = now + datetime.timedelta(minutes=2)
    found = datetime.datetime.fromisoformat(await far.evaluate("text => full(text, true)", f"{later:%H:%M}"))
    assert found < now
    assert f"{found.astimezone(ZONE):%H:%M}" == f"{later:%H:%M}"
    assert now - found <= datetime.timedelta(days=1)
