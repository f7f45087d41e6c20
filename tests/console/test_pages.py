"""Does each page say what there is, also without script and for a screen reader?"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator

import httpx
import orjson
import pytest
import pytest_asyncio

from domain.model.errors import Unavailable
from services.api.formats import instant
from services.ports.past import OutOfReach
from services.times import moment_ms
from tests.console.house import OF_ALL, PAGES, Browser, Parsed, console, links_of
from tests.security.keyed import House


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def house() -> AsyncIterator[House]:
    async with console() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser(house: House) -> Browser:
    """Return the browser of somebody who sees all."""
    found = Browser(house)
    assert (await found.sign_in("auditor")).status_code == 303
    return found


@pytest.mark.parametrize("path", [*PAGES, *OF_ALL])
async def test_a_page_is_sound_html_with_a_label_for_each_input(browser: Browser, path: str) -> None:
    page = await browser.get(path)
    assert page.status_code == 200, page.text
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert Parsed(page.text).amiss() == []


async def test_all_links_of_all_pages_lead_somewhere(browser: Browser) -> None:
    seen, todo = set[str](), [f"/console/{each}" for each in (*PAGES, *OF_ALL)]
    while todo and len(seen) < 600:
        path = todo.pop(0)
        if (
            path in seen
            or path.startswith("/console/audit/ledger")
            or path.partition("?")[0].endswith("/why")
        ):
            continue
        seen.add(path)
        answer = await browser.client.get(path, follow_redirects=True)
        assert answer.status_code < 400, (path, answer.text)
        if answer.headers["content-type"].startswith("text/html") and path.startswith("/console"):
            todo += links_of(answer)
    assert len(seen) > 150


async def test_a_page_loads_what_is_there_and_of_this_host_alone(browser: Browser) -> None:
    for link in Parsed((await browser.get("")).text).loads:
        assert link.startswith("/console/static/"), link
        loaded = await browser.client.get(link)
        assert (loaded.status_code, "max-age" in loaded.headers["cache-control"]) == (200, True), link
        assert "//" not in loaded.text.replace("http://www.w3.org/2000/svg", "").replace("// ", ""), link


@pytest.mark.parametrize("path", [each for each in (*PAGES, *OF_ALL) if each != "try"])
async def test_each_page_has_the_data_that_it_was_made_of(browser: Browser, path: str) -> None:
    page = await browser.get(path)
    twin = [*links_of(page)][-1]
    assert twin.partition("?")[0].endswith(".json")
    answer = await browser.client.get(twin)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), twin
    assert orjson.loads(answer.content)


async def test_a_moment_is_kept_in_all_links(browser: Browser) -> None:
    at = "2030-01-01T00:00:00Z"
    for path in ("nodes", "nodes/n1", "pods/shop/low0", "decisions", ""):
        page = await browser.get(path, params={"at": at})
        assert page.status_code == 200, page.text
        assert "Back to now" in page.text
        without = {each for each in links_of(page) if each.startswith("/console/") and "at=2030" not in each}
        assert without <= {f"/console/{path}", "/console/wrong", "/console/?"}, without
        assert "live.js" not in page.text, "what is past does not change"


async def test_the_slider_and_an_age_become_a_moment_that_stays(browser: Browser) -> None:
    for asked in ("nodes?ago=90&name=n", "nodes?at=1h30m&name=n"):
        moved = await browser.get(asked)
        assert moved.status_code == 303
        assert "name=n" in moved.headers["location"]
        assert moved.headers["location"].endswith("Z"), moved.headers["location"]
    assert (await browser.get("nodes?ago=0&at=1h")).headers["location"] == "/console/nodes"
    assert (await browser.get("nodes?at=now")).headers["location"] == "/console/nodes"


async def test_lists_filter_sort_and_page_by_the_url(browser: Browser) -> None:
    first = await browser.get("pods?limit=2")
    following = next(each for each in links_of(first) if "cursor=" in each)
    second = await browser.client.get(following)
    assert second.status_code == 200
    assert "First page" in second.text
    up, down = [(await browser.get(f"nodes?sort={order}name")).text for order in ("", "-")]
    assert up.index(">n1<") < up.index(">n4<")
    assert down.index(">n1<") > down.index(">n4<")
    assert 'aria-sort="descending"' in down
    assert (await browser.get("nodes?nmae=x")).status_code == 422


async def test_an_object_whose_name_looks_like_a_twin_has_both(browser: Browser) -> None:
    page = await browser.get("nodes/n3.json/")
    assert "Node n3.json" in page.text
    assert (await browser.get("nodes/n3.json.json")).json()["node"]["name"] == "n3.json"
    assert "/console/nodes/n3.json/" in [*links_of(await browser.get("nodes"))]


async def test_a_decision_shows_bars_a_funnel_and_who_leaves_for_whom(browser: Browser) -> None:
    evicted = (await browser.get("decisions.json?outcome=evicted")).json()["decisions"]["items"]
    assert evicted
    page = await browser.get(f"decisions/{evicted[0]['id']}")
    assert "It was to leave for bank/first." in page.text
    nominated = await browser.get(f"decisions/{evicted[0]['preemption']['nominated']}")
    assert "The pods that were to leave for it" in nominated.text
    bound = (await browser.get("decisions.json?outcome=bound")).json()["decisions"]["items"]
    page = await browser.get(f"decisions/{bound[0]['id']}")
    assert "The best nodes, by plugin" in page.text
    assert '<rect x="0.000%"' in page.text
    assert "Why the other nodes did not take it" in page.text


async def test_a_pod_that_waits_says_why_and_tells_its_story(browser: Browser) -> None:
    page = (await browser.get("pods/bank/secret-lost")).text
    assert "no profile nowhere exists" in page
    assert "What happened to it" in page
    assert 'data-later="/console/pods/bank/secret-lost/why"' in page


async def test_waiting_is_counted_to_now_or_to_the_moment(browser: Browser) -> None:
    """The log stands still here since long: what waits does so until now, on all pages alike."""
    groups = (await browser.get("pending.json")).json()["pending"]["items"]
    first = (await browser.get("overview.json")).json()["pending"]["items"][0]
    alone = (await browser.get(f"pending/{first['shard']}/{first['signature']}.json")).json()["group"]
    since_ms = moment_ms("since", first["since"])
    waits = [each["waits_seconds"] for each in (*groups, first, alone) if each["since"] == first["since"]]
    assert len(waits) >= 3
    assert all(abs(time.time() - since_ms / 1000 - each) < 60 for each in waits), waits
    for count in (90, 7_000):
        at = instant(since_ms + count * 1000)
        then = (await browser.get("overview.json", params={"at": at})).json()["pending"]["items"][0]
        assert then["waits_seconds"] == count


async def test_what_is_wrong_is_said_with_the_remedy(browser: Browser) -> None:
    page = (await browser.get("wrong")).text
    assert "Workers are missing" in page
    assert "berth worker" in page
    assert "Without an owner" in (await browser.get("shards")).text


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("pods/shop/nobody", 404, "There is no such thing"),
        ("nowhere/at/all", 404, "There is no such thing"),
        ("nodes?at=never", 422, "This is not understood"),
        ("nodes?at=999999999w", 422, "This is not understood"),
        ("decisions/xyz", 422, "This is not understood"),
        ("pods?cursor=abc", 422, "This is not understood"),
        ("nodes?limit=0", 422, "This is not understood"),
        ("nodes?name=%00", 422, "This is not understood"),
    ],
)
async def test_errors_are_pages_too(browser: Browser, path: str, status: int, says: str) -> None:
    page = await browser.get(path)
    assert page.status_code == status
    assert says in page.text
    assert Parsed(page.text).amiss() == []


async def test_each_cell_names_its_column_for_narrow_screens(browser: Browser) -> None:
    page = (await browser.get("decisions?outcome=evicted")).text
    assert len(re.findall(r'<td role="cell" data-label="Leaves for">', page)) > 0
    assert re.search(r'data-label="Score" class="number nothing"', page)


async def test_the_picture_of_a_groups_nodes_has_a_text(browser: Browser) -> None:
    page = (await browser.get("field?by=-")).text
    assert re.search(r'role="img" aria-label="[^"]*\d+ nodes? at \d+ to \d+ %', page)


async def test_who_looks_for_something_is_led_there(browser: Browser) -> None:
    wanted = {"shop/low0": "pods/shop/low0", "0-1": "decisions/0-1", "n1": "nodes/n1"}
    wanted |= {"low0": "pods/shop/low0", "n3.": "nodes/n3.json/", "": ""}
    for text, path in wanted.items():
        assert (await browser.get("find", params={"q": text})).headers["location"] == f"/console/{path}"


async def test_who_looks_for_a_part_of_a_name_sees_what_is_named_so(browser: Browser) -> None:
    for text, names in {
        "shop": ("shop/low", "shop/crew", "Namespace shop"),
        "shop/cr": ("shop/crew0", "shop/crew1"),
        "web": ("shop/low",),
        "n": (">n1<", ">n4<"),
        "none/such": ("Nothing is named so",),
        "0-999999": ("Nothing is named so",),
    }.items():
        page = await browser.get("find", params={"q": text})
        assert page.status_code == 200, text
        assert not [name for name in names if name not in page.text], text
        assert f'value="{text}"' in page.text
        assert "Looked for: a decision" in page.text
        assert Parsed(page.text).amiss() == []
        twin = await browser.client.get([*links_of(page)][-1])
        assert set(twin.json()) >= {"nodes", "pods"}


async def test_who_looks_for_something_unsigned_is_asked_to_sign_in(house: House) -> None:
    assert (await Browser(house).get("find?q=n1")).status_code == 401


async def test_browsers_are_led_to_the_console_and_programs_to_the_list(browser: Browser) -> None:
    led = await browser.client.get("/")
    assert (led.status_code, led.headers["location"]) == (307, "/console/")
    assert "links" in (await browser.client.get("/", headers={"Accept": "application/json"})).json()
    assert (await browser.client.get("/console")).headers["location"] == "/console/"


# ------------------------------------------------------------------------------------------- what is away


async def test_an_api_without_its_database_says_so_on_each_page(
    house: House, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> object:
        raise Unavailable("the database does not answer")

    monkeypatch.setattr(house.store.callers, "session", away)
    for path in ("", "nodes", "pods/shop/low0"):
        page = await browser.get(path)
        assert page.status_code == 503
        assert "The API cannot answer now" in page.text
        assert "the database does not answer" in page.text
        assert Parsed(page.text).amiss() == []
    monkeypatch.undo()
    assert (await browser.get("nodes")).status_code == 200


async def test_a_moment_out_of_reach_is_said_with_the_way_back(
    house: House, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pruned(*_: object) -> object:
        raise OutOfReach("the past is kept from 2030-01-01 on")

    monkeypatch.setattr(type(house.store.past), "moment", pruned)
    page = await browser.get("nodes?at=2020-01-01T00:00:00Z")
    assert page.status_code == 410
    assert "That moment is out of reach" in page.text
    assert "/console/nodes" in [*links_of(page)], "this page as it is now"


async def test_the_stream_passes_through_and_goes_on_where_it_was(house: House, browser: Browser) -> None:
    answer = await browser.get("events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "retry:" in answer.text
    behind = next(line[4:] for line in answer.text.splitlines() if line.startswith("id: "))
    again = await browser.get("events", headers={"Last-Event-ID": behind})
    assert again.status_code == 200
    assert (await browser.get("events", headers={"Last-Event-ID": "nonsense"})).status_code == 422


async def test_links_are_right_behind_a_prefix(house: House) -> None:
    """Some proxies serve the API below a path of theirs, and say so as the root path."""
    transport = httpx.ASGITransport(house.app, root_path="/sched")
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = await client.get("/sched/console/nodes?name=n")
        assert page.status_code == 401
        found = Parsed(page.text)
        there = [each for each in (*found.links, *found.loads) if not each.startswith("/sched/console/")]
        assert there == ["#content"]
        token = re.search(r'name="token" value="([0-9a-f]+)"', page.text)
        assert token is not None
        target = "/sched/console/nodes?name=n"
        fields = {"token": token[1], "key": "auditor", "next": target}
        answer = await client.post("/sched/console/sign-in", data=fields)
        assert (answer.status_code, answer.headers["location"]) == (303, target)
        assert "Path=/sched/console" in answer.headers["set-cookie"]
        page = await client.get(target)
        assert page.status_code == 200
        assert "/sched/console/nodes/n1" in Parsed(page.text).links
        assert (await client.get("/sched/")).headers["location"] == "/sched/console/"
