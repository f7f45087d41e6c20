"""Does the API accept events in every allowed form, and name what it refuses?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from domain.model import limits
from services import bootstrap
from services.adapters.postgres.access import PostgresCallers
from services.api import answers
from services.bootstrap import Place
from services.config import Settings
from services.metrics import process_registry
from services.ports.log import NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, TopicPartition
from tests.builders import event, node_manifest, pod_manifest, usage_manifest
from tests.integration.api_world import Client, checked, client_of, ends_of, fresh_database


@pytest_asyncio.fixture
async def empty(embedded_dsn: str) -> AsyncIterator[tuple[Place, Client]]:
    """Return a ledger of one shard with nothing in it, and a client of the API on it."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 1)
        async with client_of(place) as client:
            yield place, client


async def test_an_event_id_is_appended_once(empty: tuple[Place, Client]) -> None:
    place, client = empty
    one = event("ADDED", pod_manifest("a"), id="e1")
    first = await client.post("/v1/events", json=[one, one, event("ADDED", pod_manifest("b"), id="e2")])
    assert first.status_code == 202
    checked(first.json(), answers.Ingested)
    positions = [{"topic": PODS_TOPIC, "partition": 0, "offset": 1}]
    counts = {"accepted": 2, "duplicates": 1, "invalid": 0, "errors": [], "positions": positions}
    assert first.json() == counts
    again = await client.post("/v1/events", json={"events": [one]})
    assert again.json()["duplicates"] == 1
    unnamed = event("ADDED", pod_manifest("c"))
    for _ in range(2):
        assert (await client.post("/v1/events", json=[unnamed])).json()["accepted"] == 1
    assert (await ends_of(place))[TopicPartition(PODS_TOPIC, 0)] == 4


async def slow(self: PostgresCallers, holder: str, digests: Mapping[str, bytes]) -> None:
    await asyncio.sleep(1)


async def test_a_request_waits_until_its_events_are_folded(
    empty: tuple[Place, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits until the time is over if nobody folds, and answers decisions and refusals on request."""
    place, client = empty
    early = event("ADDED", pod_manifest("early"))
    began = time.monotonic()
    answer = await client.post("/v1/events?wait=300ms&until=decided", json=[early])
    assert (answer.status_code, answer.json()["folded"]) == (202, False)
    assert time.monotonic() - began > 0.25
    assert not checked(answer.json(), answers.Ingested).keys() & {"decisions", "deadletters"}
    worker = asyncio.create_task(bootstrap.run_worker(place, Settings(worker_name="w"), process_registry()))
    try:
        refused = event("ADDED", usage_manifest("unknown", used={"memory": "1Gi"}))
        placed = event("ADDED", pod_manifest("b", cpu=1), id="e1")
        big = event("ADDED", pod_manifest("a", cpu=64))
        events = [event("ADDED", node_manifest("n", cpu=2)), placed, big, refused]
        answer = await client.post("/v1/events?wait=90s&until=decided", json=events)
        found = checked(answer.json(), answers.Ingested)
        assert found["folded"] is True
        decided = [(each["pod"]["name"], each["outcome"], each["node"]) for each in found["decisions"]]
        assert decided == [("a", "unresolvable", None), ("b", "bound", "n")]
        assert [letter["topic"] for letter in found["deadletters"]] == [USAGE_TOPIC]
        again = checked(
            (await client.post("/v1/events?wait=60s&until=decided", json=[placed])).json(), answers.Ingested
        )
        assert (again["accepted"], again["duplicates"], again["folded"]) == (0, 1, True)
        assert [each["pod"]["name"] for each in again["decisions"]] == ["b"]
        both = await asyncio.gather(
            *(
                client.post("/v1/events?wait=60s", json=[event("ADDED", pod_manifest(f"p{i}"))])
                for i in range(20)
            )
        )
        assert all(one.json()["folded"] and "decisions" not in one.json() for one in both)
        new, old = (pod_manifest("b", cpu=1, resource_version=version) for version in (2**63 - 1, 7))
        assert (await client.post("/v1/events?wait=60s", json=[event("MODIFIED", new)])).json()["older"] == []
        late = await client.post("/v1/events?wait=60s", json=[event("MODIFIED", old)])
        assert checked(late.json(), answers.Ingested)["older"] == ["default/b"]
        monkeypatch.setattr(PostgresCallers, "record_events", slow)  # the worker is done long before
        refused["id"] = "slow"
        answer = await client.post("/v1/events?wait=60s", json=[refused])
        assert [letter["topic"] for letter in answer.json()["deadletters"]] == [USAGE_TOPIC]
    finally:
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


@pytest.mark.parametrize("wait", ["5 minutes", "-1s", "101s", "1e3", ""])
async def test_a_time_to_wait_is_checked_before_anything_is_sent(
    empty: tuple[Place, Client], wait: str
) -> None:
    place, client = empty
    answer = await client.post("/v1/events", params={"wait": wait}, json=[event("ADDED", pod_manifest("p"))])
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "query.wait")
    assert (await ends_of(place))[TopicPartition(PODS_TOPIC, 0)] == 0


async def test_an_id_that_comes_again_with_other_content_is_an_error(empty: tuple[Place, Client]) -> None:
    place, client = empty
    one, other = event("ADDED", pod_manifest("a"), id="e1"), event("ADDED", pod_manifest("b"), id="e1")
    reordered = {name: one[name] for name in reversed(list(one))}
    assert (await client.post("/v1/events", json=[one, reordered])).json()["duplicates"] == 1
    for body in ([event("ADDED", pod_manifest("c")), other], [event("ADDED", pod_manifest("c")), one, other]):
        answer = await client.post("/v1/events", json=body)
        assert answer.status_code == 422
        error = checked(answer.json(), answers.Error)["error"]
        (detail,) = error["details"]
        assert (error["code"], detail["index"], detail["path"]) == ("invalid-events", len(body) - 1, "id")
        assert "'e1' was accepted before with other content" in detail["message"]
    in_one = [event("ADDED", pod_manifest(name), id="e2") for name in ("d", "e")]
    answer = await client.post("/v1/events?partial=true", json=[*in_one, in_one[0]])
    counts = checked(answer.json(), answers.Ingested)
    assert (counts["accepted"], counts["duplicates"], counts["invalid"]) == (1, 1, 1)
    assert [(each["index"], each["path"]) for each in counts["errors"]] == [(1, "id")]
    assert (await ends_of(place))[TopicPartition(PODS_TOPIC, 0)] == 2


async def test_of_requests_at_the_same_moment_one_has_an_id_first(empty: tuple[Place, Client]) -> None:
    place, client = empty
    bodies = [[event("ADDED", pod_manifest(f"p{i % 2}"), id="e1")] for i in range(8)]
    bodies = [
        [event("ADDED", pod_manifest("x"), id=f"own-{i}"), *body][:: 1 if i % 3 else -1]
        for i, body in enumerate(bodies)
    ]
    answers_found = await asyncio.gather(*(client.post("/v1/events", json=body) for body in bodies))
    codes = [answer.status_code for answer in answers_found]
    assert sorted(codes) == [202] * 4 + [422] * 4
    assert codes[::2] in ([202] * 4, [422] * 4), "those of one content are all right, the others all wrong"
    right = [answer.json() for answer in answers_found if answer.status_code == 202]
    assert sum(each["duplicates"] for each in right) == 3
    assert (await ends_of(place))[TopicPartition(PODS_TOPIC, 0)] == 5


async def test_a_single_event_a_list_and_a_list_under_its_name_are_the_same(
    empty: tuple[Place, Client],
) -> None:
    place, client = empty
    one = event("ADDED", pod_manifest("a"))
    for body in (one, [one], {"events": [one]}):
        answer = await client.post("/v1/events", json=body)
        assert (answer.status_code, answer.json()["accepted"]) == (202, 1)
    assert (await ends_of(place))[TopicPartition(PODS_TOPIC, 0)] == 3


async def test_what_is_no_event_is_told_by_its_place(empty: tuple[Place, Client]) -> None:
    place, client = empty
    for body, said in (
        ({"event": []}, 'there is no list of events; allowed are an event {"type", "object"}, a list'),
        ({"events": {}}, "there is no list of events; allowed are"),
        (7, "there is no list of events; allowed are"),
        (pod_manifest("a"), "for events[0].object: is missing"),
        (pod_manifest("a"), "a manifest by itself is no event, it goes here"),
        ({"object": pod_manifest("a")}, "for events[0].type: "),
        ([event("ADDED", pod_manifest("a")), 7], "for events[1]: an event is an object"),
        (
            [{}, {}, {}],
            "for events[0].object: is missing; an event carries the object that it is about (and 2",
        ),
    ):
        answer = await client.post("/v1/events", json=body)
        assert answer.status_code == 422
        assert said in answer.json()["error"]["message"]
    assert set((await ends_of(place)).values()) == {0}


async def test_one_invalid_event_holds_all_back_unless_partial(empty: tuple[Place, Client]) -> None:
    place, client = empty
    bad = event("ADDED", pod_manifest("neg", cpu="-1"), id="bad")
    kind = event("ADDED", {"kind": "Foo", "metadata": {"name": "x"}})
    good = event("ADDED", node_manifest("ok"), id="good")
    answer = await client.post("/v1/events", json=[good, bad, kind, 7])
    assert answer.status_code == 422
    error = answer.json()["error"]
    checked(answer.json(), answers.Error)
    assert error["code"] == "invalid-events"
    assert [each["index"] for each in error["details"]] == [1, 2, 3]
    assert error["details"][0]["path"] == "object.spec.containers[0].resources.requests.cpu"
    assert set((await ends_of(place)).values()) == {0}
    partial = await client.post("/v1/events?partial=true", json=[good, bad, kind])
    assert partial.status_code == 202
    assert (partial.json()["accepted"], partial.json()["invalid"]) == (1, 2)
    assert (await ends_of(place))[TopicPartition(NODES_TOPIC, 0)] == 1


async def test_requests_that_are_too_large(empty: tuple[Place, Client]) -> None:
    _, client = empty
    events = [event("ADDED", pod_manifest("x"))] * (limits.events_per_request_max + 1)
    many = await client.post("/v1/events", json=events)
    assert many.status_code == 413
    assert "events_per_request_max" in many.json()["error"]["message"]
    body, headers = b"[" + b" " * limits.request_bytes_max + b"]", {"Content-Type": "application/json"}
    large = await client.post("/v1/events", content=body, headers=headers)
    assert large.status_code == 413
    assert "request_bytes_max" in large.json()["error"]["message"]
