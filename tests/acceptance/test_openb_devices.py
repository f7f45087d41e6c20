"""openb by devices: first-fit in the order of the file, with the numbers that the trace must give."""

from __future__ import annotations

import pytest

from domain.cycle.schedule import Scheduler
from domain.manifests.objects import node_from_manifest, pod_event_from_manifest
from domain.model.devices import DEVICE_ONE, GPU, asked
from domain.model.events import NodeUpserted
from domain.model.profiles import PluginUse, Profile
from services.traces import openb
from tests.property.fold_audit import audit_devices

pytestmark = pytest.mark.timeout(400)

FIRST_FIT = Profile(
    name="default-scheduler",
    revision=1,
    filters=(PluginUse(name="NodeAffinity"), PluginUse(name="NodeResourcesFit")),
    scores=(PluginUse(name="FirstFit"),),
)


def test_first_fit_places_what_it_must() -> None:
    scheduler = Scheduler({FIRST_FIT.name: FIRST_FIT}, seed=1)
    order = []
    for event in openb.events():
        if event["object"]["kind"] == "Node":
            scheduler.fold(NodeUpserted(node_from_manifest(event["object"])))
        else:
            upserted = pod_event_from_manifest(event["object"])
            order.append(upserted.pod.key)
            scheduler.fold(upserted)
    while scheduler.has_work:
        scheduler.cycle()
    pods = [scheduler.state.pods[key] for key in order]
    first_without = next(index for index, pod in enumerate(pods) if not pod.node)
    placed = [pod.spec for pod in pods if pod.node]
    taken = sum(ask.number * ask.milli for ask in (asked(pod.template.requests) for pod in placed))
    nodes = [entry.spec for entry in scheduler.state.nodes.values() if entry.spec is not None]
    offered = sum(spec.allocatable.get(GPU, 0) for spec in nodes) * DEVICE_ONE
    assert (first_without, len(placed), round(100 * taken / offered, 2)) == (7_726, 7_784, 92.80)
    assert all(len(pod.devices) == asked(pod.template.requests).number for pod in placed)
    for name, row in scheduler.state.table.rows.items():
        audit_devices(scheduler.state, name, row)
