"""Is every request noted with who made it, failed logins too, and can nobody fill the ledger or hide?"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from domain.model.errors import Unavailable
from services import bootstrap
from services.api import accesses
from services.codec.seal import Senders
from services.ports.access import Access
from services.ports.log import PODS_TOPIC, TopicPartition
from tests.builders import Json, event, pod_manifest
from tests.integration.api_world import client_of, fresh_database
from tests.security.keyed import House, keyed_house


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    """Open an API with keys of every role."""
    async with keyed_house() as opened:
        for name in ("producer", "auditor", "operator", "admin"):
            await opened.key(name, [name])
        await opened.key("scoped", ["auditor"], namespaces=["team-a"])
        yield opened


async def listed(house: House, **which: Any) -> list[Json]:
    """Write what waits, and return the access log without this look at it."""
    await house.accesses.write()
    answer = await house.ask("admin", "GET", "/v1/accesses", params=which)
    assert answer.status_code == 200, answer.text
    return [each for each in answer.json()["items"] if each["route"] != "/v1/accesses"]


async def test_a_read_is_noted_with_the_key_and_what_it_asked_for(house: House) -> None:
    assert (await house.ask("auditor", "GET", "/v1/pods/team-a/x?")).status_code == 404
    (noted,) = await listed(house)
    assert {
        name: noted[name] for name in ("caller", "roles", "method", "route", "target", "status", "code")
    } == {
        "caller": "key:auditor",
        "roles": ["auditor"],
        "method": "GET",
        "route": "/v1/pods/{namespace}/{name}",
        "target": "/v1/pods/team-a/x",
        "status": 404,
        "code": "not-found",
    }
    assert noted["at"] == noted["last_at"]
    assert (noted["times"], noted["events"], noted["positions"]) == (1, None, [])
    assert noted["address"] == "127.0.0.1"


async def test_sent_events_are_noted_with_their_place_in_the_log(house: House) -> None:
    for _ in range(2):
        events = [event("ADDED", pod_manifest(name)) for name in "ab"]
        assert (await house.send("producer", *events)).status_code == 202
    noted = await listed(house, key="producer")
    assert sorted((each["positions"][0]["first"], each["positions"][0]["last"]) for each in noted) == [
        (0, 1),
        (2, 3),
    ]
    assert {(each["events"], each["status"], each["times"]) for each in noted} == {(2, 202, 1)}


async def test_failed_logins_are_noted_without_what_was_shown(house: House) -> None:
    await house.ask(None, "GET", "/v1/pods/team-a/secret-name")
    for guess in ("guess-1", "guess-2"):
        await house.ask(guess, "GET", "/v1/pods")
    noted = sorted(await listed(house, status=401), key=lambda each: str(each["code"]))
    assert [(each["caller"], each["code"], each["times"]) for each in noted] == [
        (None, "no-key", 1),
        (None, "wrong-key", 2),
    ]
    assert "guess" not in str(noted)
    assert "secret-name" not in str(noted)


async def test_what_a_role_may_not_do_is_noted_with_the_key(house: House) -> None:
    await house.ask("producer", "GET", "/v1/nodes")
    (noted,) = await listed(house, status=403)
    assert (noted["caller"], noted["code"]) == ("key:producer", "forbidden")


async def test_health_and_metrics_are_not_noted_but_refusals_are(house: House) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        await house.ask("admin", "GET", path)
    assert await listed(house) == []
    await house.ask(None, "GET", "/metrics")
    assert [each["route"] for each in await listed(house)] == ["/metrics"]


@pytest.mark.parametrize("key", ["producer", "operator", "scoped"])
async def test_the_log_is_for_admins_and_auditors_of_the_whole_cluster(house: House, key: str) -> None:
    assert (await house.ask(key, "GET", "/v1/accesses")).status_code == 403
    assert (await house.ask("auditor", "GET", "/v1/accesses")).status_code == 200


async def test_who_reads_the_log_is_noted_too(house: House) -> None:
    await house.ask("auditor", "GET", "/v1/accesses")
    await house.accesses.write()
    found = (await house.ask("admin", "GET", "/v1/accesses")).json()["items"]
    assert [each["caller"] for each in found] == ["key:auditor"]


async def test_pages_follow_each_other(house: House) -> None:
    for at in range(7):
        await house.ask("auditor", "GET", f"/v1/nodes/n{at}")
    await house.accesses.write()
    targets: list[str] = []
    params: dict[str, Any] = {"limit": 3}
    for _ in range(3):
        page = (await house.ask("admin", "GET", "/v1/accesses", params=params)).json()
        targets += [each["target"] for each in page["items"]]
        params["cursor"] = page["next"]
    assert sorted(targets) == [f"/v1/nodes/n{at}" for at in range(7)]


@pytest.mark.parametrize("bad", ["x", "MQ", "MS0x", "MTcKZmY", "OTk5OTk5OTk5OTk5OTk5OTk5OTkKMDA"])
async def test_a_broken_cursor_is_told(house: House, bad: str) -> None:
    answer = await house.ask("admin", "GET", "/v1/accesses", params={"cursor": bad})
    assert (answer.status_code, answer.json()["error"]["path"]) == (422, "cursor")


# ------------------------------------------------------------------------------------------------ attacks


async def test_strangers_cannot_fill_the_ledger(house: House) -> None:
    """However many addresses, paths, methods and keys somebody without a key invents."""
    transport = house.client._transport
    for at in range(1_000):
        transport.client = (f"10.0.{at // 250}.{at % 250}", 1)  # type: ignore[attr-defined]
        await house.ask(f"guess-{at}", "GET", "/v1/nodes", params={"name": f"{at}"})
        await house.ask(None, f"M{at}", f"/no/such/{at}")
    await house.accesses.write()
    rows = house.database.accesses.values()
    assert len(rows) <= 2 * (accesses._STRANGERS_MAX + 2), "two minutes at most"
    assert sum(row.times for row in rows) == 2_000, "and every one is counted"
    assert {row.address for row in rows} > {"10.0.0.0", "others"}


async def test_a_holder_who_repeats_himself_is_one_row_a_minute(house: House) -> None:
    for _ in range(500):
        await house.ask("auditor", "GET", "/v1/shards")
    noted = await listed(house, key="auditor")
    assert len(noted) <= 2
    assert sum(each["times"] for each in noted) == 500


async def test_a_target_is_cut_and_steers_no_terminal(house: House) -> None:
    await house.ask("auditor", "GET", "/v1/nodes/%1b%5b2J" + "x" * 1_000)
    (noted,) = await listed(house)
    assert len(noted["target"]) == 300
    assert noted["target"].isprintable()


class Away:
    """A store that does not answer for a while."""

    def __init__(self, house: House) -> None:
        self._house = house
        self.is_away = True

    async def note_accesses(self, rows: Sequence[Access]) -> None:
        """See ``Callers.note_accesses``."""
        if self.is_away:
            raise Unavailable("away")
        await self._house.store.callers.note_accesses(rows)


async def test_an_outage_delays_and_what_does_not_fit_is_told(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accesses, "_ROWS_MAX", 4)
    away: Any = Away(house)
    house.accesses._callers = away
    for at in range(6):
        await house.ask("auditor", "GET", f"/v1/nodes/n{at}")
        await house.accesses.write()
    assert not house.database.accesses
    assert b"berth_api_accesses_lost_total 2.0" in house.accesses._metrics.render()
    with caplog.at_level(logging.ERROR, "berth.api"):
        away.is_away = False
        await house.accesses.write()
    assert "2 requests not noted" in caplog.text
    rows = list(house.database.accesses.values())
    assert sorted(row.target for row in rows if row.code != "lost") == [f"/v1/nodes/n{at}" for at in range(4)]
    assert [row.times for row in rows if row.code == "lost"] == [2]


async def test_a_fault_of_the_log_stops_no_request(house: House) -> None:
    house.accesses._callers = object()  # type: ignore[assignment]
    assert (await house.ask("auditor", "GET", "/v1/nodes")).status_code == 200
    await house.accesses.write()
    assert (await house.ask("auditor", "GET", "/v1/nodes")).status_code == 200


async def test_what_was_asked_is_in_the_ledger_when_the_api_has_stopped(embedded_dsn: str) -> None:
    async with fresh_database(embedded_dsn) as place:
        await bootstrap.initialise(place, 1)
        async with client_of(place) as client:
            sent = await client.post("/v1/events", json=[event("ADDED", pod_manifest("a"))])
            assert sent.status_code == 202, sent.text
        async with client_of(place) as client:
            (noted,) = (await client.get("/v1/accesses")).json()["items"]
        assert (noted["caller"], noted["route"], noted["events"]) == ("anonymous", "/v1/events", 1)
        assert noted["positions"] == [{"topic": "berth.pods", "partition": 0, "first": 0, "last": 0}]
        async with client_of(place, local_user="root") as client:
            await client.get("/v1/nodes")
            await client.post("/v1/events", json=[event("ADDED", pod_manifest("b"))])
        async with client_of(place) as client:
            routes = [each["route"] for each in (await client.get("/v1/accesses")).json()["items"]]
        assert sorted(routes) == ["/v1/accesses", "/v1/events"], "a command on the ledger is no request"
        records = await read_pods(place)
        assert records == ["anonymous", "local:root"]


async def read_pods(place: bootstrap.Place) -> list[str]:
    """Return who sent each record of the pods."""
    store, log = bootstrap.open_store(place), bootstrap.open_log(place)
    senders, reader = Senders(await store.callers.seal_secret()), await log.reader()
    await reader.assign({TopicPartition(PODS_TOPIC, 0): 0})
    found = [senders.of(record) for record in await reader.poll(10, 1.0)]
    for each in (reader, log, store):
        await each.aclose()
    return found
