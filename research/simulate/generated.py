"""The generated setting of the study of imbalance as nodes and pods, and as a trace."""

from __future__ import annotations

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.signature import signature
from research.search.setting import RESOURCES, Setting, generate
from research.simulate.trace import Moment, Trace

PROFILE = "study"


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
