"""Is what a real worker decided verified, and does `berth plan` answer its case alike?"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from domain.model.profiles import BUILT_IN_PROFILES
from services import bootstrap
from services.bootstrap import Place
from services.config import SETTINGS
from services.replay.planning import Progress
from services.replay.verify import Verified
from services.replay.what_if import Change
from services.replay.workers import CannotReplay
from services.traces import openb
from tests.builders import pod_manifest
from tests.history.lived import answered
from tests.integration.api_world import client_of, fresh_database, query, work_off
from tests.integration.commands import BERTH
from tests.integration.waves import wave

PODS = 300
PIECES = 3


@pytest_asyncio.fixture
async def place(embedded_dsn: str) -> AsyncIterator[Place]:
    """Return a ledger and a log with some of the openb trace, and two shards of other pods."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        events = list(openb.events())
        pods = [each for each in events if each["object"]["kind"] == "Pod"][:PODS]
        nodes = [each for each in events if each["object"]["kind"] == "Node"][::8]
        async with client_of(place) as client:
            for number in range(PIECES):
                size = PODS // PIECES
                sent = [*(nodes if not number else ()), *pods[number * size : (number + 1) * size]]
                answer = await client.post("/v1/events", json=[*sent, *wave(number)])
                assert answer.status_code == 202, answer.text
                await work_off(place)
        yield place


async def silent(progress: Progress) -> None:
    pass


async def verify(place: Place, shard: int, seq: int) -> Verified:
    return await bootstrap.verify(place, shard, seq, silent)


def run(place: Place, directory: Path, *arguments: str, stdin: str | None = None) -> Any:
    names = {setting.env for setting in SETTINGS}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    env = kept | {"BERTH_DIR": str(directory), "BERTH_POSTGRES_DSN": place.dsn}
    return subprocess.run(
        [*BERTH, *arguments], env=env, input=stdin, capture_output=True, text=True, timeout=120
    )


@pytest.mark.deep
async def test_decisions_of_a_real_ledger_are_verified_and_planned_alike(
    place: Place, tmp_path: Path
) -> None:
    rows = await query(place, "SELECT shard, seq, outcome FROM decisions ORDER BY shard, seq")
    assert len(rows) > PODS
    for shard, seq, _ in rows[:: len(rows) // 12]:
        assert (await verify(place, shard, seq)).is_same
    tried = [row for row in rows if row["outcome"] in ("bound", "unschedulable", "unresolvable")]
    waits = [row for row in tried if row["outcome"] != "bound"]
    for shard, seq, _ in [*tried[:: len(tried) // 8], *waits[:3]]:
        document = await bootstrap.case(place, shard, seq, silent)
        wanted = document["expect"]
        assert answered(document) == (wanted.get("node"), wanted["reasons"])

    shard, seq, _ = tried[-1]
    done = await asyncio.to_thread(run, place, tmp_path, "explain", "decision", f"{shard}-{seq}", "--verify")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"decision {shard}-{seq}: the same bytes, planned from the checkpoint")
    assert "again, from the checkpoint after batch 0" in done.stderr
    done = await asyncio.to_thread(run, place, tmp_path, "explain", "decision", f"{shard}-{seq}", "--as-case")
    assert done.returncode == 0, done.stderr
    wanted = json.loads(done.stdout)["expect"]
    planned = await asyncio.to_thread(
        run, place, tmp_path, "plan", "-f", "-", "-o", "json", stdin=done.stdout
    )
    assert planned.returncode == 0, planned.stderr
    (answer,) = [each for each in json.loads(planned.stdout) if each["pod"] == wanted["pod"]]
    assert (answer["outcome"], answer["node"]) == (wanted["outcome"], wanted.get("node"))


@pytest.mark.deep
async def test_a_real_span_is_lived_again_as_it_was_and_under_another_profile(
    place: Place, tmp_path: Path
) -> None:
    profile = BUILT_IN_PROFILES["most-allocated"]
    found = await bootstrap.what_if(place, Change(profile), None, None, silent)
    assert found.unlike_count == 0, "one worker at a time, three of them: the control"
    assert found.moved_count > PODS // 2
    assert found.was.placed_count > PODS
    lines = ("replay", "--profile", "most-allocated", "-o", "csv")
    done = await asyncio.to_thread(run, place, tmp_path, *lines)
    assert done.returncode == 0, done.stderr
    figures = list(csv.DictReader(done.stdout.splitlines()))
    assert figures[0] == {
        "what": "pods placed",
        "was": str(found.was.placed_count),
        "would": str(found.would.placed_count),
    }
    done = await asyncio.to_thread(run, place, tmp_path, "replay", "-o", "csv")
    assert (done.returncode, "csv is for --profile and --with" in done.stderr) == (2, True)
    pod = tmp_path / "pod.json"
    pod.write_text(json.dumps(pod_manifest("p")))
    done = await asyncio.to_thread(run, place, tmp_path, "replay", "--with", str(pod))
    assert (done.returncode, "--with takes nodes alone" in done.stderr) == (1, True)


async def test_what_was_changed_in_a_real_ledger_is_named(place: Place, tmp_path: Path) -> None:
    (row,) = await query(place, "SELECT shard, seq, payload FROM decisions WHERE outcome = 'bound' LIMIT 1")
    shard, seq, payload = row
    node = json.loads(payload)["node"]
    changed = payload.replace(f'"node":"{node}"'.encode(), b'"node":"elsewhere"')
    await query(place, "UPDATE decisions SET payload = $3 WHERE shard = $1 AND seq = $2", shard, seq, changed)
    found = await verify(place, shard, seq)
    assert [(each.field, each.recorded, each.replayed) for each in found.differing] == [
        ("node", "elsewhere", node)
    ]
    assert found.was_changed
    done = await asyncio.to_thread(run, place, tmp_path, "explain", "decision", f"{shard}-{seq}", "--verify")
    assert done.returncode == 1
    assert "it was changed in the ledger" in done.stdout
    assert "node\n  recorded  elsewhere\n" in done.stdout
    await query(place, "UPDATE decisions SET payload = $3 WHERE shard = $1 AND seq = $2", shard, seq, payload)

    await query(place, "UPDATE journal SET feed = (SELECT feed FROM journal WHERE batch = 2) WHERE batch = 1")
    beside = (await verify(place, shard, seq)).beside
    assert beside is not None
    assert (beside.batch, beside.what) == (1, "what other workers follow")
    await query(place, "DELETE FROM checkpoints")
    with pytest.raises(CannotReplay, match="there is no checkpoint"):
        await verify(place, shard, seq)
    await query(place, "DELETE FROM journal")
    with pytest.raises(CannotReplay, match=f"does not have the batch of decision {shard}-{seq}: it is empty"):
        await verify(place, shard, seq)
