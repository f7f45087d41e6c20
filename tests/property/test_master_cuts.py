"""Do masters get the same nodes, for the same reasons, wherever the log is cut?"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, Record
from tests.builders import event, node_manifest, pod_manifest, profile_manifest
from tests.depth import some
from tests.property.profile_log import Producer, written
from tests.property.site import Site, audit, batches

SEEDS = some(range(30))
NODES_COUNT, PODS_COUNT = 3, 60


class Clusters(Producer):
    """Writes nodes, a profile with a share for masters, then masters, replicas and other pods."""

    def records(self) -> list[Record]:
        random = self.random
        nodes = [node_manifest(f"n{i}", cpu=random.choice((2, 4))) for i in range(NODES_COUNT)]
        share = {"name": "MasterShare", "args": {"share": random.choice((0, 25, 40, 50))}}
        profile = profile_manifest("shares", "LeastAllocated", filters=["NodeResourcesFit", share])
        return [
            self._append(CONFIG_TOPIC, "SchedulingProfile/shares", event("ADDED", profile)),
            *(self._append(NODES_TOPIC, f"n{i}", event("ADDED", each)) for i, each in enumerate(nodes)),
            *(self._member(i) for i in range(PODS_COUNT)),
        ]

    def _member(self, number: int) -> Record:
        random = self.random
        labels = {
            "berth.io/cluster": random.choice("xy"),
            "berth.io/role": random.choice(("master", "replica")),
        }
        pod = pod_manifest(
            f"p{number}",
            cpu=random.choice(("100m", "300m")),
            labels=random.choice((labels, labels, {})),
            scheduler_name=random.choice(("shares", "shares", "first-fit")),
            resource_version=1,
        )
        return self._append(PODS_TOPIC, f"default/p{number}", event("ADDED", pod))


@pytest.mark.parametrize("seed", SEEDS)
def test_two_cuttings_of_one_log_place_masters_alike(seed: int) -> None:
    records = Clusters(Random(seed)).records()
    whole, cut = Site(), Site()
    whole.take(records)
    for batch in batches(records, Random(seed)):
        cut.take(batch)
        audit(cut)
    assert said(cut) == said(whole)


def said(site: Site) -> dict[str, Any]:
    """Return all that was written, but for the time of decisions: a woken pod's is that of its batch."""
    found = written(site)
    for each in (each for shard in found["decisions"] for each in shard):
        del each["decided_at"]
    return found


@pytest.mark.deep
def test_the_logs_let_masters_wait_and_wake() -> None:
    """Else the test above would say little."""
    refused = woken = 0
    for seed in SEEDS:
        site = Site()
        site.take(Clusters(Random(seed)).records())
        decisions = [each for shard in said(site)["decisions"] for each in shard]
        refusals = [each for each in decisions if "master-share" in each.get("reasons", ())]
        waited = {each["pod"]["name"] for each in refusals}
        refused += len(waited)
        woken += sum(each["outcome"] == "bound" and each["pod"]["name"] in waited for each in decisions)
    assert refused > 2 * len(SEEDS)
    assert woken > len(SEEDS)
