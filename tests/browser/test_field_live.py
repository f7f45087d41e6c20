"""Does the field follow what happens: seldom enough, to the end, through faults, and without growth?"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest_asyncio
from playwright.async_api import Page, Request, Route, expect

from tests.browser.site import BOSS
from tests.browser.walking import drawn, sign_in

REFRESHES = 150
GROWTH_BYTES_MAX = 1_000_000
_CHANGED = "document.dispatchEvent(new CustomEvent('berth:changed'))"


class Answers:
    """Stands for the API: answers with as many nodes as it is told, and counts how often it was asked."""

    def __init__(self) -> None:
        self.nodes_count, self.asked_count = 3, 0
        self.retry_after: str | None = None
        self.is_away = False
        self.conditions: list[str | None] = []

    async def answer(self, route: Route, request: Request) -> None:
        """Answer a question for the field."""
        self.asked_count += 1
        self.conditions.append(request.headers.get("if-none-match"))
        if self.is_away:
            await route.abort()
            return
        headers = {"ETag": f'W/"{self.nodes_count}"', "Content-Type": "application/json"}
        if self.retry_after is not None:
            headers["Retry-After"] = self.retry_after
        count = self.nodes_count
        amounts = {"allocatable": [8] * count, "requested": [count % 8] * count}
        body: dict[str, Any] = {
            "at": None,
            "by": None,
            "groups": [{"value": None, "nodes": count}],
            "names": [f"n{at}" for at in range(count)],
            "resources": [{"name": "cpu", **amounts, "measured": None}],
            "unschedulable": [],
            "not_ready": [0],
            "tainted": [],
            "hot": None,
        }
        if self.conditions[-1] == headers["ETag"]:
            await route.fulfill(status=304, headers=headers)
        else:
            await route.fulfill(status=200, headers=headers, body=msgspec.json.encode(body))


@pytest_asyncio.fixture
async def answers(page: Page) -> AsyncIterator[Answers]:
    """Show an overview whose field comes from a stand-in, on a clock that stands still."""
    found = Answers()
    await page.route("**/data/field*", found.answer)
    await page.route("**/console/events", lambda route: route.abort())
    await page.clock.install()
    await sign_in(page, BOSS, "field")
    await drawn(page, 3)
    await page.clock.pause_at(datetime.datetime.now() + datetime.timedelta(minutes=1))
    yield found


async def told(page: Page) -> None:
    """Let what was asked be answered: that takes no time of the page's own clock."""
    await page.evaluate("fetch('/console/static/field.css').then((each) => each.text())")
    await asyncio.sleep(0.1)


async def test_many_changes_are_one_question_in_two_seconds(page: Page, answers: Answers) -> None:
    before = answers.asked_count
    answers.nodes_count = 4
    for _ in range(5):
        await page.evaluate(_CHANGED)
    await page.clock.run_for(10)
    await drawn(page, 4)
    assert answers.asked_count == before + 1
    answers.nodes_count = 5
    for _ in range(19):
        await page.evaluate(_CHANGED)
        await page.clock.run_for(100)
        await told(page) if answers.asked_count > before + 1 else None
    assert answers.asked_count == before + 1
    await page.clock.run_for(200)
    await drawn(page, 5)
    assert answers.asked_count == before + 2


async def test_nothing_new_costs_no_answer(page: Page, answers: Answers) -> None:
    await page.evaluate(_CHANGED)
    await page.clock.run_for(10)
    await told(page)
    assert answers.conditions[-1] == 'W/"3"'
    await page.clock.run_for(60_000)
    await told(page)
    assert answers.asked_count == 2, "who is told that nothing is new asks when something happens"


async def test_who_was_given_an_old_answer_asks_once_more(page: Page, answers: Answers) -> None:
    answers.retry_after = "7"
    await page.evaluate(_CHANGED)
    await page.clock.run_for(10)
    await told(page)
    answers.retry_after, answers.nodes_count = None, 6
    await page.clock.run_for(6_900)
    await told(page)
    assert answers.asked_count == 2
    await page.clock.run_for(200)
    await drawn(page, 6)
    await page.clock.run_for(60_000)
    await told(page)
    assert answers.asked_count == 3


async def test_while_the_api_is_away_the_field_stays_and_says_so(page: Page, answers: Answers) -> None:
    answers.is_away = True
    await page.evaluate(_CHANGED)
    await page.clock.run_for(10)
    state = page.locator(".field-state")
    await expect(state).to_contain_text("what is shown may be old")
    await drawn(page, 3)
    answers.is_away, answers.nodes_count = False, 8
    await page.clock.run_for(5_000)
    await drawn(page, 8)
    await expect(state).to_be_hidden()


async def test_refreshes_leave_nothing_behind(page: Page, answers: Answers) -> None:
    tools = await page.context.new_cdp_session(page)
    await tools.send("Performance.enable")
    answers.nodes_count = 2_000
    sizes = []
    for number in range(REFRESHES + 1):
        answers.nodes_count += 1 if number % 2 else -1
        await page.clock.fast_forward(60_000)
        await page.evaluate(_CHANGED)
        await page.clock.run_for(10)
        await drawn(page, answers.nodes_count)
        if number in (REFRESHES // 3, REFRESHES):
            await tools.send("HeapProfiler.collectGarbage")
            found = await tools.send("Performance.getMetrics")
            sizes.append({each["name"]: each["value"] for each in found["metrics"]})
    first, last = sizes
    assert last["JSHeapUsedSize"] - first["JSHeapUsedSize"] < GROWTH_BYTES_MAX
    assert last["Nodes"] <= first["Nodes"] + 50
    assert last["JSEventListeners"] <= first["JSEventListeners"]
