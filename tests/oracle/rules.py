"""The plain reading of taints, selectors and ports, one pair at a time."""

from __future__ import annotations

from collections.abc import Mapping

from domain.model.nodes import NodeSpec, Taint
from domain.model.pods import HostPort, NodeSelectorTerm, PodTemplate, Requirement, Toleration

ANY_ADDRESS = ("0.0.0.0", "")


def tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Say whether any toleration covers the taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator == "Equal" and toleration.key != "" and toleration.value == taint.value


def selects(template: PodTemplate, node: NodeSpec) -> bool:
    """Say whether the node selector and the required affinity both match."""
    if any(node.labels.get(key) != value for key, value in template.node_selector.items()):
        return False
    affinity = template.node_affinity
    if affinity is None or affinity.required is None:
        return True
    return any(matches(term, node) for term in affinity.required)


def matches(term: NodeSelectorTerm, node: NodeSpec) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(_holds(each, node.labels) for each in term.match_expressions) and all(
        _holds(each, fields) for each in term.match_fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    present, value = requirement.key in labels, labels.get(requirement.key, "")
    match requirement.operator:
        case "In":
            return present and value in requirement.values
        case "NotIn":
            return not present or value not in requirement.values
        case "Exists":
            return present
        case "DoesNotExist":
            return not present
        case operator:
            number, bound = integer(value), integer(requirement.values[0])
            if number is None or bound is None or {value[0], requirement.values[0][0]} & {"-", "+"}:
                return False  # with a sign it is no label value
            return number > bound if operator == "Gt" else number < bound


def integer(text: str) -> int | None:
    """Read a 64-bit decimal integer as Go's ``strconv.ParseInt`` does."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits or any(c not in "0123456789" for c in digits):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def collide(a: HostPort, b: HostPort) -> bool:
    """Say whether two host ports cannot be held on one node."""
    same_address = a.host_ip == b.host_ip or a.host_ip in ANY_ADDRESS or b.host_ip in ANY_ADDRESS
    return (a.host_port, a.protocol) == (b.host_port, b.protocol) and same_address


def may_name(template: PodTemplate, node: NodeSpec) -> bool:
    """Say whether a required term names the node, or some term names none."""
    required = template.node_affinity.required if template.node_affinity is not None else None
    for term in required or ():
        listed = [field.values for field in term.match_fields if field.operator == "In"]
        if all(node.name in values for values in listed):
            return True
    return not required
