"""Does a node say which co-location policy holds there, and in which version?"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from services.adapters.memory.store import MemoryStore
from services.api.answers import NodeDetail
from services.api.views import show_node
from services.cli.describe import _node as describe_node
from tests.builders import Json, node_manifest
from tests.property.site import Site


def policy(name: str, version: str | None = None, **labels: str) -> Json:
    metadata = {"name": name} | ({"resourceVersion": version} if version else {})
    spec = {"nodeSelector": labels} if labels else {}
    return {"apiVersion": "berth/v1", "kind": "CoLocationPolicy", "metadata": metadata, "spec": spec}


def site(*policies: Json) -> Site:
    made = Site()
    made.tell("ADDED", *policies, node_manifest("a", labels={"pool": "batch", "zone": "z"}))
    return made


def detail(of: Site) -> NodeDetail:
    shown = asyncio.run(show_node(MemoryStore(of.database), "a", sees_all=True))
    assert shown is not None
    return shown


def described(shown: NodeDetail, capsys: pytest.CaptureFixture[str]) -> str:
    describe_node(msgspec.to_builtins(shown))
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("Policy")]
    return line.removeprefix("Policy:").strip()


def test_it_is_the_one_with_the_most_labels_of_those_that_select_the_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = [policy("all", "4"), policy("zone", "7", zone="z", pool="batch"), policy("batch", pool="batch")]
    of = site(*known, policy("others", zone="y", pool="batch", more="m"))
    assert detail(of).policy == "zone@7"
    assert described(detail(of), capsys) == "zone@7"
    of.tell("DELETED", known[1])
    assert detail(of).policy == "batch@0", "its producer said no version"
    of.tell("DELETED", known[2])
    assert detail(of).policy == "all@4"


def test_where_none_selects_it_the_defaults_hold(capsys: pytest.CaptureFixture[str]) -> None:
    shown = detail(site(policy("others", zone="y")))
    assert shown.policy is None
    assert described(shown, capsys) == "default: no CoLocationPolicy selects this node"


def test_of_an_api_that_does_not_say_it_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    old = msgspec.to_builtins(detail(site()))
    del old["policy"]
    describe_node(old)
    assert "Policy" not in capsys.readouterr().out
