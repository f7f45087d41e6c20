"""Is it told what somebody has to see to though berth works?"""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from services.console.blocks import Text
from services.console.here import Here
from services.console.needs import needs

HERE = Here("/console", "/wrong", {}, None, "", datetime.datetime.now(datetime.UTC))
NOTHING: dict[str, Any] = {"pending": [], "nominations": [], "late": []}


def group(name: str, count: int, *, unresolvable: bool) -> dict[str, Any]:
    return {"examples": [name], "count": count, "unresolvable": unresolvable}


def cleared(name: str) -> dict[str, Any]:
    return {"pod": {"namespace": "shop", "name": name}}


def field(*pods: int, not_ready: list[int]) -> dict[str, Any]:
    names = [f"n{at}" for at in range(len(pods))]
    column = {"name": "pods", "requested": list(pods)}
    return {"names": names, "resources": [column], "not_ready": not_ready}


def told(found: dict[str, Any], of_nodes: dict[str, Any] | None = None) -> list[tuple[str, list[str]]]:
    blocks = needs({**NOTHING, **found}, HERE, of_nodes)
    texts = [each for each in blocks if isinstance(each, Text)]
    assert [each.look for each in texts] == ["bad"] * len(blocks)
    return [(each.title, [link.href for link in each.links]) for each in texts]


def test_nothing_is_told_where_nothing_is_to_be_done() -> None:
    waits = {"pending": [group("a/b", 3, unresolvable=False)], "nominations": [{}]}
    assert told(waits, field(1, 2, not_ready=[])) == []


def test_pods_that_fit_nowhere_are_counted_and_lead_to_why() -> None:
    groups = [group("a/b", 3, unresolvable=True), group("c/d", 2, unresolvable=False)]
    assert told({"pending": groups}) == [
        ("3 pods would find no node even if all others left", ["/console/pods/a/b/why"])
    ]


def test_evicted_pods_that_stay_are_told_once_for_each_pod_that_waits_for_them() -> None:
    late = [cleared("a"), cleared("a"), cleared("b")]
    assert told({"late": late}) == [
        ("Pods that are evicted do not leave", ["/console/pods/shop/a", "/console/pods/shop/b"])
    ]


@pytest.mark.parametrize(("pods", "named"), [((1, 0), []), ((0, 4), ["/console/nodes/n1"])])
def test_a_node_that_is_not_ready_counts_where_pods_are_on_it(
    pods: tuple[int, int], named: list[str]
) -> None:
    found = told({}, field(*pods, not_ready=[1]))
    assert [links for _, links in found] == ([named] if named else [])
