"""May the key of an agent do what its node needs, and nothing elsewhere?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from services.ports.log import PODS_TOPIC, USAGE_TOPIC
from tests.builders import action_manifest, event, node_manifest, pod_manifest, usage_manifest
from tests.property.site import Site
from tests.security.keyed import House, keyed_house


@pytest.fixture
def site() -> Site:
    """Return two nodes with a pod each."""
    site = Site()
    site.tell("ADDED", node_manifest("n1"), node_manifest("n2"))
    for number in (1, 2):
        site.tell("ADDED", pod_manifest(f"p{number}", "a", node_name=f"n{number}", uid=f"u{number}"))
    return site


@pytest_asyncio.fixture
async def house(site: Site) -> AsyncIterator[House]:
    """Return an API over them, and the key of the agent of n1."""
    async with keyed_house(site.database) as house:
        await house.key("agent", ["agent"], node="n1")
        yield house


def failed(name: str, node: str = "n1", uid: str = "u1", phase: str | None = "Failed") -> dict[str, Any]:
    """Return the event of a pod, as an agent sends it."""
    thing: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "a", "name": name, "uid": uid},
        "spec": {"nodeName": node, "containers": [{"name": "evicted"}]},
    }
    if phase is not None:
        thing["status"] = {"phase": phase, "reason": "Evicted", "message": "low pods are starved"}
    return event("MODIFIED", thing)


async def test_an_agent_sends_what_is_of_its_node(house: House) -> None:
    things = [usage_manifest("n1", percent={"cpu": 5}), action_manifest("n1")]
    answer = await house.send("agent", *(event("MODIFIED", thing) for thing in things), failed("p1"))
    assert answer.status_code == 202, answer.text
    assert house.keys_of(USAGE_TOPIC) == ["n1", "n1"]
    assert house.keys_of(PODS_TOPIC) == ["a/p1"]


@pytest.mark.parametrize(
    ("sent", "path"),
    [
        (event("MODIFIED", usage_manifest("n2", percent={"cpu": 5})), "object.metadata.name"),
        (event("DELETED", usage_manifest("n2")), "object.metadata.name"),
        (event("MODIFIED", action_manifest("n2")), "object.metadata.name"),
        (event("MODIFIED", node_manifest("n1")), "object.kind"),
        (failed("p2", node="n2", uid="u2"), "object.spec.nodeName"),
        (failed("p2", uid="u2"), "object.metadata.uid"),  # it is on n2, whatever the event says
        (failed("p1", uid="u9"), "object.metadata.uid"),
        (failed("none", uid="u1"), "object.metadata.uid"),
        (failed("p1", phase="Running"), "object.status.phase"),
        (failed("p1", phase="Succeeded"), "object.status.phase"),
        (failed("p1", phase=None), "object.status.phase"),
        (event("DELETED", pod_manifest("p1", "a", uid="u1")), "object.status.phase"),
        (failed("p1") | {"type": "BIND_FAILED"}, "object.status.phase"),
    ],
)
async def test_an_agent_sends_nothing_else(house: House, sent: dict[str, Any], path: str) -> None:
    answer = await house.send("agent", sent)
    assert answer.status_code == 403, answer.text
    (detail,) = answer.json()["error"]["details"]
    assert detail["path"] == path
    assert "the key agent may" in detail["message"]
    assert house.keys_of(USAGE_TOPIC) + house.keys_of(PODS_TOPIC) == []


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/v1/pods?node=n1", 200),
        ("/v1/pods?node=n1&phase=bound&limit=1", 200),
        ("/v1/pods?node=n2", 403),
        ("/v1/pods", 403),
        ("/v1/pods/a/p1", 403),
        ("/v1/nodes/n1", 200),
        ("/v1/nodes/n2", 403),
        ("/v1/nodes", 403),
        ("/v1/nodes?name=n1", 403),
        ("/v1/config?kind=CoLocationPolicy", 200),
        ("/v1/config?kind=Service", 403),
        ("/v1/config", 403),
        ("/v1/actions?node=n1", 403),
        ("/v1/decisions", 403),
        ("/v1/keys", 403),
        ("/metrics", 403),
    ],
)
async def test_an_agent_asks_about_its_node_alone(house: House, target: str, status: int) -> None:
    answer = await house.ask("agent", "GET", target)
    assert answer.status_code == status, answer.text


async def test_of_two_nodes_in_a_question_the_one_that_is_answered_counts(house: House) -> None:
    assert (await house.ask("agent", "GET", "/v1/pods?node=n1&node=n2")).status_code == 403
    answer = await house.ask("agent", "GET", "/v1/pods?node=n2&node=n1")
    assert [each["name"] for each in answer.json()["items"]] == ["p1"]
