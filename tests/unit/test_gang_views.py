"""Do the views say of gangs how many pods have a node, and what the others wait for, on 80 columns, too?"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from services.adapters.memory.store import MemoryStore
from services.api.explanation import explain
from services.api.gangs import Gang, GangDetail, list_gangs, show_gang
from services.api.views import show_pod
from services.cli import describe
from services.cli import explain as explaining
from services.cli.get import Kind, kind_of
from services.cli.output import Table
from services.cli.tables import TABLES
from services.cli.watch import GONE, KEYS
from tests.builders import Json, node_manifest, pod_group_manifest, pod_manifest
from tests.property.site import Site

LABEL = "scheduling.x-k8s.io/pod-group"


def member(name: str, gang: str, namespace: str = "default", cpu: str = "2", **more: Any) -> Json:
    return pod_manifest(name, namespace, cpu=cpu, labels={LABEL: gang}, **more)


@pytest.fixture
def site() -> Site:
    """Return a ledger with gangs: one runs, one is too large, one too small, and one has no PodGroup."""
    site = Site()
    site.tell("ADDED", node_manifest("n1", cpu=4), node_manifest("n2", cpu=4))
    site.tell("ADDED", pod_group_manifest("runs", 2), pod_group_manifest("large", 3))
    site.tell("ADDED", pod_group_manifest("small", 2, "shop", scheduleTimeoutSeconds=60))
    pods = [member(f"run-{i}", "runs", cpu="1") for i in range(2)]
    pods += [member(f"large-{i}", "large") for i in range(4)]
    site.tell("ADDED", *pods, member("lonely", "small", "shop"), member("lost", "none", "shop"))
    return site


def listed(site: Site) -> dict[str, Gang]:
    items = asyncio.run(list_gangs(MemoryStore(site.database), None, limit=10, at=None)).items
    return {item.name: item for item in items}


def shown(site: Site, name: str, namespace: str = "default") -> GangDetail:
    found = asyncio.run(show_gang(MemoryStore(site.database), namespace, name))
    assert found is not None
    return found


def test_each_gang_says_how_many_pods_have_a_node_and_what_the_others_lack(site: Site) -> None:
    gangs = listed(site)
    assert list(gangs) == ["large", "runs", "none", "small"], "by namespace and name"
    large, runs, none, small = gangs.values()
    assert (runs.min_member, runs.members, runs.placed, runs.waiting) == (2, 2, 2, 0)
    assert (runs.why, runs.since) == (None, None)
    assert (large.members, large.placed, large.waiting) == (4, 0, 4)
    assert large.why == "2 lack cpu"
    assert large.reasons == {"insufficient:cpu": 2}
    assert large.since is not None
    assert small.why == "1 of at least 2 pods exist"
    assert (none.min_member, none.why) == (None, "there is no such PodGroup")


def test_a_gang_goes_on_to_be_known_when_its_pods_come_and_leave(site: Site) -> None:
    site.tell("ADDED", node_manifest("n3", cpu=8))
    large = listed(site)["large"]
    assert (large.placed, large.waiting, large.why) == (4, 0, None)
    site.tell("DELETED", *[member(f"large-{i}", "large") for i in range(3)])
    large = listed(site)["large"]
    assert (large.members, large.placed, large.why) == (1, 1, None)
    site.tell("DELETED", pod_group_manifest("large", 3))
    assert "large" not in listed(site), "nothing waits for it"
    assert [pod.name for pod in shown(site, "large").pods] == ["large-3"]
    assert shown(site, "large").min_member is None


def test_a_pod_with_a_gate_is_no_reason_of_its_gang(site: Site) -> None:
    gated = member("gated", "small", "shop", spec={"schedulingGates": [{"name": "later"}]})
    site.tell("ADDED", gated)
    small = listed(site)["small"]
    assert small.why == "2 pods exist; some of them wait for something of their own, or are of other shards"


def test_one_gang_is_shown_with_its_pods(site: Site) -> None:
    gang = shown(site, "small", "shop")
    assert (gang.schedule_timeout_seconds, gang.min_resources) == (60, {})
    assert [(pod.name, pod.phase) for pod in gang.pods] == [("lonely", "pending")]
    assert (gang.found, gang.missing) == (0, None)
    large = shown(site, "large")
    assert large.found == 2
    assert large.missing in {f"default/large-{i}" for i in range(4)}
    store = MemoryStore(site.database)
    assert asyncio.run(show_gang(store, "shop", "nobody")) is None
    assert asyncio.run(show_gang(store.seen_by({"default"}), "shop", "small")) is None


def test_only_gangs_of_namespaces_that_are_seen_are_listed_page_by_page(site: Site) -> None:
    store = MemoryStore(site.database).seen_by({"shop"})
    first = asyncio.run(list_gangs(store, None, limit=1, at=None))
    second = asyncio.run(list_gangs(store, None, limit=1, at=first.next))
    assert [gang.name for gang in (*first.items, *second.items)] == ["none", "small"]
    assert second.next is None
    only = asyncio.run(list_gangs(MemoryStore(site.database), "shop", limit=9, at=None))
    assert [gang.name for gang in only.items] == ["none", "small"]


def test_tables_fit_80_columns(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    Table(TABLES[Kind.GANGS], aligned=True).add(list(map(msgspec.to_builtins, listed(site).values())))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["GANG", "MIN", "PLACED", "WAITING", "WHY", "THEY", "WAIT", "SINCE"]
    assert "2 lack cpu" in lines[1]
    assert max(map(len, lines)) <= 80


def test_describe_and_explain_name_the_gang(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    describe._gang(msgspec.to_builtins(shown(site, "large")))
    said = capsys.readouterr().out
    for part in ("0 of at least 3", "2 lack cpu", "2 more would have had a node", "Pods (4)", "large-3"):
        assert part in said
    store = MemoryStore(site.database)
    pod = asyncio.run(show_pod(store, "default", "large-0"))
    assert pod is not None
    assert pod.gang == "default/large"
    shard, seq = map(int, pod.decisions[0].id.split("-"))
    explained = asyncio.run(explain(store, shard, seq))
    answer = {
        "pod": msgspec.to_builtins(pod),
        "gang": msgspec.to_builtins(shown(site, "large")),
        "explanation": msgspec.to_builtins(explained),
        "attempts": {"summary": "", "items": []},
        "profiles": None,
    }
    explaining.print_pod(answer)
    said = capsys.readouterr().out
    assert "default/large: at least 3, 0 placed, 4 waiting" in said
    assert "found no node; 2 more would have had a node." in said
    assert "what was decided last, at " in said
    assert "waits for the others of its gang" in said


def test_the_kind_has_names_and_can_be_watched() -> None:
    assert {kind_of(name) for name in ("gangs", "gang")} == {Kind.GANGS}
    assert KEYS[Kind.GANGS] == ("namespace", "name")
    assert Kind.GANGS in GONE
