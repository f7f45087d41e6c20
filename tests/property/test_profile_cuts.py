"""Is a pod placed by the revision that was in force at its place in the log, wherever the log is cut?"""

from __future__ import annotations

from random import Random
from typing import Any

import orjson
import pytest

from services.ports.ledger import Committed
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Record
from tests.builders import Json, event, node_manifest, pod_manifest, profile_manifest
from tests.depth import some
from tests.property.profile_log import Producer, decisions, written
from tests.property.site import Site, audit, batches, kept

SEEDS = some(range(30))


@pytest.mark.parametrize("seed", SEEDS)
def test_two_cuttings_of_one_log_give_the_same_decisions(seed: int) -> None:
    records = Producer(Random(seed)).records()
    whole, cut = Site(), Site()
    whole.take(records)
    audit(whole)
    random = Random(seed)
    for batch in batches(records, random):
        cut.take(batch)
        audit(cut)
        if random.random() < 0.3:
            again = cut.restarted()
            assert kept(again) == kept(cut.planner)
            cut.planner = again
    assert written(cut) == written(whole)


def revisions_of_pods(records: list[Record]) -> dict[str, int | None]:
    """Read the log as the page about profiles has it: which revision is in force where a pod comes."""
    built_in: dict[str, Any] = {"default-scheduler": "built in", "first-fit": "built in"}
    content, number = dict(built_in), dict.fromkeys(built_in, 1)
    versions: dict[str, int] = {}
    found: dict[str, int | None] = {}
    for each in records:
        said: Json = orjson.loads(each.value) if each.value else {"type": "DELETED", "object": {}}
        name = (each.key or b"").decode().partition("/")[2]
        if each.topic == PODS_TOPIC:
            profile = said["object"]["spec"]["schedulerName"]
            found[name] = number[profile] if content.get(profile) else None
        if each.topic != CONFIG_TOPIC:
            continue
        raw = said["object"].get("metadata", {}).get("resourceVersion")
        version, known = (None if raw is None else int(raw)), versions.get(name, -1)
        deleted = said["type"] == "DELETED"
        spec = built_in.get(name) if deleted else said["object"]["spec"]
        if (not deleted and "'Most'" in str(spec)) or (deleted and name not in number):
            continue
        if version is not None and (version < known or (version == known and not deleted)):
            continue
        without_one = -1 if deleted else known  # a deletion without a version forgets the known one
        versions[name] = without_one if version is None else version
        if name not in number or spec != content.get(name):
            content[name], number[name] = spec, number.get(name, 0) + 1
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_decisions_name_the_revision_that_was_in_force(seed: int) -> None:
    site = Site()
    records = Producer(Random(seed)).records()
    site.take(records)
    first: dict[str, int | None] = {}
    for decision in sorted((d for rows in decisions(site) for d in rows), key=lambda d: d["seq"]):
        first.setdefault(decision["pod"]["name"], decision["profile_revision"])
    assert first == revisions_of_pods(records)
    assert None in first.values() or max(n for n in first.values() if n) > 1


def test_a_batch_ends_before_and_after_a_profile() -> None:
    site, producer = Site(), Producer(Random(0))
    node = producer._append(NODES_TOPIC, "n", event("ADDED", node_manifest("n")))
    profile = producer._append(
        CONFIG_TOPIC, "SchedulingProfile/mine", event("ADDED", profile_manifest("mine"))
    )
    pods = [producer._pod(i) for i in range(2)]
    sizes = []
    records = [node, pods[0], profile, pods[1]]
    while records or site.planner.has_work:
        batch = site.planner.plan_batch(records)
        assert site.database.apply(batch) == Committed()
        sizes.append(
            (
                len(batch.cluster.profiles),
                sum(a.hi - a.lo for a in batch.offsets.advances if a.topic[0] != "~"),
            )
        )
        records = []
    assert sizes == [(0, 2), (1, 1), (0, 1)]


def test_a_profile_of_the_ledger_that_is_no_longer_accepted_holds_its_pods(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site, producer = Site(), Producer(Random(0))
    manifest = profile_manifest("mine")
    site.take([producer._append(CONFIG_TOPIC, "SchedulingProfile/mine", event("ADDED", manifest))])
    spec = site.database.profiles["mine", 1].spec
    assert spec is not None
    spec["scores"] = [{"name": "Vanished"}]
    site.planner = site.restarted()
    assert "profile mine, revision 1: scores[0].name: 'Vanished' is unknown" in caplog.text
    site.take(
        [
            producer._append(NODES_TOPIC, "n", event("ADDED", node_manifest("n"))),
            producer._append(
                PODS_TOPIC, "default/p", event("ADDED", pod_manifest("p", scheduler_name="mine"))
            ),
        ]
    )
    (waiting,) = (d for rows in decisions(site) for d in rows)
    assert waiting["reasons"] == {"unknown-profile:mine": 1}
    site.take([producer._append(CONFIG_TOPIC, "SchedulingProfile/mine", event("MODIFIED", manifest))])
    (bound,) = (d for rows in decisions(site) for d in rows if d["outcome"] == "bound")
    assert bound["profile_revision"] == 2
