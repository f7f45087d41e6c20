"""Does `berth audit` find a real ledger and its topic sound, and name what was changed since?"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from services import bootstrap
from services.adapters.postgres.invariants import INVARIANTS
from services.bootstrap import Place
from services.ports.audit import Audit
from services.relay.topic import NAME
from tests.integration.api_world import client_of, query
from tests.integration.commands import berth
from tests.integration.lives import change
from tests.integration.lives import place as place

DECIDED = "topic = 'berth.decisions' AND partition = 0"


async def audit(place: Place, **how: Any) -> Audit:
    return await bootstrap.audit(place, None, lambda _: None, **how)


async def test_a_real_ledger_and_its_topic_are_sound(place: Place) -> None:
    found = await audit(place, topic=True)
    assert found.broken == []
    decided = (await query(place, "SELECT count(*) FROM decisions"))[0][0]
    assert found.decisions_count == found.records_count == decided > 15
    assert found.invariants_count == len(INVARIANTS) + 1
    assert (await audit(place)).decisions_count == 0


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (
            f"DELETE FROM log_records WHERE {DECIDED} AND log_offset = 3",
            "decisions 4 to 4 are left out before it",
        ),
        (f"DELETE FROM log_records WHERE {DECIDED} AND log_offset = 0", "decisions 1 to 1 are left out"),
        (
            f"UPDATE log_records SET value = value || ' '::bytea WHERE {DECIDED} AND log_offset = 3",
            "the record is not the ledger's",
        ),
        (
            f"DELETE FROM log_records WHERE {DECIDED} AND log_offset > 3",
            "it ends with decision 4, and the relay has published",
        ),
    ],
)
async def test_a_topic_that_differs_is_named(place: Place, statement: str, what: str) -> None:
    await change(place, statement)
    found = await audit(place, topic=True)
    (broken,) = found.broken
    assert (broken.name, found.ok) == (NAME, False)
    assert what in broken.rows[0]["what"] or what in broken.rows[-1]["what"]


async def test_a_record_that_came_twice_is_no_fault(place: Place) -> None:
    columns = "key, value, timestamp_ms FROM log_records"
    await change(
        place,
        "INSERT INTO log_records (topic, partition, log_offset, key, value, timestamp_ms)"
        f" SELECT topic, partition, 1000 + log_offset, {columns} WHERE {DECIDED}",
    )
    await change(place, f"UPDATE log_topics SET next_offset = 2000 WHERE {DECIDED}")
    assert (await audit(place, topic=True)).ok


async def test_the_api_audits_and_remembers_nothing(place: Place) -> None:
    async with client_of(place) as client:
        sound = (await client.get("/v1/audit")).json()
        assert (sound["ok"], sound["broken"], sound["remembered"]) == (True, [], False)
        assert [each["decisions_from"] for each in sound["shards"]] == [1, 1]
    await change(place, "DELETE FROM placements WHERE adopted")
    async with client_of(place) as client:
        found, again = [(await client.get("/v1/audit")).json() for _ in range(2)]
        names = {each["name"] for each in found["broken"]}
        assert (found["ok"], names) == (False, {"decision-has-placement", "requested-is-the-sum"})
        assert again["at"] == found["at"], "one audit is for all who ask within ten seconds"


async def test_the_metrics_say_how_the_last_audit_ended(place: Place) -> None:
    async with client_of(place) as client:
        assert "berth_ledger_audit" not in (await client.get("/metrics")).text
        await audit(place)
        assert "\nberth_ledger_audit_ok 1.0" in (await client.get("/metrics")).text
        await change(place, "UPDATE nodes SET requested[1] = requested[1] + 1 WHERE id = 1")
        await audit(place)
        text = (await client.get("/metrics")).text
    assert "\nberth_ledger_audit_ok 0.0" in text
    assert 0 <= float(text.split("\nberth_ledger_audit_age_seconds ")[1].split()[0]) < 60


async def test_the_command_fails_and_names_the_first_offenders(place: Place, tmp_path: Path) -> None:
    async def run(*options: str) -> Any:
        return await asyncio.to_thread(berth, tmp_path, "audit", "--postgres-dsn", place.dsn, *options)

    sound = await run("--topic")
    assert sound.returncode == 0, sound.stderr
    count = len(INVARIANTS) + 1
    assert sound.stdout.startswith(f"{count} of {count} invariants hold, of the present state and ")
    await change(place, "DELETE FROM placements WHERE adopted")
    broken = await run()
    assert broken.returncode == 1
    assert "requested-is-the-sum is broken: what a node says is requested" in broken.stdout
    assert "  node=n0  resource=cpu  held=2500  requested=3500" in broken.stdout
    whole = await run("--full", "-o", "json")
    assert (whole.returncode, json.loads(whole.stdout)["ok"]) == (1, False)
    wrong = await run("--since", "yesterday")
    assert wrong.returncode == 1
    assert "--since" in wrong.stderr


async def test_what_was_acknowledged_of_the_topic_is_told_and_leaves_the_audit_green(
    place: Place, tmp_path: Path
) -> None:
    more = "UPDATE log_records SET value = value || ' '::bytea WHERE " + DECIDED
    columns = "key, value || ' '::bytea, timestamp_ms FROM log_records"
    await change(
        place,
        "INSERT INTO log_records (topic, partition, log_offset, key, value, timestamp_ms)"
        f" SELECT topic, partition, 1000 + log_offset, {columns} WHERE {DECIDED} AND log_offset < 3",
    )
    await change(place, f"UPDATE log_topics SET next_offset = 2000 WHERE {DECIDED}")

    async def run(*options: str) -> Any:
        return await asyncio.to_thread(
            berth, tmp_path, "audit", "--topic", "--postgres-dsn", place.dsn, *options
        )

    assert (await run()).returncode == 1
    async with contextlib.aclosing(bootstrap.open_outbox(place)) as outbox:
        epoch = await outbox.acquire(0, "relay", 10)
        await outbox.raise_alarm(0, epoch, "the ledger was set back", 2000)
        await outbox.acknowledge()
    found = await run()
    assert found.returncode == 0, found.stdout
    told = "passed over: 3 records of berth.decisions, partition 0, from offset 1000 to 1002, which "
    assert told in found.stdout
    (passed,) = json.loads((await run("-o", "json")).stdout)["passed_over"]
    assert (passed["records"], passed["first_offset"], passed["last_offset"]) == (3, 1000, 1002)
    assert passed["acknowledged_at"] > "2020"
    await change(place, f"{more} AND log_offset = 3")
    assert (await run()).returncode == 1, "a decision of the ledger is left out now"


async def test_pods_of_which_nothing_was_heard_since_they_were_placed_are_named_where_asked(
    place: Place,
) -> None:
    assert (await audit(place, unconfirmed_seconds=3_600)).broken == [], "none is that old"
    await change(place, "UPDATE placements SET recorded_at = recorded_at - interval '2 hours'")
    assert "unconfirmed" not in {each.name for each in (await audit(place)).broken}
    (found,) = [e for e in (await audit(place, unconfirmed_seconds=3_600)).broken if e.name == "unconfirmed"]
    open_ones = "released_at_ms IS NULL AND NOT adopted"
    named = {row["pod_uid"] for row in found.rows}
    assert found.warning
    assert named
    heard = sorted(named)[0]
    await change(
        place, f"UPDATE placements SET resource_version = 1000000 WHERE {open_ones} AND pod_uid = '{heard}'"
    )
    found_then = (await audit(place, unconfirmed_seconds=3_600)).broken
    assert {row["pod_uid"] for e in found_then if e.name == "unconfirmed" for row in e.rows} == named - {
        heard
    }
