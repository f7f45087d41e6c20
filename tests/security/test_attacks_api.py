"""Attacks by those whom the API lets in: requests that cost much, and looks at what belongs to others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from domain.model import limits
from services.listening import bind
from services.ports.access import AccessFilter
from services.serving import serve_http
from tests.builders import Json, node_manifest, pod_manifest
from tests.property.site import Site
from tests.security.keyed import House, keyed_house

KEY = "berth_" + "S3cret-key_of-somebody-who-pasted-it-here42"


@pytest.fixture
async def house() -> AsyncIterator[House]:
    """Open an API with keys of two teams."""
    async with keyed_house() as opened:
        for team in ("team-a", "team-b"):
            await opened.key(f"ci-{team}", ["producer"], namespaces=[team])
        await opened.key("desk", ["auditor"])
        yield opened


def pod(name: str = "p", namespace: str = "team-a", **more: Any) -> Json:
    """Return an event that adds a pod."""
    metadata = {"namespace": namespace, "name": name}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    kind = {"apiVersion": "v1", "kind": "Pod"}
    return {"type": "ADDED", "object": kind | {"metadata": metadata, "spec": spec}, **more}


def with_field(event: Json, value: str) -> str:
    """Return the text of an event whose object has a field that nobody reads, with this text as value."""
    text = json.dumps(event | {"object": event["object"] | {"x": "@@"}})
    return text.replace('"@@"', value)


async def post(house: House, body: str, key: str = "ci-team-a", query: str = "") -> Any:
    """Send a body as it is."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    return await house.client.post(f"/v1/events{query}", content=body, headers=headers)


async def longest_pause(work: Callable[[], Any]) -> tuple[Any, float]:
    """Do some work; return what it gave, and the longest time in which nobody else had a turn.

    It is the loop's own processor time in seconds: what other processes of the machine take does not count.
    """
    longest, working = 0.0, True

    async def others() -> None:
        nonlocal longest
        before = time.thread_time()
        while working:
            await asyncio.sleep(0)
            longest, before = max(longest, time.thread_time() - before), time.thread_time()

    watching = asyncio.create_task(others())
    await asyncio.sleep(0)
    answer = await work()
    working = False
    await watching
    return answer, longest


# ------------------------------------------------------------------------------------- requests that cost


@pytest.mark.parametrize(
    "value",
    [
        "[" + "[]," * 300_000 + "[]]",
        "{" + ",".join(f'"{i:x}":0' for i in range(150_000)) + "}",
        "[" + "1e5," * 400_000 + "1]",
    ],
    ids=["lists", "keys", "numbers"],
)
async def test_an_event_of_a_million_values_is_refused_before_it_is_read(house: House, value: str) -> None:
    answer = await post(house, f"[{json.dumps(pod())},{with_field(pod('q', id='1'), value)}]")
    assert answer.status_code == 422, answer.text[:300]
    (told,) = answer.json()["error"]["details"]
    assert told["index"] == 1
    assert "event_values_max" in told["message"]


async def test_a_list_of_a_million_events_is_refused_before_it_is_read(house: House) -> None:
    body = "[" + "1," * (limits.request_bytes_max // 2 - 2) + "1]"
    answer, pause = await longest_pause(lambda: post(house, body))
    assert answer.status_code == 413
    assert "request_values_max" in answer.text
    assert pause < 0.25


async def test_an_event_of_much_that_is_not_kept_is_refused_too(house: House) -> None:
    fits = with_field(pod("fits"), json.dumps("a" * limits.event_bytes_max))
    assert (await post(house, fits)).status_code == 202  # the rule for what is kept is another one
    answer = await post(house, with_field(pod(), json.dumps("a" * limits.sent_event_bytes_max)))
    assert answer.status_code == 422
    assert "sent_event_bytes_max" in answer.text


@pytest.mark.parametrize("depth", [900, 970, 1000, 1015, 100_000])
@pytest.mark.parametrize("nest", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
@pytest.mark.parametrize("place", ["unknown", "type", "id", "at", "whole"])
async def test_no_depth_is_a_fault_of_the_server(
    house: House, depth: int, nest: tuple[str, str], place: str
) -> None:
    value = nest[0] * depth + "0" + nest[1] * depth
    body = with_field(pod(id="deep"), value)
    if place == "whole":
        body = value
    elif place != "unknown":
        body = json.dumps(pod() | {place: "@@"}).replace('"@@"', value)
    answer = await post(house, body)
    assert answer.status_code in (202, 422), answer.text[:200]


async def test_a_large_request_leaves_others_their_turn(house: House) -> None:
    tolerations = [{"key": f"k{i}", "operator": "Exists"} for i in range(48)]
    events = [pod(f"p{i}") for i in range(4_000)]
    for event in events:
        event["object"]["spec"]["tolerations"] = tolerations
    body = json.dumps(events)
    answer, pause = await longest_pause(lambda: post(house, body))
    assert answer.json()["accepted"] == 4_000
    assert pause < 0.25


async def test_requests_of_one_key_are_read_one_after_another(house: House) -> None:
    large = json.dumps([pod(f"p{i}") for i in range(3_000)])
    many = [asyncio.create_task(post(house, large)) for _ in range(8)]
    await asyncio.sleep(0.05)
    assert (await post(house, json.dumps(pod("small", "team-b")), "ci-team-b")).status_code == 202
    assert not all(task.done() for task in many)
    assert {answer.status_code for answer in await asyncio.gather(*many)} == {202}


async def test_who_waits_holds_no_memory_for_what_he_sent(house: House) -> None:
    """Nobody folds here, so all of these wait; each sent a megabyte of which berth keeps nothing."""
    body = with_field(pod(), "[" + "[]," * 45_000 + "[]]")
    tracemalloc.start()
    try:
        waiting = [asyncio.create_task(post(house, body, query="?wait=2s")) for _ in range(8)]
        await asyncio.sleep(1.2)
        assert not any(task.done() for task in waiting)
        held_bytes, _ = tracemalloc.get_traced_memory()
        await asyncio.gather(*waiting)
    finally:
        tracemalloc.stop()
    assert held_bytes < 8 * (1 << 20)


async def test_a_key_has_only_so_many_bytes_under_way(house: House) -> None:
    one = json.dumps([pod(f"p{i}") for i in range(4)])
    body = one + " " * (limits.request_bytes_max - len(one))
    count = 2 * limits.bodies_of_key_bytes_max // limits.request_bytes_max
    sent = [asyncio.create_task(post(house, body, query="?wait=1s")) for _ in range(count)]
    await asyncio.sleep(0.5)
    assert (await post(house, json.dumps(pod("small", "team-b")), "ci-team-b")).status_code == 202
    answers = await asyncio.gather(*sent)
    refused = [each for each in answers if each.status_code == 429]
    assert len(refused) == count // 2
    assert all("bodies_of_key_bytes_max" in each.text and each.headers["Retry-After"] for each in refused)
    assert (await post(house, body)).status_code == 202  # what was held is free again


# -------------------------------------------------------------------------------------- who reads the logs


@pytest.mark.parametrize(
    "target", [f"/v1/pods?api={KEY}", f"/v1/pods/team-a/{KEY}", f"/v1/pods?token={KEY}&x=" + "y" * 400]
)
async def test_a_key_in_an_address_is_not_kept_in_the_access_log(house: House, target: str) -> None:
    await house.ask("desk", "GET", target)
    await house.accesses.write()
    (row,) = await house.store.callers.accesses(AccessFilter(), 10, None)
    assert row.target.startswith("/v1/pods")
    assert KEY[6:20] not in row.target
    assert "***" in row.target


def test_a_scoped_auditor_does_not_learn_since_when_equal_pods_of_others_wait() -> None:
    site, at_ms = Site(), 1_700_000_000_000
    site.tell("ADDED", node_manifest("n", cpu=1), pod_manifest("theirs", "team-b", cpu=4), at_ms=at_ms)
    site.tell("ADDED", pod_manifest("ours", "team-a", cpu=4), at_ms=at_ms + 5_000)

    async def found() -> dict[str, Any]:
        async with keyed_house(site.database) as house:
            await house.key("ours", ["auditor"], namespaces=["team-a"])
            await house.key("all", ["auditor"])
            target = "/v1/pods/team-a/ours/attempts"
            return {key: (await house.ask(key, "GET", target)).json() for key in ("ours", "all")}

    told = asyncio.run(found())
    assert told["all"]["items"][0]["since"] == "2023-11-14T22:13:20.000Z"
    assert told["ours"]["items"][0]["since"] == "2023-11-14T22:13:25.000Z"
    assert "22:13:20" not in str(told["ours"])


# ------------------------------------------------------------------------------------- what is no clean HTTP


@contextlib.asynccontextmanager
async def served(house: House) -> AsyncIterator[Callable[..., Any]]:
    """Serve an API on loopback; give what sends bytes, closes its half or not, and returns the answer."""
    with bind("127.0.0.1", 0, move=False) as listening:
        serving = asyncio.create_task(serve_http(house.app, [listening]))

        async def tell(text: str, *, ends: bool = True) -> str:
            reader, writer = await asyncio.open_connection(*listening.getsockname())
            writer.write(text.encode())
            if ends:
                writer.write_eof()
            answer = await asyncio.wait_for(reader.read(), 5)
            writer.close()
            return answer.decode()

        try:
            yield tell
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving


HEAD = (
    "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ci-team-a\r\n"
    "Content-Type: application/json\r\n"
)


async def test_no_request_hides_in_the_body_of_another(house: House) -> None:
    """A proxy that goes by the length would take the second request for the body of the first."""
    hidden = "0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    async with served(house) as tell:
        answer = await tell(
            f"{HEAD}Content-Length: {len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n{hidden}"
        )
    assert answer.startswith("HTTP/1.1 400 ")
    assert answer.count("HTTP/1.1 ") == 1, answer


async def test_a_client_that_leaves_in_its_body_is_no_fault_of_the_server(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(house) as tell:
        with caplog.at_level(logging.ERROR):
            await tell(f"{HEAD}Content-Length: 100\r\n\r\n[")
            await asyncio.sleep(0.1)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text
    metrics = (await house.ask("desk", "GET", "/metrics")).text
    assert 'status="500"' not in metrics


async def test_whoever_closes_behind_a_long_answer_leaves_no_traceback(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(house) as tell:
        with caplog.at_level(logging.ERROR):
            for _ in range(5):
                target = "/docs/assets/swagger-ui-bundle.js"
                head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                assert (await tell(head, ends=False)).startswith("HTTP/1.1 200 ")
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text


async def test_the_end_of_an_answer_waits_for_nobody(house: House) -> None:
    with bind("127.0.0.1", 0, move=False) as listening:
        serving = asyncio.create_task(serve_http(house.app, [listening]))
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        seconds = []
        for _ in range(20):
            began = asyncio.get_running_loop().time()
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b'"alarms":[]}'), 5)
            seconds.append(asyncio.get_running_loop().time() - began)
        writer.close()
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    assert sorted(seconds)[10] < 0.03
