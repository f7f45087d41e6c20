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
    ``topology_key``: all go to nodes of one value of this label; ``is_preferred``: or anywhere.
    """

    members: Sequence[str]
    min_member: int
    placed: Sequence[str] = ()
    min_resources: Mapping[str, int] = field(default_factory=dict)
    topology_key: str = ""
    is_preferred: bool = False


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
    if not gang.topology_key:
        return _try(oracle, gang, None)
    answer = Answer(short={} if gang.is_preferred else {gang.topology_key: 1})
    for domain in _domains(oracle, gang):
        answer = _try(oracle, gang, domain)
        if len(gang.placed) + len(answer.nodes) >= gang.min_member:
            break
    else:
        return _try(oracle, gang, None) if gang.is_preferred else answer
    if gang.is_preferred and answer.failed:
        for key in list(answer.failed):
            look = oracle.look(oracle.pods[key])
            if look.node:
                oracle.pods[key].node = answer.nodes[key] = look.node
                del answer.failed[key]
    return answer


def _domains(oracle: Oracle, gang: Gang) -> list[list[str]]:
    """Return the nodes of each domain that has room in all for the gang, the roomiest first."""
    labels = {name: node.spec.labels.get(gang.topology_key) for name, node in oracle.nodes.items()}
    there = {labels[node] for key in gang.placed if (node := oracle.pods[key].node) in labels} - {None}
    count = max(gang.min_member - len(gang.placed), 0)
    requests = [{**oracle.pods[key].spec.template.requests, "pods": 1} for key in gang.members]
    least = {
        name: sum(sorted(each.get(name, 0) for each in requests)[:count])
        for name in set().union(*requests) - {"pods"}
    } | {"pods": count}
    found = []
    for value in {each for each in labels.values() if each is not None}:
        names = [name for name, label in labels.items() if label == value]
        shares = []
        for resource, amount in least.items():
            free = sum(max(_free(oracle, name, resource), 0) for name in names)
            shares.append(-1 if free < amount else int(free / max(amount, 1) * (1 << 20)))
        if min(shares) >= 0 and (not there or value in there):
            found.append((-min(shares), value, names))
    return [names for _, _, names in sorted(found)]


def _free(oracle: Oracle, name: str, resource: str) -> int:
    on_it = [pod.spec.template.requests for pod in oracle.pods.values() if pod.node == name]
    asked = len(on_it) if resource == "pods" else sum(each.get(resource, 0) for each in on_it)
    return oracle.nodes[name].spec.allocatable.get(resource, 0) - asked


def _try(oracle: Oracle, gang: Gang, among: Sequence[str] | None) -> Answer:
    answer = Answer()
    order = sorted(gang.members, key=lambda key: -oracle.pods[key].spec.template.priority)
    for key in order:
        look = oracle.look(oracle.pods[key], among)
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
