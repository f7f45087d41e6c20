"""Does the console say who leaves for whom, and which evictions were taken back?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from services.console.app import install
from tests.builders import Json, node_manifest, pod_manifest
from tests.console.house import Browser, Parsed
from tests.property.site import Site
from tests.security.keyed import keyed_house

LATER_MS = 1_700_000_005_000


def evicting_site() -> Site:
    """Return a site where one pod leaves for `web`, and another was to leave for `late`, which is gone."""
    site = Site(preempts=True)
    site.tell("ADDED", node_manifest("n1", cpu=4), node_manifest("n2", cpu=4))
    site.tell("ADDED", *(pod_manifest(f"low{i}", "shop", cpu=4, priority=0) for i in range(2)))
    site.tell("ADDED", pod_manifest("web", "bank", cpu=4, priority=10))
    site.tell("ADDED", pod_manifest("late", "bank", cpu=4, priority=9))
    site.tell("DELETED", pod_manifest("late", "bank"), at_ms=LATER_MS)
    return site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    site = await asyncio.to_thread(evicting_site)
    async with keyed_house(site.database, keys_required=False) as house:
        install(house.app)
        yield Browser(house)


async def text_of(browser: Browser, path: str) -> str:
    page = await browser.get(path)
    assert page.status_code == 200, page.text
    assert Parsed(page.text).amiss() == []
    return page.text


async def decided(browser: Browser, outcome: str, pod: str = "") -> Json:
    found: Json = (await browser.get("decisions.json", params={"outcome": outcome, "pod": pod})).json()
    (one,) = found["decisions"]["items"]
    return dict(one)


async def test_an_eviction_names_the_pod_that_it_is_for(browser: Browser) -> None:
    page = await text_of(browser, "decisions?outcome=evicted")
    assert '<a href="/console/pods/bank/web">bank/web</a>' in page
    assert '<a href="/console/pods/bank/late">bank/late</a>' in page
    assert "see 0-" not in page
    assert "bank/web" in await text_of(browser, "")


async def test_an_eviction_that_was_taken_back_is_marked(browser: Browser) -> None:
    spared = await decided(browser, "spared")
    found = (await browser.get("decisions.json?outcome=evicted")).json()
    (back,) = found["leaving"]["spared"].values()
    assert back["id"] == spared["id"]
    page = await text_of(browser, "decisions?outcome=evicted")
    assert page.count(">taken back<") == 1
    assert f'href="/console/decisions/{spared["id"]}"' in page


async def test_a_decision_is_of_its_time_and_says_what_came_of_it(browser: Browser) -> None:
    late = await decided(browser, "nominated", "bank/late")
    cleared = await decided(browser, "cleared")
    page = await text_of(browser, f"decisions/{late['id']}")
    assert f"At {late['decided_at']}: bank/late waits for {late['node']}" in page
    assert "came the next decision about the pod: cleared" in page
    assert f'href="/console/decisions/{cleared["id"]}"' in page
    last = await decided(browser, "released")
    assert "What came of it" not in await text_of(browser, f"decisions/{last['id']}")


async def test_a_nomination_says_the_rule_and_reasons_in_words(browser: Browser) -> None:
    web = await decided(browser, "nominated", "bank/web")
    page = await text_of(browser, f"decisions/{web['id']}")
    assert "the fewest victims violate a disruption budget" in page
    assert "says what is best" not in page
    assert "of 2 nodes, 2 lack cpu" in page
    assert "insufficient:cpu;" not in page
    assert "0/2 nodes" not in page


async def test_a_tie_is_said(browser: Browser) -> None:
    first = await decided(browser, "bound", "shop/low0")
    page = await text_of(browser, f"decisions/{first['id']}")
    said = "2 of the best nodes have this score; of equals one is drawn by a hash of its name and the seed."
    assert page.count(said) == 2, "in the sentences, and at the bars"
    nominated = await decided(browser, "nominated", "bank/web")
    assert "of equals one is drawn" not in await text_of(browser, f"decisions/{nominated['id']}")


async def test_who_waits_is_not_shown_as_well(browser: Browser) -> None:
    page = await text_of(browser, "decisions")
    for outcome in ("nominated", "cleared", "evicted"):
        assert f'<span class="bad">{outcome}</span>' in page
    assert '<span class="good">bound</span>' in page
