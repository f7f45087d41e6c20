"""Read a plugin's arguments, each with its path, so that an error in a profile says where it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from domain.model.errors import FieldError
from domain.model.validation import check_choice, key_path, shown


class WeightedResource(NamedTuple):
    """A resource in a list of resources with weights."""

    name: str
    weight: float


CPU_AND_MEMORY = (WeightedResource("cpu", 1.0), WeightedResource("memory", 1.0))


class Arguments:
    """One object of arguments, of which every key must be known.

    Parameters
    ----------
    values : mapping
        The object as it was written.
    path : str
        Where it stands.
    allowed : sequence of str
        All keys that it may have.
    """

    def __init__(self, values: Any, path: str, allowed: Sequence[str]) -> None:
        if not isinstance(values, Mapping):
            raise FieldError(path, f"expected an object, got {shown(values)}")
        for key in values:
            if key not in allowed:
                which = f"allowed are {', '.join(allowed)}" if allowed else "there are none"
                raise FieldError(key_path(path, str(key)), f"unknown argument; {which}")
        self._values = values
        self.path = path

    def __contains__(self, key: str) -> bool:
        """Whether the argument is given at all."""
        return self._values.get(key) is not None

    def at(self, key: str) -> str:
        """Return the path of an argument."""
        return key_path(self.path, key)

    def raw(self, key: str) -> Any:
        """Return an argument as it was written, None when it is missing."""
        return self._values.get(key)

    def number(self, key: str, default: float, low: float = -math.inf, high: float = math.inf) -> float:
        """Return a number within bounds, or one written as text."""
        value = self._values.get(key)
        return default if value is None else number(value, self.at(key), low, high)

    def choice(self, key: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed words; the first one when the argument is missing."""
        value = self._values.get(key)
        if value is None:
            return allowed[0]
        if not isinstance(value, str):
            raise FieldError(self.at(key), f"expected one of {', '.join(allowed)}, got {shown(value)}")
        return check_choice(value, allowed, self.at(key))

    def flag(self, key: str) -> bool:
        """Return whether something that is off without it is asked for."""
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return bool(value)
        raise FieldError(self.at(key), f"expected true or false, got {shown(value)}")

    def whole_numbers(self) -> bool:
        """Return whether ``arithmetic`` is ``integer``: upstream's, which cuts divisions to whole numbers."""
        return self.choice("arithmetic", ("real", "integer")) == "integer"

    def section(self, key: str, allowed: Sequence[str]) -> Arguments:
        """Return an object within the object, an empty one when it is missing."""
        value = self._values.get(key)
        return Arguments({} if value is None else value, self.at(key), allowed)

    def items(self, key: str) -> list[tuple[str, Any]]:
        """Return the items of a list, each with its path."""
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise FieldError(self.at(key), f"expected a list, got {shown(value)}")
        return [(f"{self.at(key)}[{i}]", item) for i, item in enumerate(value)]

    def names(self, key: str) -> frozenset[str]:
        """Return a list of texts as a set."""
        for path, item in self.items(key):
            if not isinstance(item, str):
                raise FieldError(path, f"expected a string, got {shown(item)}")
        return frozenset(item for _, item in self.items(key))

    def name_list(self, key: str, default: Sequence[str], *, least: int, most: int) -> list[str]:
        """Return a list of so many different names of resources; a missing one is the default."""
        found: list[str] = []
        for path, item in self.items(key):
            if not isinstance(item, str) or not item:
                raise FieldError(path, f"expected the name of a resource, got {shown(item)}")
            if item in found:
                raise FieldError(path, f"{shown(item)} is there twice")
            found.append(item)
        if found and not least <= len(found) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise FieldError(self.at(key), f"has {len(found)} resources; expected {wanted}")
        return found or list(default)

    def numbers(self, key: str, default: Sequence[float], low: float, high: float) -> list[float]:
        """Return a list of numbers within bounds, as long as the default, which stands for a missing one."""
        return numbers(self.raw(key), self.at(key), len(default), low, high) if key in self else list(default)

    def resources(
        self, key: str, default: Sequence[WeightedResource], *, weight_max: float
    ) -> list[WeightedResource]:
        """Return a list of ``{name, weight}``; a missing or empty one is the default, a missing weight 1."""
        found: list[WeightedResource] = []
        for path, item in self.items(key):
            fields = Arguments(item, path, ("name", "weight"))
            name = fields.raw("name")
            if not isinstance(name, str) or not name:
                raise FieldError(fields.at("name"), f"expected the name of a resource, got {shown(name)}")
            if any(name == known.name for known in found):
                raise FieldError(fields.at("name"), f"{shown(name)} is there twice")
            found.append(WeightedResource(name, fields.number("weight", 1.0, 1, weight_max)))
        return found or list(default)


def number(value: Any, path: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number within bounds. A text that is a number is accepted, too."""
    read: float | None = None
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            read = float(value)
        except (ValueError, OverflowError):
            read = None
    if read is None or not math.isfinite(read):
        raise FieldError(path, f"expected a number, got {shown(value)}")
    if not low <= read <= high:
        raise FieldError(path, f"{read:g} is not within {low:g}..{high:g}")
    return read


def numbers(value: Any, path: str, count: int, low: float, high: float) -> list[float]:
    """Return a list of ``count`` numbers within bounds."""
    if not isinstance(value, list | tuple) or len(value) != count:
        raise FieldError(path, f"expected a list of {count} numbers, got {shown(value)}")
    return [number(item, f"{path}[{i}]", low, high) for i, item in enumerate(value)]
