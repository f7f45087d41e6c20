"""Items of lists as the API answers them, for tests of the command line."""

from __future__ import annotations

import datetime
from typing import Any

Item = dict[str, Any]
NOW = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
THEN = "2023-05-06T02:10:08.000Z"
GPUS = {"berth.dev/gpu-milli": "8000", "cpu": "64200m", "memory": "257Gi", "nvidia.com/gpu": "8"}


def node(name: str = "openb-node-0600", **changed: Any) -> Item:
    return {
        "name": name,
        "version": 11,
        "deleted": False,
        "ready": None,
        "unschedulable": False,
        "overcommitted": [],
        "labels": {"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"},
        "taints": [{"key": "node-role.kubernetes.io/control-plane", "value": "", "effect": "NoSchedule"}],
        "allocatable": {**GPUS, "cpu": "96", "memory": "384Gi", "pods": "128"},
        "requested": {**GPUS, "cpu": "74184m", "memory": "254221Mi", "pods": "10"},
        "devices": [],
        "free": {"cpu": "21816m", "memory": "138995Mi", "pods": "118"},
        "spec_changed_at": THEN,
        "spec_sent_by": "key:ops",
    } | changed


def pod(name: str = "openb-pod-2250", **changed: Any) -> Item:
    return {
        "namespace": "openb",
        "name": name,
        "uid": f"default-{name}",
        "phase": "bound",
        "node": "openb-node-1329",
        "adopted": False,
        "since": NOW,
        "requests": GPUS,
        "devices": [],
        "qos_class": "Burstable",
        "quality": "mid",
        "priority": 0,
        "silent_containers": 0,
        "labels": {"qos": "LS"},
        "signature": "990b79da8752b63a4b7db107b2a519e3",
        "shard": 0,
        "decision": "0-2251",
        "group": None,
        "decisions": [],
        "placements": [],
    } | changed


def decision(**changed: Any) -> Item:
    return {
        "id": "0-2251",
        "pod": {"namespace": "openb", "name": "openb-pod-2250"},
        "outcome": "bound",
        "node": "openb-node-1329",
        "decided_at": THEN,
        "recorded_at": NOW,
        "event_at": None,
        "profile": "default-scheduler",
        "profile_revision": 1,
        "reason": "",
        "reasons": {},
        "warnings": [],
        "score": 94.53125,
        "cycle": "0-2251",
    } | changed


def config_object(kind: str = "Service", says: Item | None = None, **changed: Any) -> Item:
    requirement = {"key": "app", "operator": "In", "values": ["web"]}
    return {
        "kind": kind,
        "namespace": "shop",
        "name": "web",
        "object": says or {"selector": {"requirements": [requirement]}},
        "resource_version": 7,
        "since": THEN,
        "sent_by": "key:ops",
    } | changed
