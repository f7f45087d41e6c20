"""Who may send a dead letter again, in whose name, and what of it?"""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest
import pytest_asyncio

from services.codec.seal import Senders
from services.ports.ledger import DeadLetter
from services.ports.log import PODS_TOPIC, Entry, Record, TopicPartition
from tests.builders import event, pod_manifest
from tests.contract.batches import AT_MS
from tests.security.keyed import House, keyed_house

POD = orjson.dumps({**event("ADDED", pod_manifest("web", "ours")), "id": "once"})


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    async with keyed_house() as house:
        await house.key("ours", ["producer"], namespaces=["ours"])
        await house.key("theirs", ["producer"], namespaces=["theirs"])
        await house.key("reader", ["auditor"])
        await house.key("admin", ["admin"])
        yield house


def _records(house: House) -> list[Record]:
    return house.log.partition(TopicPartition(PODS_TOPIC, 0)).records


async def _letter(house: House, value: bytes | None, key: str = "ours/web") -> str:
    """Put a record into the log and its dead letter into the ledger; return the letter's id."""
    writer = await house.log.writer()
    (span,) = await writer.append(PODS_TOPIC, [Entry(key.encode(), value)], 0)
    letters = house.database.dead_letters[0]
    letters.append(
        DeadLetter(
            shard=0,
            seq=len(letters) + 1,
            topic=PODS_TOPIC,
            partition=0,
            offset=span.first,
            key=key.encode(),
            raw=b"",
            code="conflict",
            path="",
            message="it was in the way",
            at_ms=AT_MS,
        )
    )
    return f"0-{len(letters)}"


async def test_its_event_goes_into_the_log_again_in_the_name_of_who_asks(house: House) -> None:
    answer = await house.ask("ours", "POST", f"/v1/deadletters/{await _letter(house, POD)}/resend", json={})
    assert (answer.status_code, answer.json()["accepted"]) == (202, 1), answer.text
    first, second = _records(house)
    assert first.key == second.key
    sent = orjson.loads(second.value or b"")
    assert sent["object"]["metadata"]["name"] == "web"
    assert Senders(await house.store.callers.seal_secret()).of(second) == "key:ours"


async def test_it_can_be_sent_more_than_once(house: House) -> None:
    letter = await _letter(house, POD)
    for _ in range(2):
        answer = await house.ask("ours", "POST", f"/v1/deadletters/{letter}/resend", json={})
        assert answer.json()["accepted"] == 1, "its id does not make it a duplicate"
    assert len(_records(house)) == 3


async def test_the_access_log_says_who_sent_which_again(house: House) -> None:
    letter = await _letter(house, POD)
    await house.ask("ours", "POST", f"/v1/deadletters/{letter}/resend", json={})
    await house.accesses.write()
    (item,) = (await house.ask("admin", "GET", "/v1/accesses", params={"key": "ours"})).json()["items"]
    assert (item["method"], item["route"]) == ("POST", "/v1/deadletters/{id}/resend")
    assert letter in str(item)


@pytest.mark.parametrize(
    ("key", "status"), [("theirs", 404), ("reader", 403), (None, 401), ("ours", 202), ("admin", 202)]
)
async def test_who_may(house: House, key: str | None, status: int) -> None:
    letter = await _letter(house, POD)
    answer = await house.ask(key, "POST", f"/v1/deadletters/{letter}/resend", json={})
    assert answer.status_code == status, answer.text
    assert len(_records(house)) == 1 + (status == 202)


async def test_a_key_resends_nothing_that_it_may_not_send(house: House) -> None:
    thing = pod_manifest("web", "ours", node_name="n1")  # only who may bind says so
    letter = await _letter(house, orjson.dumps(event("ADDED", thing)))
    answer = await house.ask("ours", "POST", f"/v1/deadletters/{letter}/resend", json={})
    assert answer.status_code == 403, answer.text
    assert len(_records(house)) == 1


@pytest.mark.parametrize("value", [None, b"", b"[]", b"{not json", b'{"type":"ADDED"}'])
async def test_what_is_no_event_is_told(house: House, value: bytes | None) -> None:
    answer = await house.ask(
        "admin", "POST", f"/v1/deadletters/{await _letter(house, value)}/resend", json={}
    )
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid-events")
    assert len(_records(house)) == 1


async def test_a_record_that_is_gone_is_told(house: House) -> None:
    letter = await _letter(house, POD)
    await _letter(house, POD)
    house.log.truncate(TopicPartition(PODS_TOPIC, 0), 1)
    answer = await house.ask("admin", "POST", f"/v1/deadletters/{letter}/resend", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not-found")
    assert "the log no longer has" in answer.text
    answer = await house.ask("admin", "POST", "/v1/deadletters/0-99/resend", json={})
    assert answer.status_code == 404


async def test_another_record_at_its_place_is_not_sent(house: House) -> None:
    letter = await _letter(house, POD)
    slots = house.log.partition(TopicPartition(PODS_TOPIC, 0)).slots
    slots[0] = _records(house)[0]._replace(key=b"ours/another")
    answer = await house.ask("admin", "POST", f"/v1/deadletters/{letter}/resend", json={})
    assert answer.status_code == 404
