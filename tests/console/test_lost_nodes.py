"""Does the console say of pods whose node was deleted that they count nowhere?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from services.console.app import install
from tests.builders import node_manifest, pod_manifest
from tests.console.house import Browser, Parsed
from tests.property.site import Site
from tests.security.keyed import keyed_house

LATER_MS, BETWEEN = 1_700_000_060_000, "2023-11-14T22:14:00Z"


def lossy_site() -> Site:
    """Return a site with two pods on a node that was deleted, and one on a node that is there."""
    site = Site()
    site.tell("ADDED", node_manifest("gone", cpu=2))
    site.tell("ADDED", *(pod_manifest(f"lost-{i}", "shop", cpu=1) for i in range(2)))
    site.tell("ADDED", node_manifest("there", cpu=2))
    site.tell("ADDED", pod_manifest("kept", "shop", cpu=1))
    site.tell("DELETED", node_manifest("gone"), at_ms=LATER_MS)
    return site


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    site = await asyncio.to_thread(lossy_site)
    async with keyed_house(site.database, keys_required=False) as house:
        install(house.app)
        yield Browser(house)


async def text_of(browser: Browser, path: str) -> str:
    page = await browser.get(path)
    assert page.status_code == 200, page.text
    assert Parsed(page.text).amiss() == []
    return page.text


async def test_a_pod_that_lost_its_node_is_not_called_placed(browser: Browser) -> None:
    page = await text_of(browser, "pods/shop/lost-0")
    said = "shop/lost-0 lost its node gone and counts nowhere; it counts there again when a node of that name"
    assert said in page
    assert "is placed on" not in page
    assert "still there" not in page
    assert "Why the other nodes did not take it" not in page, "none was asked"
    assert "shop/kept is placed on there." in await text_of(browser, "pods/shop/kept")


async def test_the_overview_counts_them_apart(browser: Browser) -> None:
    twin = (await browser.get("overview.json")).json()
    assert (twin["totals"]["bound"], twin["totals"]["orphaned"]) == (3, 2)
    page = await text_of(browser, "")
    assert '<a href="/console/pods?phase=bound">1</a>' in page
    assert "and 2 that lost their node" in page


async def test_they_have_a_filter_of_their_own(browser: Browser) -> None:
    page = await text_of(browser, "pods?phase=orphaned")
    assert ("shop/lost-0" in page, "shop/lost-1" in page, "shop/kept" in page) == (True, True, False)
    assert '<option value="orphaned" selected>' in page


async def test_a_deleted_node_offers_nothing(browser: Browser) -> None:
    page = await text_of(browser, "nodes/gone")
    assert "A deleted node offers nothing. Its pods ask for cpu 2 cores, pods 2" in page
    assert "free" not in page
    assert "Requested of what it offers" in await text_of(browser, "nodes/there")


async def test_a_deleted_node_is_found(browser: Browser) -> None:
    assert (await browser.get("find?q=gone")).headers["location"] == "/console/nodes/gone"


async def test_the_changes_name_the_pods_that_lost_their_node(browser: Browser) -> None:
    found = (await browser.get("diff.json", params={"from": BETWEEN})).json()["diff"]
    changed = {(each["name"], each["change"], each["before"], each["after"]) for each in found["pods"]}
    assert changed == {(f"lost-{i}", "orphaned", "gone", None) for i in range(2)}
    other = {"from": BETWEEN, "namespace": "bank"}
    assert (await browser.get("diff.json", params=other)).json()["diff"]["pods"] == []
    page = await text_of(browser, f"diff?from={BETWEEN}")
    assert '<span class="bad">orphaned</span>' in page
    assert "of these, pods that lost their node" in page


async def test_it_was_placed_before_its_node_was_deleted(browser: Browser) -> None:
    """What is asked of a moment is of that moment."""
    client = browser.client
    then = (await client.get("/v1/pods/shop/lost-0/attempts", params={"at": BETWEEN})).json()
    assert then["summary"].endswith("shop/lost-0 was placed on gone.")
    later = (await client.get("/v1/pods/shop/lost-0/attempts", params={"at": "2023-11-14T22:15:00Z"})).json()
    assert "shop/lost-0 had lost its node gone and counted nowhere" in later["summary"]
    totals = (await client.get("/v1/totals", params={"at": BETWEEN})).json()
    assert (totals["bound"], totals["orphaned"]) == (3, 0)
