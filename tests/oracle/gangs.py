"""The plain oracle of gangs: members are placed one after another, and all of it is undone if too few fit.

Source of the rules: the coscheduling plugin of scheduler-plugins (``minMember``, ``minResources``), and
Gödel's unit checks (who is left after some members failed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.oracle.placing import Oracle


@dataclass
class Gang:
    """Pods that are placed together or not at all.

    ``members`` are the keys of those that wait, in their order of arrival; ``placed`` those that have a node
    already. ``min_resources`` is what the gang needs together, without which none of it is tried.
    """

    members: Sequence[str]
    min_member: int
    placed: Sequence[str] = ()
    min_resources: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Answer:
    """Where the members go: all that fit, or nobody.

    ``failed`` says of each member that found no node how many nodes refused it for which reason, as those
    before it left the cluster. ``short`` is what the cluster lacks of the gang's least resources.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    failed: dict[str, dict[str, int]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)


def survives(
    members_count: int, failed_count: int, ignored_count: int, minimum: int, *, was_scheduled: bool
) -> bool:
    """Say whether what is left of a gang may go on: enough of it, or any of one that ran before."""
    left = members_count - failed_count - ignored_count
    return left > 0 and (left >= minimum or was_scheduled)


def place(oracle: Oracle, gang: Gang) -> Answer:
    """Place a gang, and change the oracle's cluster only where it goes on."""
    short = _short(oracle, gang)
    if short:
        return Answer(short=short)
    answer = Answer()
    order = sorted(gang.members, key=lambda key: -oracle.pods[key].spec.template.priority)
    for key in order:
        look = oracle.look(oracle.pods[key])
        if look.node:
            oracle.pods[key].node = answer.nodes[key] = look.node
        else:
            answer.failed[key] = look.reasons
    everyone = len(gang.members) + len(gang.placed)
    was_scheduled = len(gang.placed) >= gang.min_member
    if survives(everyone, len(answer.failed), 0, gang.min_member, was_scheduled=was_scheduled):
        return answer
    for key in answer.nodes:
        oracle.pods[key].node = ""
    answer.nodes.clear()
    return answer


def _short(oracle: Oracle, gang: Gang) -> dict[str, int]:
    """Return what is not free of the least resources of a gang; its own pods take nothing away from it."""
    free = Counter[str]()
    for node in oracle.nodes.values():
        free.update(node.spec.allocatable)
    for key, pod in oracle.pods.items():
        if pod.node in oracle.nodes and key not in gang.placed:
            free.subtract(pod.spec.template.requests)
            free["pods"] -= 1
    needed = {**gang.min_resources, "pods": gang.min_member} if gang.min_resources else {}
    return {name: amount - free[name] for name, amount in needed.items() if free[name] < amount}
