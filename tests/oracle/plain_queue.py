"""A plain queue: all pods that have a turn to come, sorted anew for each cycle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from domain.queue.groups import WaitingGroup
from domain.queue.turns import Works


class Plain(NamedTuple):
    """A pod in the order in which pods have their turn."""

    minus_priority: int
    arrival: int
    key: str
    group: WaitingGroup

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


def plain_draw(pods: Sequence[Plain], works: Works | None, work_max: int, pods_max: int) -> list[Plain]:
    """Return whose turn it is: half by priority and age, then who had least, one pod after another.

    Without ``works`` each pod costs the same: it is only told why it waits.
    """
    waiting = sorted(pods, key=lambda pod: pod[:3])
    spent, used, paid, drawn = 0, dict[str, int](), set[tuple[str, bytes]](), list[Plain]()

    def take(pod: Plain) -> int:
        work = 1 if works is None else works.of_pod(pod.group)
        if works is not None and (pod.namespace, pod.group.signature) not in paid:
            paid.add((pod.namespace, pod.group.signature))
            work += works.of_group(pod.group)
            static, of_static = works.of_static(pod.group)
            if (pod.namespace, static) not in paid:
                paid.add((pod.namespace, static))
                work += of_static
        used[pod.namespace] = used.get(pod.namespace, 0) + work
        waiting.remove(pod)
        drawn.append(pod)
        return work

    while waiting and spent < work_max // 2 and len(drawn) < pods_max // 2:
        spent += take(waiting[0])
    half = work_max // 2
    others_until = max(work_max, spent + half)  # one pod may have taken more than all that a cycle may do
    while waiting and len(drawn) < pods_max:
        following = min(waiting, key=lambda pod: (used.get(pod.namespace, 0), pod[:3]))
        had_little = used.get(following.namespace, 0) < half
        if spent >= (others_until if had_little else work_max):
            break
        spent += take(following)
    return sorted(drawn, key=lambda pod: pod[:3])
