"""Does a page say of which moment it is, with its date, and show nothing of a later one?"""

from __future__ import annotations

import asyncio
import datetime
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.api.formats import instant
from services.console.app import install
from services.console.blocks import Cell
from services.console.pages_usage import rates
from services.times import moment_ms
from tests.builders import node_manifest, pod_manifest
from tests.console.house import Browser, Parsed, console
from tests.property.site import Site
from tests.security.keyed import keyed_house

AT_MS = 1_700_000_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Return the browser of somebody who sees all."""
    async with console() as house:
        found = Browser(house)
        assert (await found.sign_in("auditor")).status_code == 303
        yield found


async def first_ms(browser: Browser) -> int:
    """Return when the records begin."""
    told = await browser.client.get("/console/overview.json", params={"at": "0:1"})
    return moment_ms("at", told.json()["totals"]["at"])


def banner_of(text: str) -> str:
    """Return what the banner says, without its tags."""
    found = re.search(r'<p class="banner" role="status">(.*?)</p>', text, re.DOTALL)
    assert found is not None
    return " ".join(re.sub(r"<[^>]+>", " ", found[1]).split())


@pytest.mark.parametrize("asked", ["09:32:40", "23:59", "2026-01-31", "2026-01-31T08:00:00+01:00", "90m"])
async def test_a_clock_time_becomes_a_moment_with_its_date(browser: Browser, asked: str) -> None:
    """Tomorrow the same clock time would be another moment."""
    moved = await browser.get("nodes", params={"at": asked})
    assert moved.status_code == 303
    at = re.search(r"at=([^&]+)$", moved.headers["location"])
    assert at is not None
    text = at[1].replace("%3A", ":")
    assert text.endswith("Z")
    assert abs(moment_ms("at", text) - moment_ms("at", asked)) < 10_000
    page = await browser.client.get(moved.headers["location"])
    assert f'<time datetime="{instant(moment_ms("at", text))}">' in page.text


async def test_a_batch_is_shown_with_its_time(browser: Browser) -> None:
    for path in ("", "nodes", "decisions", "namespaces/shop"):
        page = await browser.get(path, params={"at": "0:1"})
        assert page.status_code == 200, page.text
        says = f"As of {instant(await first_ms(browser))} , batch 0:1."
        assert banner_of(page.text).startswith(says)


async def test_before_all_records_a_page_says_when_they_begin(browser: Browser) -> None:
    for path in ("", "nodes", "pending", "gangs"):
        page = await browser.get(path, params={"at": "2001-01-01T00:00:00Z"})
        begins = f"That is before all records: they begin at {instant(await first_ms(browser))} ."
        assert begins in banner_of(page.text)
        assert Parsed(page.text).amiss() == []
        for untrue in ("There are no", "Nothing waits."):
            assert untrue not in page.text, path
    later = await browser.get("nodes", params={"at": instant(await first_ms(browser))})
    assert "before all records" not in later.text


async def test_what_is_no_moment_is_not_called_one(browser: Browser) -> None:
    for asked in ("foo", "25:00"):
        page = await browser.get("nodes", params={"at": asked})
        assert page.status_code == 422
        assert "As of" not in page.text
        assert banner_of(page.text).startswith(f"The moment {asked} was asked for.")


async def test_the_slider_stands_where_the_moment_is(browser: Browser) -> None:
    at = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=40)
    page = await browser.get("nodes", params={"at": f"{at:%Y-%m-%dT%H:%M:%SZ}"})
    (slider,) = (each for each in Parsed(page.text).inputs if each.get("type") == "range")
    assert slider["value"] == "40"
    assert "40 min ago</output>" in page.text
    assert "now</output>" in (await browser.get("nodes")).text


def told_by_the_minute() -> Site:
    """Return a site with a node, a pod a minute later, and another a minute after that."""
    site = Site()
    site.tell("ADDED", node_manifest("n1", cpu=4), at_ms=AT_MS)
    for minutes, name in ((1, "a"), (2, "b")):
        site.tell("ADDED", pod_manifest(name, "shop", cpu=1), at_ms=AT_MS + minutes * 60_000)
    return site


async def test_a_story_ends_at_the_moment() -> None:
    site = await asyncio.to_thread(told_by_the_minute)
    async with keyed_house(site.database, keys_required=False) as house:
        install(house.app)
        visitor = Browser(house)
        for seconds, count in ((0, 1), (60, 2), (90, 2), (120, 3)):
            at = {"at": instant(AT_MS + seconds * 1000)}
            page = await visitor.get("nodes/n1", params=at)
            assert "The story ends at the moment that is chosen." in page.text
            items = (await visitor.get("nodes/n1.json", params=at)).json()["history"]["items"]
            assert len(items) == count, seconds
        a_pod = (await visitor.get("pods/shop/a.json", params={"at": instant(AT_MS + 90_000)})).json()
        assert a_pod["history"]["why_now"] is None, "that is of now"
        assert "The story ends" not in (await visitor.get("nodes/n1")).text


async def test_a_comparison_says_what_it_compares(browser: Browser) -> None:
    asked = {"from": "0:1", "at": instant(await first_ms(browser))}
    page = await browser.get("diff", params=asked)
    assert "what is now" not in page.text
    assert "This page shows what differs between two moments of its own." in banner_of(page.text)
    assert "each the last at or before what was asked for" in page.text
    found = (await browser.get("diff.json", params=asked)).json()["diff"]
    assert found["after"]["pending"] > found["before"]["pending"]
    assert f">+{found['after']['pending'] - found['before']['pending']}<" in page.text
    all_of_it = await browser.get("diff", params={"from": "2001-01-01"})
    assert "none: this is before all records" in all_of_it.text


async def test_what_is_short_is_told_in_short_steps(browser: Browser) -> None:
    since = "2000-01-01"
    assert (await browser.get("usage.json", params={"since": since})).json()["usage"]["step_minutes"] == 5
    whole = await browser.get("usage.json", params={"since": since, "step": "1h"})
    assert whole.json()["usage"]["step_minutes"] == 60


def test_a_rate_says_of_how_many_and_over_how_long() -> None:
    items = [{"decisions": {"bound": 100, "evicted": 41}}]
    usage = {"since": "2026-01-31T08:00:00.000Z", "step_minutes": 20, "items": items}
    facts = rates(usage, datetime.datetime(2026, 1, 31, 8, 14, tzinfo=datetime.UTC))
    assert facts.title == "Decided in the last 14 minutes"
    name, said = facts.items[0]
    assert (name, said) == ("Decisions", Cell("141: 0.168 a second"))
