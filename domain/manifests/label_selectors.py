"""Read label selectors, and the requirements on labels that node selectors have in common with them."""

from __future__ import annotations

from typing import Any

import msgspec

from domain.model.errors import FieldError
from domain.model.limits import requirements_per_selector_max, values_per_selector_max
from domain.model.selectors import LabelRequirement, LabelSelector
from domain.model.validation import (
    check_choice,
    check_count,
    check_label_key,
    check_label_values,
    check_labels,
)

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class WireRequirement(msgspec.Struct, omit_defaults=True):
    """A requirement on a label or a field as it is written."""

    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class WireLabelSelector(msgspec.Struct, rename="camel", omit_defaults=True):
    """A label selector as it is written."""

    match_labels: dict[str, Any] | None = None
    match_expressions: list[WireRequirement] | None = None


def read_label_selector(wire: WireLabelSelector | None, path: str) -> LabelSelector | None:
    """Return a label selector; None, which matches nothing, where there is none."""
    if wire is None:
        return None
    labels = check_labels(wire.match_labels, f"{path}.matchLabels")
    expressions, at = wire.match_expressions or [], f"{path}.matchExpressions"
    count = len(labels) + len(expressions)
    check_count(count, requirements_per_selector_max, "requirements_per_selector_max", path)
    values_count = sum(len(each.values or ()) for each in expressions)
    check_count(values_count, values_per_selector_max, "values_per_selector_max", path)
    return selector_of(
        *(LabelRequirement(key, "In", (value,)) for key, value in labels.items()),
        *(_requirement(each, f"{at}[{index}]") for index, each in enumerate(expressions)),
    )


def selector_of(*requirements: LabelRequirement) -> LabelSelector:
    """Return the selector of requirements that must all hold."""
    return LabelSelector(tuple(sorted(set(requirements))))


def _requirement(wire: WireRequirement, path: str) -> LabelRequirement:
    operator = check_choice(wire.operator or "", OPERATORS, f"{path}.operator")
    key = check_label_key(wire.key or "", f"{path}.key")
    values = read_values(operator, wire.values or [], f"{path}.values")
    return LabelRequirement(key, operator, tuple(sorted(set(values))))


def read_values(operator: str, values: list[str], path: str) -> list[str]:
    """Return the values of a requirement with one of ``OPERATORS``."""
    if operator in ("In", "NotIn"):
        if not values:
            raise FieldError(path, f"is empty; {operator} needs at least one value")
        check_label_values(values, path)
    elif values:
        raise FieldError(path, f"must be empty when operator is {operator}")
    return values
