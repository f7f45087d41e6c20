"""What the agent learns from the API: the pods of its node, and the policy that holds there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from domain.colocation.estimate import ClaimSums, expected
from domain.colocation.view import Requests
from domain.model.colocation import QUALITY_OF, Amounts, EstimateRule, Quality
from domain.model.quantities import to_milli, to_units


class NodePod(NamedTuple):
    """A pod that is placed on the node, as the ledger has it.

    ``silent_count`` containers say neither what they request nor what bounds them.
    """

    uid: str
    namespace: str
    name: str
    quality: Quality
    priority: int
    requests: Amounts
    silent_count: int

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    def estimate(self, rule: EstimateRule) -> Amounts:
        """Return what a low pod is expected to use; its requests, if any, are its overhead."""
        cpu, memory = (ClaimSums(fixed=each, silent_count=self.silent_count) for each in self.requests)
        return Amounts(
            expected(cpu, rule.cpu_percent, rule.cpu_milli),
            expected(memory, rule.memory_percent, rule.memory_bytes),
        )


def pods_of(items: Iterable[Mapping[str, Any]]) -> dict[str, NodePod]:
    """Return the pods of ``GET /v1/pods?node=`` by uid."""
    found = (
        NodePod(
            uid=each["uid"],
            namespace=each["namespace"],
            name=each["name"],
            quality=QUALITY_OF[each["qos_class"]],
            priority=each["priority"],
            requests=Amounts(
                to_milli(each["requests"].get("cpu", "0")), to_units(each["requests"].get("memory", "0"))
            ),
            silent_count=each["silent_containers"],
        )
        for each in items
    )
    return {each.uid: each for each in found}


def requests_of(pods: Iterable[NodePod]) -> Requests:
    """Return what pods of high and of mid request in sum."""
    sums = {Quality.HIGH: [0, 0], Quality.MID: [0, 0], Quality.LOW: [0, 0]}
    for pod in pods:
        for index, amount in enumerate(pod.requests):
            sums[pod.quality][index] += amount
    return Requests(Amounts(*sums[Quality.HIGH]), Amounts(*sums[Quality.MID]))


def asked_milli(pods: Iterable[NodePod], rule: EstimateRule) -> int:
    """Return the cpu that low pods ask for: the sum of their estimates."""
    return sum(pod.estimate(rule).cpu_milli for pod in pods if pod.quality is Quality.LOW)
