"""What is drawn for co-location: policies, and what the agents of nodes measure, do and say."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import orjson

from domain.model.timestamps import format_ms
from tests.builders import Json, action_manifest, node_manifest, usage_manifest

METER = "node-meter"
"""A node that is there all day. The use of the pods in ``METERED`` is followed there to the end."""

METERED = ("metered-high", "metered-mid", "metered-low")
"""Uids and namespaces of these pods; each has one of the qualities."""

POLICIES = ("all", "also", "zone-a", "zone-b")
"""Names of policies: two of all nodes, of which the first holds, and two of a zone."""

_BEGAN_MS = 1_700_000_000_000
_LATE_MS = (0, 0, 0, 0, 0, 0, 300, 2_000, 8_000, 100_000)
"""How long before its place in the log a measurement was made."""

_RESOURCES: dict[str, Json] = {
    "metered-high": {
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "limits": {"cpu": "100m", "memory": "64Mi"},
    },
    "metered-mid": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
    "metered-low": {},
}


def counters(uid: str, at_ms: int) -> tuple[int, int]:
    """Return what a pod has used by a moment, in thousandths of a core times seconds, and byte-seconds.

    It follows from the moment, so that a report that comes late says no more than one that was made then.
    """
    seconds_milli = max(0, at_ms - _BEGAN_MS)
    rate = 1 + sum(uid.encode()) % 7
    return seconds_milli // 7 * rate, seconds_milli * rate * 1_000


class Agents:
    """Draws what agents say; ``now_ms`` is the time by which they measure."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        self._rng = rng
        self._now_ms = now_ms

    def policy(self, name: str, version: int, *, lasts: bool = False) -> Json:
        """Return a policy. With ``lasts`` what was measured is believed for an hour."""
        rng = self._rng
        view: Json = {
            "settle": rng.choice(("0s", "1s", "3s", "60s", "60s")),
            "maxAge": rng.choice(("3s", "10s", "30s", "90s")),
            "lowForm": rng.choice(("usage", "usage", "request")),
            "midForm": rng.choice(("usage", "usage", "request")),
            "margin": {"cpu": rng.choice(("0%", "10%", "300m")), "memory": "5%"},
        }
        if rng.random() < 0.2:
            view["cap"] = rng.choice(("0%", "30%", "80%"))
        if rng.random() < 0.2:
            view["reserved"] = {"cpu": "200m", "memory": "100Mi"}
        spec: Json = {"view": view}
        if name in POLICIES[:2]:
            spec["estimate"] = {
                "cpu": rng.choice(("200m", "400m", "1500m")),
                "memory": rng.choice(("64Mi", "1Gi")),
            }
        else:
            spec["nodeSelector"] = {"zone": name[-1]}
        if lasts:
            spec = {"view": {"settle": "0s", "maxAge": "3600s"}, "estimate": {"cpu": "50m", "memory": "16Mi"}}
        meta = {"name": name, "resourceVersion": str(version)}
        return {"apiVersion": "berth/v1", "kind": "CoLocationPolicy", "metadata": meta, "spec": spec}

    def report(self, node: str, uids: Iterable[str], version: int, *, idle: bool = False) -> bytes:
        """Return a measurement of a node by quality, with the counters of these pods."""
        rng = self._rng
        at_ms = self._now_ms() - (0 if idle else rng.choice(_LATE_MS))
        use = {
            quality: {"cpu": f"{0 if idle else rng.choice(amounts)}m", "memory": "64Mi"}
            for quality, amounts in (
                ("high", (0, 100, 500, 1_500)),
                ("mid", (0, 100, 300)),
                ("low", (0, 0, 100, 400)),
                ("system", (50, 100)),
            )
        }
        pods = {}
        for uid in uids:
            cpu, memory = counters(uid, at_ms)
            pods[uid] = {"cpuSeconds": cpu / 1_000, "memoryByteSeconds": memory}
        more: Json = {"pods": pods} if pods else {}
        if idle or rng.random() < 0.5:  # else it becomes percent of what the node has, if that is known
            more["percent"] = {"cpu": rng.choice((10, 50, 85)), "memory": 20}
        return _event(usage_manifest(node, quality=use, **more), at_ms, version)

    def action(self, node: str, version: int, ended: tuple[str, str] | None = None) -> bytes:
        """Return what an agent did: a box has another quota, or a pod was ended, by name and uid."""
        said: Json = {"reason": f"for reason {version}"}
        if ended is not None:
            pod = {"namespace": "sim", "name": ended[0], "uid": ended[1]}
            said |= {"action": "evict", "quality": "low", "pod": pod}
        manifest = action_manifest(node, **said)
        if ended is not None:
            del manifest["amount"]
        return _event(manifest, self._now_ms(), version)

    def ended(self, name: str, uid: str, node: str) -> Json:
        """Return the event of a pod that its agent ended, which knows no version, and no more of the pod."""
        meta = {"namespace": "sim", "name": name, "uid": uid}
        status = {"phase": "Failed", "reason": "Evicted", "message": "cpu is short"}
        spec = {"nodeName": node, "containers": [{"name": "evicted"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
        return {"type": "MODIFIED", "at": format_ms(self._now_ms()), "object": pod}

    def meter(self, version: int) -> Json:
        """Return the node on which the use of pods is followed."""
        labels = {"kubernetes.io/hostname": METER}
        return node_manifest(METER, cpu=4, memory="8Gi", pods=20, labels=labels, resource_version=version)

    def metered(self, uid: str, version: int) -> Json:
        """Return a pod that runs on ``METER``, and whose use is followed."""
        meta = {"name": uid, "namespace": uid, "uid": uid, "resourceVersion": str(version), "labels": {}}
        container = {"name": "c", "resources": _RESOURCES[uid]}
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta,
            "spec": {"containers": [container], "nodeName": METER},
            "status": {"phase": "Running"},
        }


def _event(manifest: Json, at_ms: int, version: int) -> bytes:
    return orjson.dumps({"type": "MODIFIED", "object": manifest, "at": format_ms(at_ms), "id": f"e{version}"})
