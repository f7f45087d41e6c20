"""MasterShare: the loss of one node must not cost a cluster most of its masters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from domain.kernels import arrays as kernel
from domain.model.marks import MasterMark
from domain.model.pods import PodTemplate, is_master
from domain.plugins.arguments import Arguments
from domain.plugins.base import Cure, Reason
from domain.plugins.counting import CounterSpec, CountFilter, Incoming, PodsSeen, Rule
from domain.plugins.weighers import Weigher

_FULL = Reason("master-share", unresolvable=False)


class MasterShare(CountFilter):
    """Refuse a node that already holds its share of the masters of the pod's cluster.

    A master is a pod with the labels ``berth.io/role: master`` and ``berth.io/cluster: <name>``; clusters of
    one name in two namespaces are two. Other pods pass everywhere. All existing masters of the cluster count,
    placed or waiting, with the pod itself. One is always allowed. When masters leave, the others stay where
    they are.

    Formula: refused where `masters of the cluster on the node >= max(1, floor(share / 100 * masters of the
    cluster))`.
    Arguments: ``share`` (percent, 0..100; default 50).
    Reason codes: ``master-share`` (evicting pods could help).
    Source: the machine filter of operations platforms by the share of a cluster's masters.
    """

    name: ClassVar[str] = "MasterShare"
    reads: ClassVar[frozenset[str]] = frozenset({"cluster", "role"})
    phrases: ClassVar[Mapping[str, str]] = {"master-share": "hold their share of its cluster's masters"}

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._percent = Arguments(args, path, ("share",)).number("share", 50.0, 0.0, 100.0)

    def cures(self, code: str) -> Cure:
        """See ``Plugin``: what it counts is on the node by itself."""
        return Cure.NODE | Cure.ROOM

    def rules(self, pod: Incoming) -> list[Rule]:
        """See ``CountFilter``: one, over the masters of the pod's cluster on a node."""
        if not is_master(pod.template):
            return []
        mark = MasterMark(pod.template.cluster)
        allowed = self._allowed_of(pod.pods.pods_with(mark))
        counter = CounterSpec("", Weigher(marks=frozenset({(mark, 1)})), by_row=True)
        return [Rule(kernel.AT_MOST, counter, allowed - 1, _FULL, text=f"masters of {mark.cluster}")]

    def grows(self, template: PodTemplate, pods: PodsSeen) -> bool:
        """See ``CountFilter``."""
        count = pods.pods_with(MasterMark(template.cluster)) if is_master(template) else 0
        return self._allowed_of(count + 1) > self._allowed_of(count)

    def _allowed_of(self, count: int) -> int:
        return max(1, int(self._percent * count / 100.0))
