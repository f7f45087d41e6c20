"""Does a history tell all of it in one order, why a pod is where it is, and to each key what it may see?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from domain.model.actions import ActionKind, NodeAction
from domain.model.decisions import Outcome
from services.adapters.memory.database import MemoryDatabase
from services.api.answers_past import HistoryPage
from services.api.formats import instant
from services.ports.ledger import ActionRow, PendingGroup
from tests.contract.batches import (
    AT_MS,
    SIGNATURE,
    change_node,
    decision,
    new_node,
    node_spec,
    opened,
    profile,
)
from tests.integration.api_world import checked
from tests.security.keyed import House, keyed_house
from tests.streaming import Writer


def at(seconds: int) -> int:
    return AT_MS + 1000 * seconds


def refused_group(lease: Any, seconds: int, reason: str) -> PendingGroup:
    return PendingGroup(
        shard=lease.shard,
        signature=SIGNATURE,
        reasons={reason: 1},
        unresolvable=False,
        cycle_seq=0,
        at_ms=at(seconds),
        profile="default-scheduler",
        profile_revision=1,
        nodes_count=1,
    )


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    """Return an API on a ledger in which a/web waited until b/other left n1, and n1 was cordoned later."""
    database = MemoryDatabase(1)
    writer = Writer(database)
    await writer.begin()
    lease = writer.lease()

    def of(seq: int, pod: str, node: str | None, seconds: int, **more: Any) -> Any:
        namespace, _, name = pod.partition("/")
        return decision(lease, seq, name, node, namespace=namespace, decided_at_ms=at(seconds), **more)

    await writer.write(decisions=[of(1, "b/other", "n1", 1)], facts=[new_node(1, sent_by="key:ops")])
    waits = [refused_group(lease, 2, "insufficient:cpu")]
    await writer.write(decisions=[of(2, "a/web", None, 2)], pending_groups=waits)
    gone = of(3, "b/other", "n1", 3, outcome=Outcome.RELEASED)
    placed = of(4, "a/web", "n1", 3)
    await writer.write(2, decisions=[gone, placed], opened=[opened(placed)])
    action = NodeAction(
        node="n1",
        at_ms=at(4),
        kind=ActionKind.EVICT,
        quality="low",
        reason="cpu is hot",
        policy="p",
        pod="a/web",
        uid="uid-web",
    )
    cordoned = change_node(1, 1, spec=node_spec("n1", unschedulable=True), spec_count=2)
    actions = [ActionRow(action, at(4), "key:agent")]
    await writer.write(
        decisions=[of(5, "b/late", None, 4)],
        facts=[cordoned],
        actions=actions,
        profiles=[profile("mine", 1), profile("mine", 2)],
    )
    async with keyed_house(database) as found:
        await found.key("auditor", ["auditor"])
        for team in ("a", "b"):
            await found.key(f"team-{team}", ["auditor"], namespaces=[team])
        await found.key("agent", ["agent"], node="n1")
        yield found


async def history(house: House, key: str, target: str, **params: Any) -> Any:
    answer = await house.ask(key, "GET", f"/v1/history/{target}", params=params)
    assert answer.status_code == 200, answer.text
    return checked(answer.json(), HistoryPage)


def said(page: Any) -> list[tuple[str, str | None]]:
    return [(each["kind"], each["id"]) for each in page["items"]]


async def test_a_pod_is_told_with_its_attempts_and_actions_in_one_order(house: House) -> None:
    page = await history(house, "auditor", "pods/a/web")
    kinds = [("attempt", None), ("decision", "0-2"), ("decision", "0-4"), ("action", "1")]
    assert said(page) == kinds
    assert page["items"][0]["says"] == "No node was found: of 1 node, 1 lacks cpu."
    assert page["items"][2]["links"]["explanation"] == "/v1/decisions/0-4/explanation"
    assert page["items"][3]["action"]["reason"] == "cpu is hot"
    newest = await history(house, "auditor", "pods/a/web", order="newest")
    assert said(newest) == kinds[::-1]


async def test_a_history_ends_at_a_moment(house: House) -> None:
    whole = said(await history(house, "auditor", "nodes/n1"))
    page = await history(house, "auditor", "nodes/n1", until=instant(at(3)))
    assert said(page) == whole[: len(page["items"])]
    assert 0 < len(page["items"]) < len(whole)
    first = await history(house, "auditor", "nodes/n1", until=instant(at(3)), order="newest", limit=1)
    more = await history(
        house, "auditor", "nodes/n1", until=instant(at(3)), order="newest", cursor=first["next"]
    )
    assert said(first) + said(more) == said(page)[::-1]
    assert said(await history(house, "auditor", "pods/a/web", until="2001-01-01")) == []
    assert (await history(house, "auditor", "pods/a/web", until="now"))["why_now"] is None
    answer = await house.ask("auditor", "GET", "/v1/history/nodes/n1", params={"until": "never"})
    assert answer.status_code == 422


@pytest.mark.parametrize("target", ["pods/a/web", "nodes/n1", "shards/0", "profiles/mine"])
async def test_pages_join_to_the_whole(house: House, target: str) -> None:
    for order in ("oldest", "newest"):
        whole = (await history(house, "auditor", target, order=order))["items"]
        assert whole
        for limit in (1, 2, 3):
            found, cursor = [], None
            while True:
                more: dict[str, str] = {"cursor": cursor} if cursor else {}
                page = await history(house, "auditor", target, order=order, limit=limit, **more)
                found += page["items"]
                cursor = page["next"]
                if cursor is None:
                    break
            assert found == whole


async def test_what_made_room_for_a_pod_is_what_happened_on_its_node(house: House) -> None:
    why = (await history(house, "auditor", "pods/a/web"))["why_now"]
    assert (why["decision"], why["node"], why["reasons"]) == ("0-4", "n1", {"insufficient:cpu": 1})
    assert [each["id"] for each in why["changed"]] == ["0-3"]
    assert "b/other is gone from n1" in why["summary"]
    assert (await history(house, "auditor", "pods/b/other"))["why_now"] is None, "it is gone"
    assert (await history(house, "auditor", "pods/b/late"))["why_now"] is None, "it waits"


async def test_a_node_is_told_with_its_specs_and_the_pods_on_it(house: House) -> None:
    page = await history(house, "auditor", "nodes/n1")
    assert said(page) == [
        ("spec", "1"),
        ("decision", "0-1"),
        ("decision", "0-3"),
        ("decision", "0-4"),
        ("spec", "2"),
        ("action", "1"),
    ]
    assert page["items"][0]["says"] == "n1 came."
    assert page["items"][4]["spec"]["unschedulable"] is True


async def test_shards_and_profiles_have_their_own(house: House) -> None:
    shard = await history(house, "auditor", "shards/0")
    assert said(shard) == [("owner", "1")]
    assert shard["items"][0]["facts"]["owner"] == "worker"
    assert shard["journal"] == {"first": 1, "last": 4, "missing": 0}
    mine = await history(house, "auditor", "profiles/mine", order="newest")
    assert said(mine) == [("revision", "2"), ("revision", "1")]


async def test_a_key_with_namespaces_is_told_of_its_pods_alone(house: House) -> None:
    own = await history(house, "team-a", "pods/a/web")
    assert said(own)[1:3] == [("decision", "0-2"), ("decision", "0-4")]
    assert own["why_now"]["changed"] == [], "who left is of another namespace"
    assert "b/" not in str(own)
    for key, pod in (("team-a", "b/other"), ("team-b", "a/web")):
        answer = await house.ask(key, "GET", f"/v1/history/pods/{pod}")
        assert answer.status_code == 404, "as one that does not exist"
    node = await history(house, "team-a", "nodes/n1")
    assert said(node) == [("spec", "1"), ("decision", "0-4"), ("spec", "2"), ("action", "1")]
    assert all(node["items"][at]["spec"]["spec_sent_by"] is None for at in (0, 2))
    assert node["items"][3]["action"]["sent_by"] is None
    other = await history(house, "team-b", "nodes/n1")
    assert "a/web" not in str(other)


async def test_who_may_not_read_is_told_nothing(house: House) -> None:
    for target in ("pods/a/web", "nodes/n1", "shards/0", "profiles/mine"):
        for key, status in ((None, 401), ("agent", 403)):
            assert (await house.ask(key, "GET", f"/v1/history/{target}")).status_code == status


async def test_what_is_not_there_is_404_and_what_is_no_cursor_422(house: House) -> None:
    for target in ("pods/a/none", "nodes/none", "shards/7", "profiles/none"):
        assert (await house.ask("auditor", "GET", f"/v1/history/{target}")).status_code == 404
        wrong = await house.ask("auditor", "GET", f"/v1/history/{target}?cursor=x")
        assert (wrong.status_code, wrong.json()["error"]["path"]) == (422, "cursor")
