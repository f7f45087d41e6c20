"""Is a gang beside a stream of small pods told what docs/gangs.md says?"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from services.adapters.memory.ledger import state_of
from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.property.site import Site, planner_at

PAGE = (Path(__file__).parents[2] / "docs" / "gangs.md").read_text()
AT_MS = 1_700_000_000_000


def tell(site: Site, second: int, kind: str, *manifests: Json) -> None:
    fresh = site.records([(kind, each, AT_MS + 1_000 * second) for each in manifests])
    while (batch := site.planner.plan(fresh)) is not None:
        site.database.apply(batch)
        fresh = []


def small(number: int) -> Json:
    return pod_manifest(f"small-{number}", cpu="1")


def test_small_pods_and_a_gang() -> None:
    (shown,) = [part.split("```")[0] for part in PAGE.split("```text\n") if part.startswith("SECOND")]
    rows = [line.split() for line in shown.splitlines()[1:]]
    site = Site()
    settings = {"seed": 3, "backoff_ms": (1_000, 10_000), "reservation_seconds": 300}
    site.planner = planner_at(site.leases, state_of(site.database, site.leases), **settings)
    tell(site, 0, "ADDED", *(node_manifest(f"node-{i}", cpu=2) for i in range(3)))
    tell(site, 0, "ADDED", *map(small, range(6)))
    labels = {"scheduling.x-k8s.io/pod-group": "training"}
    workers = [pod_manifest(f"worker-{i}", cpu="2", labels=labels) for i in range(2)]
    tell(site, 0, "ADDED", pod_group_manifest("training", 2), *workers)
    for second in range(1, int(rows[-1][0]) + 1):
        names = [row.opened.name for row in site.database.open_placements.values()]
        tell(site, second, "ADDED", small(5 + second))
        tell(site, second, "DELETED", small(min(int(name.removeprefix("small-")) for name in names)))
    told = []
    for each in site.decided():
        passed_s = int(datetime.fromisoformat(each["decided_at"]).timestamp()) - AT_MS // 1_000
        told.append([str(passed_s), each["pod"]["name"], each["outcome"], *filter(None, [each["node"]])])
    assert [row for row in told if row[1].startswith("worker")] == rows
