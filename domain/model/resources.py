"""Reading resource lists (``requests``, ``limits``, ``allocatable``): exact amounts within the limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domain.model.errors import FieldError
from domain.model.limits import cpu_milli_max, pods_per_node_max, resource_value_max, resources_per_object_max
from domain.model.quantities import HUGE_PAGES_PREFIX, format_milli, milli_to_units, to_milli
from domain.model.validation import is_qualified_name, key_path, shown, too_many

Amounts = dict[str, int]
"""Resource name -> thousandths of its own unit: what Kubernetes adds up before it rounds to whole units."""

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
_FRACTIONAL = (CPU, MEMORY, "ephemeral-storage")


def read_amounts(values: Mapping[str, Any] | None, path: str) -> Amounts:
    """Return a resource list as amounts.

    Raises
    ------
    FieldError
        For a name that is not a qualified name, and for a value that is not a quantity, is negative, is above
        the limit of its resource, or is a fraction of what only comes whole.
    """
    if not values:
        return {}
    if len(values) > resources_per_object_max:
        too_many(path, len(values), resources_per_object_max, "resources_per_object_max")
    return {name: _read_amount(name, value, path) for name, value in values.items()}


def _read_amount(name: str, value: object, path: str) -> int:
    if not is_qualified_name(name):
        raise FieldError(
            key_path(path, name),
            f"{shown(name)} is not a resource name; allowed is [subdomain/]name, as nvidia.com/gpu",
        )
    try:
        milli = to_milli(_quantity_text(value))
    except FieldError as error:
        raise FieldError(key_path(path, name), error.message) from None
    if milli < 0:
        raise FieldError(key_path(path, name), f"{shown(value)} is negative; allowed is 0 or more")
    if milli > _amount_max(name):
        check_amount(name, milli, key_path(path, name))
    if milli % 1000 and name not in _FRACTIONAL and not name.startswith(HUGE_PAGES_PREFIX):
        raise FieldError(
            key_path(path, name), f"{shown(value)} is a fraction; allowed are whole numbers of {name}"
        )
    return milli


def _quantity_text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = repr(value)  # the shortest decimal text of a float, so 0.1 is a tenth
        return text if len(text) <= 64 else text[:65]
    raise FieldError("", f"expected a quantity (a string or a number), got {shown(value)}")


def _amount_max(name: str) -> int:
    return cpu_milli_max if name == CPU else resource_value_max * 1000


def check_amount(name: str, milli: int, path: str) -> None:
    """Raise if an amount is above the limit of its resource."""
    if milli <= _amount_max(name):
        return
    if name == CPU:
        cores_max = cpu_milli_max // 1000
        raise FieldError(
            path, f"is {format_milli(milli)}; allowed are at most {cores_max} cores (cpu_milli_max)"
        )
    raise FieldError(
        path, f"is {milli_to_units(milli)}; allowed are at most {resource_value_max} (resource_value_max)"
    )


def check_pods(amounts: Amounts, path: str) -> None:
    """Raise if a node offers room for more pods than the sums of a node can hold."""
    if amounts.get(PODS, 0) > pods_per_node_max * 1000:
        raise FieldError(
            key_path(path, PODS),
            f"is {amounts[PODS] // 1000}; allowed are at most {pods_per_node_max} (pods_per_node_max)",
        )


def to_canonical(amounts: Amounts) -> dict[str, int]:
    """Return amounts in canonical units: cpu in thousandths of a core, the rest whole and rounded up."""
    return {name: milli if name == CPU else milli_to_units(milli) for name, milli in amounts.items()}
