"""Can the console be used against its visitors, or by those who may not see what it shows?"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from domain.model.errors import FieldError
from domain.model.limits import form_bytes_max, session_seconds_max
from services.console import app as console_app
from services.console.health import Health
from services.console.here import Here
from services.console.render import Frame, html_answer
from services.console.session import FORM_COOKIE, SESSION_COOKIE, safe_next
from tests.console.house import OF_ALL, PAGES, Browser, Parsed, console, links_of, strings_replaced
from tests.security.keyed import House, keyed_house

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>{{7*191919}}"
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    async with console() as found:
        yield found


# -------------------------------------------------------------------------------------------- the session


async def test_nobody_sees_anything_without_a_key(house: House) -> None:
    stranger = Browser(house)
    for path in (*PAGES, *OF_ALL):
        page = await stranger.get(path)
        assert page.status_code == 401, path
        assert "API key" in page.text
        for secret in ("low0", "secret-lost", "n1<", "packing"):
            assert secret not in page.text.replace(f"/console/{path}", ""), path
    for path in ("overview.json", "nodes.json", "pods/shop/low0.json"):
        twin = await stranger.get(path)
        assert (twin.status_code, twin.json()["error"]["code"]) == (401, "unauthorized"), path
    assert (await stranger.get("events")).status_code == 401


async def test_a_session_is_a_cookie_that_no_script_reads_and_no_other_site_sends(house: House) -> None:
    browser = Browser(house)
    answer = await browser.sign_in("auditor", "/console/pods?phase=pending")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/pods?phase=pending")
    cookie = next(each for each in answer.headers.get_list("set-cookie") if SESSION_COOKIE in each)
    parts = {each.strip().partition("=")[0].lower(): each.strip() for each in cookie.split(";")}
    assert {"httponly", "samesite", "path", "max-age"} <= parts.keys()
    assert (parts["samesite"], parts["path"]) == ("SameSite=strict", "Path=/console")
    assert "secure" not in parts, "this is no TLS, and the browser would not send it"
    assert browser.session is not None
    assert browser.session not in str(house.database.sessions), "the ledger keeps the hash alone"
    assert "auditor" not in browser.session
    token = await browser.token("")
    secure = await browser.client.post(
        "/console/sign-in", data={"token": token, "key": "auditor"}, headers={"X-Forwarded-Proto": "https"}
    )
    assert "Secure" in secure.headers["set-cookie"]


async def test_a_revoked_key_ends_its_sessions_at_once_here_and_in_other_processes(house: House) -> None:
    browser = Browser(house)
    await browser.sign_in("auditor")
    assert (await browser.get("nodes")).status_code == 200
    async with another_process(house) as other:
        elsewhere = Browser(other)
        elsewhere.client.cookies = browser.client.cookies
        assert (await elsewhere.get("nodes")).status_code == 200
        await house.store.callers.revoke_key("auditor")
        assert (await elsewhere.get("nodes")).status_code == 401
    page = await browser.get("nodes")
    assert page.status_code == 401
    assert browser.session is None, "the browser forgets it"


@contextlib.asynccontextmanager
async def another_process(house: House) -> AsyncIterator[House]:
    """Open a console on the same ledger."""
    async with keyed_house(house.database) as other:
        console_app.install(other.app)
        yield other


async def test_a_session_ends_by_itself_and_by_signing_out(house: House) -> None:
    first, second = Browser(house), Browser(house)
    for each in (first, second):
        await each.sign_in("auditor")
    shown = first.session or ""
    out = await first.send("sign-out", await first.token(""))
    assert out.status_code == 303
    assert first.session is None
    assert (await house.ask(shown, "GET", "/v1/nodes")).status_code == 401, "who kept it has nothing"
    now_ms = house.database.now_ms()
    house.database.now_ms = lambda: now_ms + session_seconds_max * 1000
    assert (await second.get("nodes")).status_code == 401


async def test_a_session_begins_no_other_and_manages_no_more_than_its_key(house: House) -> None:
    browser = Browser(house)
    await browser.sign_in("auditor")
    again = await house.ask(browser.session, "POST", "/v1/sessions", json={})
    assert (again.status_code, again.json()["error"]["code"]) == (403, "forbidden")
    assert (await house.ask(browser.session, "GET", "/v1/keys")).status_code == 403
    assert (await house.ask(browser.session, "DELETE", "/v1/sessions")).status_code == 200
    assert (await house.ask("auditor", "DELETE", "/v1/sessions")).status_code == 404


async def test_who_may_not_read_cannot_sign_in_and_guessing_is_limited(house: House) -> None:
    browser = Browser(house, address="203.0.113.9")
    assert (await browser.sign_in("producer")).status_code == 403
    token = await browser.token()
    statuses = [(await browser.send("sign-in", token, key=f"guess{i}")).status_code for i in range(60)]
    assert statuses[0] == 401
    assert statuses[-1] == 429
    assert browser.session is None
    assert (await Browser(house, address="203.0.113.10").sign_in("auditor")).status_code == 303


async def test_the_api_reads_no_cookie(house: House) -> None:
    browser = Browser(house)
    await browser.sign_in("admin")
    assert (await browser.client.get("/v1/nodes")).status_code == 401
    event = {"type": "DELETED", "object": {"kind": "Node", "metadata": {"name": "n1"}}}
    assert (await browser.client.post("/v1/events", json=event)).status_code == 401


async def test_every_question_of_a_page_is_noted_by_the_key_that_asks(house: House) -> None:
    browser = Browser(house)
    await browser.sign_in("auditor")
    await browser.get("nodes/n1")
    await house.accesses.write()
    noted = [row for row in house.database.accesses.values() if row.caller == "key:auditor"]
    assert {"/v1/nodes/{name}", "/v1/history/nodes/{name}"} <= {row.route for row in noted}
    assert not any("console" in row.route for row in house.database.accesses.values())
    assert not any((browser.session or "") in str(row) for row in noted)


# ---------------------------------------------------------------------------------- forms and other sites


@pytest.mark.parametrize("token", ["", "0" * 64, "ä"])
@pytest.mark.parametrize("target", ["sign-in", "sign-out"])
async def test_a_form_of_another_site_does_nothing(house: House, target: str, token: str) -> None:
    browser = Browser(house)
    await browser.sign_in("auditor")
    session = browser.session
    answer = await browser.send(target, token, key="admin")
    assert answer.status_code == 403
    assert browser.session == session
    assert (await browser.get("nodes")).status_code == 200


async def test_the_token_of_one_visitor_is_of_no_use_to_another(house: House) -> None:
    mine, other = Browser(house), Browser(house)
    token = await mine.token()
    await other.token()
    assert (await other.send("sign-in", token, key="auditor")).status_code == 403
    blank = Browser(house)
    assert (await blank.send("sign-in", token, key="auditor")).status_code == 403
    await mine.sign_in("auditor")
    assert (await mine.send("sign-out", token)).status_code == 403, "the form is from before the session"


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}], ids=str
)
async def test_a_post_from_elsewhere_is_refused_though_it_has_the_token(
    house: House, headers: dict[str, str]
) -> None:
    browser = Browser(house)
    fields = {"token": await browser.token(), "key": "auditor"}
    answer = await browser.client.post("/console/sign-in", data=fields, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign-origin")
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert (await browser.client.post("/console/sign-in", data=fields, headers=own)).status_code == 303


async def test_forms_are_small_and_are_forms(house: House) -> None:
    browser = Browser(house)
    token = await browser.token()
    assert (await browser.send("sign-in", token, key="a" * (form_bytes_max + 1))).status_code == 413
    assert (await browser.client.post("/console/sign-in", json={"token": token})).status_code == 415
    many = "&".join(["a=1"] * 100)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await browser.client.post("/console/sign-in", content=many, headers=headers)).status_code == 422


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/console/", "//evil.example/console/", "/\\evil.example", "/console/../../evil",
        "\\\\evil.example", "javascript:alert(1)", "/console@evil.example", "/v1/pods", "/consolex/", "", "/",
        "/console/\r\nSet-Cookie: a=b", "http:/console/", "/console/%0d%0aX: y\n", "///console/",
        "https:console/",
    ],
)  # fmt: skip
async def test_signing_in_leads_to_a_page_of_the_console_alone(house: House, target: str) -> None:
    browser = Browser(house)
    answer = await browser.sign_in("auditor", target)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/")
    assert safe_next("/console/pods/a/b?at=1h", "/console") == "/console/pods/a/b?at=1h"


async def test_every_page_forbids_frames_foreign_scripts_and_keeping(house: House) -> None:
    browser = Browser(house)
    pages = [await browser.get(path) for path in ("", "sign-in", "nodes")]
    await browser.sign_in("auditor")
    pages += [await browser.get(path) for path in ("", "nodes", "nowhere", "pods/shop/low0", "nodes.json")]
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] in ("same-origin", "no-referrer")
        assert "<script>" not in page.text
        assert " style=" not in page.text


# --------------------------------------------------------------------------------------- what is written


async def test_whatever_the_api_says_is_text_on_each_page(house: House) -> None:
    """Names that no producer may give are tried, too: rules of today need not hold for what is kept."""
    browser = Browser(house)
    await browser.sign_in("admin")
    here = Here("/console", "/x", {"name": HOSTILE}, HOSTILE, "t", NOW)
    who = {"name": HOSTILE, "roles": [HOSTILE], "namespaces": [HOSTILE], "session_until": HOSTILE}
    health = Health.of({"checks": {"database": HOSTILE, HOSTILE: HOSTILE}, "alarms": [HOSTILE]})
    count = 0
    for page in console_app.PAGES:
        example = next((each for each in _twins() if _fits(page.path, each)), None)
        if example is None:
            continue
        answer = await browser.get(example)
        assert answer.status_code == 200, example
        for found in _hostile(answer.json()):
            try:
                view = page.view(found, here)
            except (FieldError, ValueError, KeyError):
                continue  # an amount or an outcome that is none
            text = bytes(html_answer(Frame(view, here, who, health, True, 200)).body).decode()
            parsed = Parsed(text)
            assert parsed.amiss() == [], (example, parsed.amiss())
            assert "img" not in parsed.tags, example
            assert parsed.tags["script"] <= 2 + len(view.scripts), example
            assert "1343433" not in text, "no template in a value is worked out"
            assert not any(each.lower().startswith("javascript:") for each in parsed.links)
            count += 1
    assert count > 15


def _twins() -> list[str]:
    return [
        "overview.json" if not path else f"{path.rstrip('/')}.json"
        for path in (*PAGES, *OF_ALL)
        if "?" not in path
    ]


def _fits(pattern: str, twin: str) -> bool:
    wanted, given = pattern.strip("/").split("/"), twin.removesuffix(".json").split("/")
    wanted = ["overview"] if wanted == [""] else wanted
    return len(wanted) == len(given) and all(
        a == b or a.startswith("{") for a, b in zip(wanted, given, strict=True)
    )


AMOUNTS = ("allocatable", "requested", "free", "requests", "min_resources", "others")


def _hostile(answer: Any) -> list[Any]:
    """Return an answer with hostile texts: everywhere, and everywhere but in amounts."""

    def but_amounts(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: each if name in AMOUNTS else but_amounts(each) for name, each in value.items()}
        if isinstance(value, list):
            return [but_amounts(each) for each in value]
        return HOSTILE if isinstance(value, str) else value

    return [strings_replaced(answer, HOSTILE), but_amounts(answer)]


async def test_what_is_in_the_url_is_text_too(house: House) -> None:
    browser = Browser(house)
    await browser.sign_in("auditor")
    for target in (
        f"nodes?name={quote(HOSTILE)}", f"nodes?at={quote(HOSTILE)}", f"pods/{quote(HOSTILE, safe='')}/x",
        f"{quote(HOSTILE, safe='')}", f"nodes?{quote(HOSTILE)}=1", f"sign-in?next={quote(HOSTILE)}",
        f"find?q={quote(HOSTILE)}", f"nodes?sort={quote(HOSTILE)}", f"nodes?cursor={quote(HOSTILE)}",
        f"workers/{quote(HOSTILE, safe='')}", f"nodes?ago={quote(HOSTILE)}", f"diff?from={quote(HOSTILE)}",
    ):  # fmt: skip
        page = await browser.client.get(f"/console/{target}", follow_redirects=True)
        assert page.status_code in (200, 404, 422), target
        assert "<img" not in page.text, target
        assert "<script>" not in page.text, target


# ------------------------------------------------------------------------------------ who sees what


async def test_a_key_of_one_namespace_sees_nothing_of_others_on_any_page(house: House) -> None:
    browser = Browser(house)
    await browser.sign_in("shop")
    for path in (
        *PAGES,
        *OF_ALL,
        "wrong",
        "decisions?outcome=evicted",
        "decisions?outcome=nominated",
        "diff",
    ):
        for target in (path, _twin(path)):
            page = await browser.get(target)
            if "/bank/" in path:
                assert page.status_code == 404, "whether there is such a pod is not said either"
                continue
            for secret in ("secret-lost", "secret-huge", "bank/first", "example.com/quota"):
                assert secret not in page.text, (target, secret)
    assert (await browser.get("namespaces/bank")).status_code == 403
    assert (await browser.get("pods?namespace=bank")).status_code == 403
    assert (await browser.get("pods/bank/first")).status_code == 404
    assert (await browser.get("audit")).status_code == 403
    assert (await browser.get("pods/shop/low0")).status_code == 200
    evicted = (await browser.get("decisions.json?outcome=evicted")).json()["decisions"]["items"]
    assert evicted
    page = await browser.get(f"decisions/{evicted[0]['id']}")
    assert page.status_code == 200
    assert "bank" not in page.text


def _twin(path: str) -> str:
    path, _, query = path.partition("?")
    return f"{path.rstrip('/') or 'overview'}.json" + (f"?{query}" if query else "")


@pytest.mark.parametrize(
    "path",
    [
        "../v1/keys", "..%2fv1/keys", "%2e%2e/v1/keys", "static/../app.py", "static/%2e%2e/app.py",
        "static/..%2fapp.py", "pods/shop/..", "pods/..%2f..%2fkeys/x", "nodes/%2e%2e", "static//etc/passwd",
    ],
)  # fmt: skip
async def test_a_path_leads_to_no_other_answer_of_the_api(house: House, path: str) -> None:
    browser = Browser(house)
    await browser.sign_in("admin")
    page = await browser.client.get(f"/console/{path}")
    assert page.status_code in (200, 307, 401, 404), path
    assert "created_at" not in page.text
    assert "import annotations" not in page.text


async def test_a_cursor_of_another_list_or_key_shows_no_more(house: House) -> None:
    wide, narrow = Browser(house), Browser(house)
    await wide.sign_in("auditor")
    await narrow.sign_in("shop")
    following = next(each for each in links_of(await wide.get("decisions?limit=2")) if "cursor=" in each)
    assert (await wide.client.get(following)).status_code == 200
    page = await narrow.client.get(following.replace("/decisions?", "/decisions.json?"))
    assert page.status_code == 200
    assert "bank" not in page.text
    assert (await wide.client.get(following.replace("/decisions?", "/nodes?"))).status_code in (200, 422)


# -------------------------------------------------------------------------------- without keys, and proxies


async def test_where_no_key_is_asked_for_forms_have_a_token_all_the_same_and_proxies_stay_out() -> None:
    async with console(keys=False) as house:
        browser = Browser(house)
        page = await browser.get("nodes")
        assert page.status_code == 200
        assert FORM_COOKIE in page.headers["set-cookie"]
        assert "Sign out" not in page.text
        assert (await browser.get("nodes", headers={"X-Forwarded-For": "203.0.113.7"})).status_code == 403
        assert (await browser.send("sign-in", await browser.token(), key="any")).status_code == 404
