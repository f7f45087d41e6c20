"""Compile the kernels ahead of the first pod, so that no producer waits for a compiler."""

from __future__ import annotations

import msgspec

from domain.cycle.schedule import Scheduler
from domain.model.events import NodeUpserted, PodDeleted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES


def warm_up() -> None:
    """Place pods on an imaginary node; compiles what is not in the cache on disk yet (some seconds)."""
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=0, preempts=True)
    room = {"cpu": 1, "memory": 1, "pods": 1}
    scheduler.fold(NodeUpserted(NodeSpec(name="n", uid="n", resource_version=1, allocatable=room)))
    template = PodTemplate(requests={"cpu": 1})
    for i in range(2):
        pod = PodSpec(uid=f"{i}", key=f"n/{i}", resource_version=1, template=template, signature=b"warm")
        scheduler.fold(PodUpserted(pod))
    scheduler.cycle()
    scheduler.fold(PodDeleted("n", "0"))  # makes room, so that the waiting pod is woken and placed
    scheduler.cycle()
    urgent = msgspec.structs.replace(template, priority=1)
    pod = PodSpec(uid="u", key="n/u", resource_version=1, template=urgent, signature=b"urgent")
    scheduler.fold(PodUpserted(pod))
    scheduler.cycle()  # promises the node to it
    scheduler.fold(PodDeleted("n", "1"))
    scheduler.cycle()
