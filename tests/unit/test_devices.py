"""Devices: what a pod asks for, which ones it gets, and how a manifest says both."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from domain.manifests.objects import pod_from_manifest
from domain.model.devices import DEVICE_NAMES, NO_ASK, Ask, amounts, asked, choose, devices_of, with_devices
from domain.model.errors import FieldError
from services.codec.decode import Decoder
from services.ports.log import PODS_TOPIC, Record


def manifest(devices: object = None, node: str | None = "n", **requests: str) -> dict[str, Any]:
    names = {"gpu": "nvidia.com/gpu", "milli": "berth.dev/gpu-milli"}
    named = {names[name]: value for name, value in requests.items()}
    metadata: dict[str, Any] = {"name": "a", "namespace": "d", "uid": "u"}
    if devices is not None:
        metadata["annotations"] = {"berth.dev/devices": devices}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": named, "limits": named}}]}
    if node is not None:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("requests", "ask"),
    [
        ({"cpu": 1}, NO_ASK),
        ({"nvidia.com/gpu": 2}, Ask(2, 1000)),
        ({"berth.dev/gpu-milli": 300}, Ask(1, 300)),
        ({"nvidia.com/gpu": 2, "berth.dev/gpu-milli": 2000}, Ask(2, 1000)),
        ({"berth.dev/gpu-milli": 2000}, NO_ASK),
    ],
)
def test_what_requests_ask_of_devices(requests: dict[str, int], ask: Ask) -> None:
    assert asked(requests) == ask


def test_the_rule_of_choice() -> None:
    assert choose([1000, 300, 500, 500], Ask(1, 400)) == (2,)
    assert choose([1000, 300, 500], Ask(1, 300)) == (1,)
    assert choose([300, 1000, 1000, 1000], Ask(2, 1000)) == (1, 2)
    assert choose([], Ask(1, 300)) == ()


def test_who_does_not_fit_gets_the_emptiest() -> None:
    assert choose([300, 200, 300], Ask(1, 400)) == (0,)
    assert choose([300, 1000, 500], Ask(2, 1000)) == (1, 2)
    assert choose([0, 0], Ask(8, 1000)) == (0, 1)


def test_no_choice_takes_more_than_is_free_where_any_other_fits() -> None:
    draw = random.Random(7)
    for _ in range(500):
        free = [draw.choice((0, 250, 500, 750, 1000)) for _ in range(draw.randint(1, 16))]
        share, whole = Ask(1, draw.randint(1, 999)), Ask(draw.randint(1, 4), 1000)
        (device,) = choose(free, share)
        assert (free[device] >= share.milli) == (max(free) >= share.milli)
        devices = choose(free, whole)
        enough = free.count(1000) >= whole.number
        assert all(free[each] == 1000 for each in devices) == enough or len(devices) < whole.number
        assert len(devices) == min(whole.number, len(free))


def test_the_devices_of_a_node_are_resources_of_their_own() -> None:
    offered = with_devices({"cpu": 4, "nvidia.com/gpu": 2})
    assert {name: offered[name] for name in offered if "#" in name} == dict.fromkeys(DEVICE_NAMES[:2], 1000)
    assert with_devices({"cpu": 4}) == {"cpu": 4}
    assert devices_of({"nvidia.com/gpu": 17}) == 0  # counted, not told apart
    assert amounts({"berth.dev/gpu-milli": 300}, (3,)) == {"nvidia.com/gpu#3": 300}


def test_a_bound_pod_may_say_which_devices_it_has() -> None:
    assert pod_from_manifest(manifest("3,0", gpu="2")).devices == (0, 3)
    assert pod_from_manifest(manifest("1", milli="300")).devices == (1,)
    assert pod_from_manifest(manifest("1", node=None, milli="300")).devices == ()
    assert pod_from_manifest(manifest(gpu="2")).devices == ()


@pytest.mark.parametrize("text", ["", "0,0", "16", "a", "0;1", "-1", 3, "0,1,2"])
def test_an_annotation_that_names_no_devices_is_refused(text: object) -> None:
    with pytest.raises(FieldError, match=r"berth\.dev/devices"):
        pod_from_manifest(manifest(text, gpu="2"))


@pytest.mark.parametrize("requests", [{"milli": "1000"}, {"milli": "500", "gpu": "1"}, {"milli": "2500"}])
def test_a_pod_asks_for_whole_devices_or_for_a_share_of_one(requests: dict[str, str]) -> None:
    with pytest.raises(FieldError, match="below 1000"):
        pod_from_manifest(manifest(**requests))


def test_the_log_reads_the_annotation_as_a_file_does() -> None:
    def decoded(thing: dict[str, Any]) -> Any:
        value = msgspec.json.encode({"type": "ADDED", "object": thing})
        return Decoder().decode(Record(PODS_TOPIC, 0, 0, b"d/a", value, 0))

    assert decoded(manifest("0,3", gpu="2")).event.pod.devices == (0, 3)
    assert decoded(manifest(gpu="2")).event.pod.devices == ()
    assert decoded(manifest("16", gpu="1")).rejected.path.startswith("object.metadata.annotations")
