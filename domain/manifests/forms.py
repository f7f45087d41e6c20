"""How single values are written in berth's own kinds: percent, durations, quantities, numbers, choices.

Each function returns a form, which reads a value, checks its bounds, and writes it again.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from domain.model.colocation import Portion
from domain.model.errors import FieldError
from domain.model.quantities import format_resource
from domain.model.resources import read_amounts, to_canonical
from domain.model.validation import finite, shown

_PERCENT = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,3})?)%")
_DURATION = re.compile(
    r"(?=.)(?:([0-9]{1,5})h)?(?:([0-9]{1,7})m)?(?:([0-9]{1,9})s)?(?:([0-9]{1,9})ms)?(?:([0-9]{1,12})us)?"
)
SECOND_US = 1_000_000
_UNITS_US = (3_600 * SECOND_US, 60 * SECOND_US, SECOND_US, 1_000, 1)
DAY_US = 24 * _UNITS_US[0]


class Form(NamedTuple):
    """How a value is written: its type in JSON, how it is read and written, and what is allowed."""

    type: Any
    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any]
    allowed: str


def _bounded(form: Form, low: Any, high: Any) -> Form:
    """Return a form whose values are within bounds, which may be met."""
    bounds = f"{form.write(low)} to {form.write(high)}"

    def read(value: Any, path: str) -> Any:
        found = form.read(value, path)
        if not low <= found <= high:
            raise FieldError(path, f"{shown(value)} is out of range; allowed is {bounds}")
        return found

    return form._replace(read=read, allowed=f"{form.allowed}, {bounds}")


def percent(low: float, high: float) -> Form:
    """Return the form of a share of a whole, in percent, up to three digits behind the point."""
    return _bounded(Form(str, _read_percent, _write_percent, "percent"), low, high)


def whole_percent(low: int, high: int) -> Form:
    """Return the form of a factor in whole percent."""

    def read(value: Any, path: str) -> int:
        found = _read_percent(value, path)
        if not found.is_integer():
            raise FieldError(path, f"{shown(value)} is a fraction; allowed are whole percent, as '150%'")
        return int(found)

    return _bounded(Form(str, read, _write_percent, "whole percent"), low, high)


def _read_percent(value: Any, path: str) -> float:
    """Return percent. A bare number is refused: 0.7 may be meant as a share, and 70 as percent."""
    match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise FieldError(path, f"expected percent as '70%' or '2.5%', got {shown(value)}")
    return float(match.group(1))


def _write_percent(value: float) -> str:
    return f"{_plain(value)}%"


def _plain(number: float) -> float | int:
    return int(number) if float(number).is_integer() else number


def duration(low_us: int, high_us: int, *, unit_us: int = SECOND_US) -> Form:
    """Return the form of a duration, kept in units of so many microseconds; bounds are in microseconds."""
    plain = Form(
        int | str,
        lambda value, path: _read_duration(value, path, unit_us),
        lambda value: _write_duration(value * unit_us),
        "duration",
    )
    return _bounded(plain, low_us // unit_us, high_us // unit_us)


def _read_duration(value: Any, path: str, unit_us: int) -> int:
    """Return a duration in its unit; a number is of seconds."""
    if isinstance(value, int) and not isinstance(value, bool):
        found_us = value * SECOND_US
    else:
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise FieldError(
                path,
                f"expected a duration as '60s', '1m30s' or '100ms', or whole seconds, got {shown(value)}",
            )
        found_us = sum(int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_US, strict=True))
    if found_us % unit_us:
        raise FieldError(path, f"{shown(value)} is a fraction; allowed are whole {_write_duration(unit_us)}")
    return found_us // unit_us


def _write_duration(value_us: int) -> str:
    for unit_us, suffix in ((SECOND_US, "s"), (1_000, "ms")):
        if value_us % unit_us == 0:
            return f"{value_us // unit_us}{suffix}"
    return f"{value_us}us"


def _read_amount(value: Any, path: str, resource: str) -> int:
    try:
        return to_canonical(read_amounts({resource: value}, ""))[resource]
    except FieldError as error:
        raise FieldError(path, error.message) from None


def amount(resource: str) -> Form:
    """Return the form of a quantity of a resource, in its canonical unit."""
    return Form(
        int | float | str,
        lambda value, path: _read_amount(value, path, resource),
        lambda value: format_resource(resource, value),
        "quantity",
    )


def more_than_none(form: Form) -> Form:
    """Return a form that refuses 0."""

    def read(value: Any, path: str) -> Any:
        found = form.read(value, path)
        if not found:
            raise FieldError(path, f"{shown(value)} is nothing; allowed is more than 0")
        return found

    return form._replace(read=read, allowed=f"{form.allowed} above 0")


def portion(resource: str) -> Form:
    """Return the form of a part of what a node has of a resource: percent, or a quantity."""
    share = percent(0, 100)

    def read(value: Any, path: str) -> Portion:
        if isinstance(value, str) and value.endswith("%"):
            return Portion(percent=share.read(value, path))
        return Portion(amount=_read_amount(value, path, resource))

    def write(value: Portion) -> str:
        return format_resource(resource, value.amount) if value.amount else share.write(value.percent)

    return Form(int | float | str, read, write, f"{share.allowed}, or quantity")


def number(low: float, high: float) -> Form:
    """Return the form of a number within bounds."""

    def read(value: Any, path: str) -> float:
        found = finite(value)
        if found is None:
            raise FieldError(path, f"expected a number, got {shown(value)}")
        return found

    return _bounded(Form(float, read, _plain, "number"), low, high)


def count(low: int, high: int) -> Form:
    """Return the form of a whole number within bounds."""

    def read(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise FieldError(path, f"expected an integer, got {shown(value)}")
        return value

    return _bounded(Form(int, read, int, "integer"), low, high)


def choice(*choices: enum.StrEnum) -> Form:
    """Return the form of one of some values of an enum."""
    known = {choice.value: choice for choice in choices}

    def read(value: Any, path: str) -> enum.StrEnum:
        found = known.get(value) if isinstance(value, str) else None
        if found is None:
            raise FieldError(path, f"{shown(value)} is not allowed; allowed are {', '.join(known)}")
        return found

    return Form(Literal[tuple(known)], read, str, " or ".join(f"`{each}`" for each in known))
