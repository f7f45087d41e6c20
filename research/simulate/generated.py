"""Generated traces: the setting of the study of imbalance, and a day of services that use more by day."""

from __future__ import annotations

import numpy as np

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import signature
from research.search.setting import RESOURCES, Setting, generate
from research.simulate.trace import Curves, Moment, Trace, kind_of

PROFILE = "study"

DAY_NODES = 20
_STEP_MS, _STEPS_COUNT = 900_000, 97
_ARRIVAL_MS = 3_600_000
_NODE = {"cpu": 32_000, "memory": 128 << 30, "pods": 200}
_APPS_COUNT = 12
_MID_EACH = 4
_REQUESTED = 0.75


def imbalance_trace(seed: int) -> Trace:
    """Return 31 nodes, and 1,800 pods that arrive one a second and stay."""
    setting = generate(seed)
    nodes = [Moment(0, NodeUpserted(node)) for node in nodes_of(setting)]
    pods = [Moment(1_000 * (i + 1), PodUpserted(pod)) for i, pod in enumerate(pods_of(setting))]
    return Trace(
        name="imbalance",
        moments=[*nodes, *pods],
        resources=RESOURCES,
        choices=("Everything is drawn with the seed; a pod arrives each second, and none leaves.",),
    )


def nodes_of(setting: Setting) -> list[NodeSpec]:
    """Return the nodes of a setting; each takes as many pods as there are."""
    return [
        NodeSpec(
            name=f"{kind}-{i}",
            uid=f"node-{i}",
            resource_version=1,
            allocatable={**dict(zip(RESOURCES, amounts, strict=True)), "pods": len(setting.types)},
        )
        for i, (kind, amounts) in enumerate(zip(setting.kinds, setting.allocatable.T.tolist(), strict=True))
    ]


def pods_of(setting: Setting) -> list[PodSpec]:
    """Return the pods of a setting, in their order of arrival."""
    found = []
    for i, (kind, amounts) in enumerate(zip(setting.types, setting.asked.tolist(), strict=True)):
        requests = dict(zip(RESOURCES, amounts, strict=True))
        template = PodTemplate(
            requests=requests,
            scoring_cpu_milli=requests["cpu"],
            scoring_memory_bytes=requests["memory"],
            profile=PROFILE,
        )
        found.append(
            PodSpec(
                uid=f"pod-{i}",
                key=f"study/{kind}-{i}",
                resource_version=1,
                template=template,
                signature=signature(template),
            )
        )
    return found


def day_trace(seed: int, nodes_count: int | None = None) -> Trace:
    """Return nodes of 32 cores, and pods of 12 apps that come in the first hour and use more by day.

    A pod requests the highest point of its curves; every fourth app requests half of it, and it is the
    limit. Pods come until three quarters of all cores are requested.
    """
    random = np.random.default_rng(seed)
    count = DAY_NODES if nodes_count is None else nodes_count
    used = _curves(random)
    peaks = np.ceil(used.max(axis=2)).astype(np.int64)
    kinds = []
    for app, (cpu, memory) in enumerate(peaks.T.tolist()):
        is_mid = app % _MID_EACH == _MID_EACH - 1
        limits = {"cpu": cpu, "memory": memory} if is_mid else {}
        kinds.append(kind_of({"cpu": cpu // 2 if is_mid else cpu, "memory": memory}, limits=limits))
    apps, left = [], _REQUESTED * count * _NODE["cpu"]
    while left > 0:
        apps.append(int(random.integers(_APPS_COUNT)))
        left -= kinds[apps[-1]].template.requests["cpu"]
    names = [f"day/app-{app}-{i}" for i, app in enumerate(apps)]
    nodes = [
        NodeSpec(name=f"node-{i}", uid=f"node-{i}", resource_version=1, allocatable=_NODE)
        for i in range(count)
    ]
    pods = [
        Moment((i + 1) * _ARRIVAL_MS // len(apps), PodUpserted(kinds[app].pod(name)))
        for i, (name, app) in enumerate(zip(names, apps, strict=True))
    ]
    return Trace(
        name="day",
        moments=[*(Moment(0, NodeUpserted(node)) for node in nodes), *pods],
        resources=("cpu", "memory"),
        choices=("Everything is drawn with the seed; pods come in the first hour and stay.",),
        curves=Curves(_STEP_MS, ("cpu", "memory"), dict(zip(names, apps, strict=True)), used),
    )


def _curves(random: np.random.Generator) -> np.ndarray:
    """Return what a pod of each app uses, float64[2, apps, steps]: cpu follows the hours of the day."""
    hours = np.arange(_STEPS_COUNT) * _STEP_MS / 3_600_000
    peaks = random.uniform(500, 8_000, (_APPS_COUNT, 1))
    wave = 0.5 - 0.5 * np.cos((hours - random.uniform(2, 6, (_APPS_COUNT, 1))) * (2 * np.pi / 24))
    noise = random.uniform(0.9, 1.0, (_APPS_COUNT, _STEPS_COUNT))
    memory = np.repeat(random.uniform(1 << 30, 8 << 30, (_APPS_COUNT, 1)), _STEPS_COUNT, axis=1)
    return np.stack([peaks * (0.3 + 0.6 * wave) * noise, memory * 0.5])
