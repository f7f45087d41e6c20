"""Does the API refuse what web pages, proxies, invented names and clients that never finish send?"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from tests.security.running import api, laid_down

NODE = {
    "type": "ADDED",
    "object": {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "4", "pods": "10"}},
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def dsn(embedded_dsn: str) -> AsyncIterator[str]:
    """Return a ledger that is laid down and empty."""
    async with laid_down(embedded_dsn) as found:
        yield found


@pytest.fixture(scope="module")
def url(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of an API on loopback that asks nobody for a key."""
    with api(dsn, tmp_path_factory.mktemp("origin")) as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    """Return a client of that API."""
    with httpx.Client(base_url=url, trust_env=False) as found:
        yield found


def code_of(answer: httpx.Response) -> str:
    """Return the code of an error that has the one shape."""
    assert answer.headers["content-type"] == "application/json"
    return str(answer.json()["error"]["code"])


# --------------------------------------------------------------------------------------------- web pages


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "localhost.evil.example", "evil@localhost", "127.0.0.1.nip.io", ""],
)
@pytest.mark.parametrize("path", ["/v1/pods", "/docs", "/readyz", "/metrics"])
def test_a_name_that_is_not_ours_reaches_nothing(client: httpx.Client, path: str, host: str) -> None:
    """A page whose name was made to point to 127.0.0.1 is of the same origin for its browser."""
    answer = client.get(path, headers={"Host": host})
    assert (answer.status_code, code_of(answer)) == (421, "wrong-host")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:99", "localhost.", "127.9.9.9"]
)
def test_the_names_of_this_machine_are_ours(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/pods", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
    ids=str,
)
def test_a_page_of_another_site_writes_nothing(client: httpx.Client, headers: dict[str, str]) -> None:
    answer = client.post("/v1/events", json=[NODE], headers=headers)
    assert (answer.status_code, code_of(answer)) == (403, "foreign-origin")


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "", None])
def test_what_a_form_can_send_is_refused(client: httpx.Client, media_type: str | None) -> None:
    """A browser sends these types to any site without asking it first."""
    headers = {} if media_type is None else {"Content-Type": media_type}
    answer = client.post("/v1/events", content=json.dumps([NODE]), headers=headers)
    assert (answer.status_code, code_of(answer)) == (415, "unsupported-media-type")


def test_our_own_page_and_links_from_elsewhere_still_work(client: httpx.Client, url: str) -> None:
    own = {"Origin": url, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json; charset=utf-8"}
    assert client.post("/v1/events", content=json.dumps([NODE]), headers=own).status_code == 202
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/docs", headers=link).status_code == 200
    assert client.get("/v1/pods", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def test_every_answer_tells_the_browser_what_it_may_not(client: httpx.Client) -> None:
    for path in ("/v1/pods", "/nowhere", "/docs", "/", "/metrics"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path
        assert headers["cache-control"] == "no-store", path
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'"), path
        assert "frame-ancestors 'none'" in policy, path
        assert "script-src 'unsafe-inline'" not in policy, path
        assert "server" not in headers, path


# -------------------------------------------------------------------------------------- proxies and keys


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_whoever_comes_through_a_proxy_needs_a_key(client: httpx.Client, header: str) -> None:
    answer = client.get("/v1/pods", headers={header: "203.0.113.7"})
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")
    assert "api-key create" in answer.json()["error"]["message"]
    assert client.get("/healthz", headers={header: "203.0.113.7"}).status_code == 200


def test_an_api_that_always_asks_lets_in_only_who_has_a_key(dsn: str, tmp_path: Path) -> None:
    settings = {"BERTH_API_AUTH": "always", "BERTH_API_HOSTS": "berth.example, other.example"}
    with api(dsn, tmp_path, told=settings) as url, httpx.Client(base_url=url, trust_env=False) as client:
        nobody = client.get("/v1/pods")
        assert (nobody.status_code, code_of(nobody)) == (401, "unauthorized")
        assert nobody.headers["www-authenticate"] == 'Bearer realm="berth"'
        wrong = {client.get("/v1/pods", headers={"Authorization": f"Bearer {key}"}).text for key in "abc"}
        assert len(wrong) == 1, "the answer to a wrong key is always the same"
        # The settings name what a proxy is called.
        named = {"Host": "berth.example", "Origin": "https://other.example"}
        assert client.get("/v1/pods", headers=named).status_code == 401
        assert client.get("/v1/pods", headers={"Host": "evil.example"}).status_code == 421


# ------------------------------------------------------------------------------------------------ labels


def test_invented_methods_and_paths_are_one_label(client: httpx.Client) -> None:
    """Labels are kept for ever, and these are counted before anybody is asked for a key."""
    for number in range(100):
        client.request(f"INVENTED{number}", f"/nowhere/{number}")
        client.get(f"/v1/nodes/node-{number}")
    found = client.get("/metrics").text
    assert "INVENTED" not in found
    assert "nowhere" not in found
    assert 'method="other"' in found
    assert len(found) < 200_000
