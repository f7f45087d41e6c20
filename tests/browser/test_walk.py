"""Does the console answer whoever looks at it in a browser: from signing in to a plan?"""

from __future__ import annotations

import re

from playwright.async_api import Browser, Page, expect

from tests.browser.site import BOSS, SECRET, TEAM, Site
from tests.browser.walking import NARROW, drawn, overflow, sign_in

NODES = 6
PLANNED = """
kind: List
items:
- kind: Pod
  metadata: {name: fits, namespace: shop}
  spec: {containers: [{name: main, resources: {requests: {cpu: 500m}}}]}
- kind: Pod
  metadata: {name: huge, namespace: shop}
  spec: {containers: [{name: main, resources: {requests: {cpu: 99}}}]}
"""


async def test_without_a_key_nothing_is_shown(page: Page) -> None:
    answer = await page.goto("/console/")
    assert answer is not None
    assert answer.status == 401
    await expect(page.get_by_label("API key")).to_be_visible()
    assert "n1" not in await page.content()
    await page.get_by_label("API key").fill("no key of ours")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("main")).to_contain_text("This did not work")


async def test_a_pod_that_waits_is_found_and_its_cure_read(page: Page) -> None:
    await sign_in(page, BOSS)
    await page.get_by_label("Find", exact=True).fill("shop/huge-0")
    await page.get_by_role("button", name="Go").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("shop/huge-0")
    main = page.get_by_role("main")
    await expect(main).to_contain_text("pending")
    await expect(main).to_contain_text("lack cpu")
    cures = page.get_by_role("table", name="Cures")
    link = page.get_by_role("link", name="what would cure it").first
    await expect(cures.or_(link).first).to_be_visible(timeout=30_000)
    # The page puts the cures in the place of the link by itself.
    await expect(cures.first).to_contain_text("tolerate dedicated=db:NoSchedule", timeout=60_000)


async def test_the_slider_goes_to_the_past_and_the_field_with_it(page: Page) -> None:
    await sign_in(page, BOSS)
    await drawn(page, NODES)
    slider = page.get_by_label("Minutes ago")
    await slider.fill("30")
    await page.wait_for_url(re.compile("at="))
    await drawn(page, 4)
    await expect(page.locator(".banner").first).to_contain_text("As of")
    await page.get_by_role("link", name="Back to now").click()
    await drawn(page, NODES)


async def test_squares_are_reached_by_mouse_and_keys(page: Page) -> None:
    await sign_in(page, BOSS)
    field = await drawn(page, NODES)
    squares = field.locator("canvas")
    said, tip = field.locator(".field-said"), field.locator(".field-tip")
    await squares.focus()
    await expect(said).to_contain_text("n0, a, cpu: ")
    for key, name in (
        *(("ArrowRight", "n2"), ("ArrowRight", "n1"), ("ArrowDown", "n4"), ("End", "n5")),
        *(("PageUp", "n1"), ("Home", "n0")),
    ):
        await page.keyboard.press(key)
        await expect(said).to_contain_text(re.compile(f"^{name}, "))
    await page.keyboard.press("Escape")
    await expect(tip).to_be_hidden()
    await squares.hover(position={"x": 30, "y": 32})
    await expect(tip).to_contain_text("n2")
    await squares.focus()
    await page.keyboard.press("End")
    await expect(said).to_contain_text("takes no new pods")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/console/nodes/n5")
    await page.go_back()
    field = await drawn(page, NODES)
    await field.locator("canvas").click(position={"x": 8, "y": 32})
    await page.wait_for_url("**/console/nodes/n0")


async def test_the_field_is_coloured_and_grouped_as_chosen(page: Page) -> None:
    await sign_in(page, BOSS)
    field = await drawn(page, NODES)
    await field.get_by_text("The same as a table").click()
    table = field.get_by_role("table")
    await expect(table.get_by_role("columnheader").nth(2)).to_have_text("Mean of asked cpu")
    await expect(table.get_by_role("rowheader")).to_have_text(["a", "b", "c"])
    before = await page.evaluate("document.querySelector('#node-field canvas').toDataURL()")
    await page.get_by_label("Coloured by").select_option("memory")
    await expect(table.get_by_role("columnheader").nth(2)).to_have_text("Mean of asked memory")
    assert await page.evaluate("document.querySelector('#node-field canvas').toDataURL()") != before
    await page.get_by_label("Grouped by label").fill("")
    await page.get_by_label("Grouped by label").blur()
    await expect(table.get_by_role("rowheader")).to_have_text(["all nodes"])
    await expect(page).to_have_url(re.compile("colour=memory&by=-"))
    await page.reload()
    await drawn(page, NODES)
    await expect(page.get_by_label("Coloured by")).to_have_value("memory")
    await expect(page.get_by_label("Grouped by label")).to_have_value("")


async def test_what_happens_is_seen_without_loading_anew(page: Page, site: Site) -> None:
    await sign_in(page, BOSS)
    await drawn(page, NODES)
    await site.add_node("late-0")
    await drawn(page, NODES + 1)
    await site.remove_node("late-0")
    await drawn(page, NODES)


async def test_a_manifest_is_planned_and_nothing_is_written(page: Page, site: Site) -> None:
    await sign_in(page, BOSS, "try")
    await page.get_by_label("Manifests").fill(PLANNED)
    await page.get_by_role("button", name="Plan").click()
    main = page.get_by_role("main")
    await expect(main).to_contain_text("shop/fits", timeout=60_000)
    await expect(main).to_contain_text("shop/huge")
    await expect(main).to_contain_text("lack cpu")
    pods = (await site.client.get("/v1/pods", params={"namespace": "shop", "limit": 1000})).json()["items"]
    assert not {"fits", "huge"} & {pod["name"] for pod in pods}


async def test_a_key_of_one_namespace_sees_nothing_of_others(page: Page) -> None:
    await sign_in(page, TEAM)
    await drawn(page, NODES)
    paths = (
        *("", "nodes", "nodes/n0", "pods", "pending", "decisions", "gangs", "diff?from=2h", "shards"),
        *("workers", "field", "profiles", f"find?q={SECRET}", "wrong", "api"),
    )
    for path in paths:
        await page.goto(f"/console/{path}")
        text = await page.get_by_role("main").inner_text() + await page.title()
        assert SECRET not in text, path
    answer = await page.goto(f"/console/pods/{SECRET}/{SECRET}-0")
    assert answer is not None
    assert answer.status in (403, 404)
    await page.goto("/console/pods/shop/web-0")
    await expect(page.get_by_role("main")).to_contain_text("web-0")


async def test_without_a_script_everything_is_read(browser: Browser, site: Site) -> None:
    context = await browser.new_context(base_url=site.url, java_script_enabled=False)
    page = await context.new_page()
    await sign_in(page, BOSS)
    squares = page.locator("#node-field svg a")
    await expect(squares).to_have_count(NODES)
    await expect(squares.first).to_have_attribute("aria-label", re.compile(r"^n0: asked cpu \d"))
    table = page.get_by_role("table", name="Groups of nodes")
    await expect(table.get_by_role("rowheader")).to_have_text(["a", "b", "c"])
    await page.get_by_label("Coloured by").select_option("memory")
    await page.locator("#node-field").get_by_role("button", name="Show").click()
    await expect(page.get_by_role("table", name="Groups of nodes, by asked memory")).to_be_visible()
    await page.get_by_label("Moment").fill("30m")
    await page.get_by_role("button", name="Show", exact=True).first.click()
    await expect(page.locator("#node-field svg a")).to_have_count(4)
    await page.locator("#node-field svg a").first.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("n0")
    await context.close()


async def test_on_a_phone_nothing_is_cut_off(browser: Browser, site: Site) -> None:
    context = await browser.new_context(base_url=site.url, viewport=NARROW, has_touch=True, is_mobile=True)
    page = await context.new_page()
    await sign_in(page, BOSS)
    for path in (
        "",
        "field",
        "nodes",
        "pods",
        "pending",
        "decisions",
        "pods/shop/huge-0",
        "nodes/n0",
        "shards",
    ):
        await page.goto(f"/console/{path}")
        assert await overflow(page) <= 0, path
    await page.goto("/console/")
    field = await drawn(page, NODES)
    await field.locator("canvas").tap(position={"x": 8, "y": 32})
    await page.wait_for_url("**/console/nodes/n0")
    await context.close()


async def test_a_session_that_was_ended_shows_nothing_more(page: Page) -> None:
    await sign_in(page, BOSS)
    await drawn(page, NODES)
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("API key")).to_be_visible()
    answer = await page.goto("/console/data/field")
    assert answer is not None
    assert answer.status == 401
