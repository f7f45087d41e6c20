"""The plain oracle of gangs: members are placed one after another, and all of it is undone if too few fit.

Source of the rules: the coscheduling plugin of scheduler-plugins (``minMember``, ``minResources``), and
Gödel's unit checks (who is left after some members failed).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.oracle.placing import Oracle, OraclePod
from tests.oracle.preempting import Budget, Candidate, Preemption


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


def _domains(oracle: Oracle, gang: Gang, leaving: Sequence[OraclePod] = ()) -> list[list[str]]:
    """Return the nodes of each domain that has room in all for the gang, the roomiest first.

    Those have room, too, that would have it without the pods that are ``leaving``.
    """
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
            could = sum(
                max(_free(oracle, name, resource) + _held(leaving, name, resource), 0) for name in names
            )
            shares.append(-1 if could < amount else int(free / max(amount, 1) * (1 << 20)))
        if min(shares) >= 0 and (not there or value in there):
            found.append((-min(shares), value, names))
    return [names for _, _, names in sorted(found)]


def _free(oracle: Oracle, name: str, resource: str) -> int:
    asked = _held(list(oracle.pods.values()), name, resource)
    return oracle.nodes[name].spec.allocatable.get(resource, 0) - asked


def _held(pods: Sequence[OraclePod], node: str, resource: str) -> int:
    on_it = [pod.spec.template.requests for pod in pods if pod.node == node]
    return len(on_it) if resource == "pods" else sum(each.get(resource, 0) for each in on_it)


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


def reserve(oracle: Oracle, gang: Gang, budgets: Sequence[Budget]) -> dict[str, str]:
    """Return the node that is kept free for each member until others have left by themselves; else nothing.

    They are those of ``preempt``, where pods no more important than the least important of the gang may go.
    Without anybody to wait for there is nothing to keep free.
    """
    found = preempt(oracle, gang, budgets, above=1)
    is_of_use = any(each.victims for each in found.values())
    return {key: each.node for key, each in found.items()} if is_of_use else {}


def preempt(oracle: Oracle, gang: Gang, budgets: Sequence[Budget], above: int = 0) -> dict[str, Candidate]:
    """Return the node and the victims of each member, where nodes are promised to a gang; else nothing.

    Of members on trial those without a node are planned, equal ones together, until ``min_member`` have a
    node or a plan. Nobody goes for one beyond that, and no pod as important as any of the gang, or so much
    ``above``.
    """
    mine = [oracle.pods[key] for key in (*gang.members, *gang.placed)]
    lowest = min(pod.spec.template.priority for pod in mine) + above
    freed = [pod for pod in oracle.pods.values() if pod.node and pod.spec.template.priority < lowest]
    domains: list[Sequence[str] | None] = [None]
    if gang.topology_key:
        domains = [*_domains(oracle, gang, freed), *([None] if gang.is_preferred else [])]
    homes = {pod.spec.key: pod.node for pod in freed}
    for pod in freed:
        pod.node = ""
    short = _short(oracle, gang)
    for pod in freed:
        pod.node = homes[pod.spec.key]
    for among in [] if short else domains:
        promised = _promised(oracle, gang, budgets, among, lowest)
        if len(gang.placed) + len(promised) >= gang.min_member:
            return promised
    return {}


def _promised(
    oracle: Oracle, gang: Gang, budgets: Sequence[Budget], among: Sequence[str] | None, lowest: int
) -> dict[str, Candidate]:
    """Return what is promised to members in one domain, or anywhere; the cluster stays as it is."""
    found: dict[str, Candidate] = {}
    missing: dict[object, list[OraclePod]] = {}
    for key in sorted(gang.members, key=lambda key: -oracle.pods[key].spec.template.priority):
        pod = oracle.pods[key]
        pod.node = oracle.look(pod, among).node or ""
        if pod.node:
            found[key] = Candidate(pod.node, [], 0)
        else:
            missing.setdefault((pod.spec.signature, tuple(pod.spec.labels.items())), []).append(pod)
    left = [replace(budget) for budget in budgets]
    planner = Preemption(oracle, left, below=lowest, among=among)
    planned: dict[str, Candidate] = {}
    for equals in missing.values():
        for pod in equals:
            if len(gang.placed) + len(found) + len(planned) >= gang.min_member:
                break
            if (candidate := planner.nominate(pod)) is None:
                break
            planned[pod.spec.key] = candidate
    for key in found:
        oracle.pods[key].node = ""
    return found | planned if planned else {}  # else it waits for its least resources alone
