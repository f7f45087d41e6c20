"""Read the constraints of a pod: selectors, affinity, tolerations."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from domain.manifests.between_pods import WirePodAffinity
from domain.manifests.label_selectors import OPERATORS, WireRequirement, read_values
from domain.model.errors import FieldError
from domain.model.limits import (
    INT64_MAX,
    requirements_per_affinity_max,
    terms_per_affinity_max,
    tolerations_per_pod_max,
    values_per_affinity_max,
)
from domain.model.nodes import TAINT_EFFECTS
from domain.model.pods import NodeAffinity, NodeSelectorTerm, PreferredTerm, Requirement, Toleration
from domain.model.validation import (
    check_choice,
    check_count,
    check_label_key,
    check_label_value,
    check_printable,
    check_range,
    shown,
)

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_LABEL_OPERATORS = (*OPERATORS, "Gt", "Lt")
_FIELD_OPERATORS = ("In", "NotIn")
COMPARING = ("Lt", "Gt")
"""Operators of tolerations that compare numbers; they tolerate nothing."""

_TOLERATION_OPERATORS = ("Equal", "Exists", *COMPARING)


class WireToleration(msgspec.Struct, gc=False, omit_defaults=True):
    """A toleration as it is written."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class WireTerm(msgspec.Struct, rename="camel", omit_defaults=True):
    """A node selector term as it is written."""

    match_expressions: list[WireRequirement] | None = None
    match_fields: list[WireRequirement] | None = None


class WirePreferred(msgspec.Struct, omit_defaults=True):
    """A preferred node selector term as it is written."""

    weight: int | None = None
    preference: WireTerm | None = None


class WireNodeSelector(msgspec.Struct, rename="camel", omit_defaults=True):
    """Alternative terms as they are written."""

    node_selector_terms: list[WireTerm] | None = None


class WireNodeAffinity(msgspec.Struct, omit_defaults=True):
    """Node affinity as it is written."""

    required: WireNodeSelector | None = msgspec.field(default=None, name=_REQUIRED)
    preferred: list[WirePreferred] | None = msgspec.field(default=None, name=_PREFERRED)


class WireAffinity(msgspec.Struct, rename="camel", omit_defaults=True):
    """``affinity`` as it is written."""

    node_affinity: WireNodeAffinity | None = None
    pod_affinity: WirePodAffinity | None = None
    pod_anti_affinity: WirePodAffinity | None = None


def read_tolerations(tolerations: list[WireToleration], path: str) -> tuple[Toleration, ...]:
    """Return tolerations, sorted and each once. One match is enough, so their order does not matter.

    Those that compare numbers are left out: Kubernetes 1.36 has them behind a gate that is off.
    """
    if not tolerations:
        return ()
    check_count(len(tolerations), tolerations_per_pod_max, "tolerations_per_pod_max", path)
    read = {_toleration(wire, f"{path}[{index}]") for index, wire in enumerate(tolerations)}
    read = {each for each in read if each.operator not in COMPARING}
    return tuple(sorted(read, key=lambda item: (item.key, item.operator, item.value, item.effect)))


def _toleration(wire: WireToleration, path: str) -> Toleration:
    operator = check_choice(wire.operator or "Equal", _TOLERATION_OPERATORS, f"{path}.operator")
    key, value = wire.key or "", wire.value or ""
    if key:
        check_label_key(key, f"{path}.key")
    elif operator != "Exists":
        raise FieldError(
            f"{path}.operator", "must be Exists when key is empty (it then tolerates every taint)"
        )
    if operator == "Exists" and value:
        raise FieldError(f"{path}.value", "must be empty when operator is Exists")
    if operator in COMPARING:
        _check_integer(value, f"{path}.value", operator)
    else:
        check_label_value(value, f"{path}.value")
    effect = check_choice(wire.effect, TAINT_EFFECTS, f"{path}.effect") if wire.effect else ""
    return Toleration(key=key, operator=operator, value=value, effect=effect)


def read_node_affinity(
    wire: WireNodeAffinity | None, path: str, *, lenient: bool = False
) -> NodeAffinity | None:
    """Return a pod's node affinity, None when it has none.

    With ``lenient``, what the Kubernetes API would refuse is read as its scheduler reads it: a required term
    with a mistake matches no node, and a preferred term of weight 0 is not there.
    """
    if wire is None or (wire.required is None and not wire.preferred):
        return None
    preferred = [each for each in wire.preferred or () if each.weight or not lenient]
    required = None if wire.required is None else wire.required.node_selector_terms or []
    check_count(len(required or ()) + len(preferred), terms_per_affinity_max, "terms_per_affinity_max", path)
    _check_size([*(required or ()), *(each.preference or WireTerm() for each in preferred)], path)
    terms_path = f"{path}.{_REQUIRED}.nodeSelectorTerms"
    return NodeAffinity(
        required=None
        if required is None
        else tuple(
            _term(term, f"{terms_path}[{index}]", lenient=lenient) for index, term in enumerate(required)
        ),
        preferred=tuple(
            _preferred(term, f"{path}.{_PREFERRED}[{index}]") for index, term in enumerate(preferred)
        ),
    )


def _check_size(terms: list[WireTerm], path: str) -> None:
    """Raise where terms that are few ask for too much."""
    wires = [each for term in terms for each in (*(term.match_expressions or ()), *(term.match_fields or ()))]
    check_count(len(wires), requirements_per_affinity_max, "requirements_per_affinity_max", path)
    values_count = sum(len(each.values or ()) for each in wires)
    check_count(values_count, values_per_affinity_max, "values_per_affinity_max", path)


def _preferred(wire: WirePreferred, path: str) -> PreferredTerm:
    weight = check_range(wire.weight or 0, 1, 100, f"{path}.weight")
    return PreferredTerm(weight=weight, term=_term(wire.preference or WireTerm(), f"{path}.preference"))


def _term(wire: WireTerm, path: str, *, lenient: bool = False) -> NodeSelectorTerm:
    try:
        return NodeSelectorTerm(
            match_expressions=_each(wire.match_expressions, _label_requirement, f"{path}.matchExpressions"),
            match_fields=_each(wire.match_fields, _field_requirement, f"{path}.matchFields"),
        )
    except FieldError:
        if lenient:
            return NodeSelectorTerm()  # without any requirement, so that it matches no node
        raise


def _each(
    wires: list[WireRequirement] | None, read: Callable[[WireRequirement, str], Requirement], path: str
) -> tuple[Requirement, ...]:
    return tuple(read(wire, f"{path}[{index}]") for index, wire in enumerate(wires or ()))


def _label_requirement(wire: WireRequirement, path: str) -> Requirement:
    operator = check_choice(wire.operator or "", _LABEL_OPERATORS, f"{path}.operator")
    key = check_label_key(wire.key or "", f"{path}.key")
    values, at = wire.values or [], f"{path}.values"
    if operator in OPERATORS:
        read_values(operator, values, at)
    else:
        if len(values) != 1:
            raise FieldError(at, f"has {len(values)} values; {operator} needs exactly one integer")
        _check_integer(values[0], f"{at}[0]", operator)
    return Requirement(key=key, operator=operator, values=tuple(values))


def _field_requirement(wire: WireRequirement, path: str) -> Requirement:
    operator = check_choice(wire.operator or "", _FIELD_OPERATORS, f"{path}.operator")
    key = check_choice(wire.key or "", ("metadata.name",), f"{path}.key")
    values, at = wire.values or [], f"{path}.values"
    if len(values) != 1:
        raise FieldError(at, f"has {len(values)} values; {operator} on a field needs exactly one")
    return Requirement(key=key, operator=operator, values=(check_printable(values[0], f"{at}[0]"),))


def _check_integer(text: str, path: str, operator: str) -> None:
    digits = text.removeprefix("-").removeprefix("+") if text[:1] in "+-" else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19 and abs(int(text)) <= INT64_MAX):
        raise FieldError(path, f"{shown(text)} is not a 64-bit integer, which {operator} needs")
