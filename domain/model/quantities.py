"""Quantities as Kubernetes writes them, read and shown exactly: no floating point anywhere.

The forms are those of ``resource.Quantity``: an optional sign, decimal digits with an optional point, and a
suffix (``n u m k M G T P E``, ``Ki Mi Gi Ti Pi Ei``) or a decimal exponent (``1e3``, ``1E-3``). As there, a
non-zero value below a billionth counts as a billionth, a binary value is capped at 2**63 - 1, and values
round away from zero when they become integers. Unlike there, a suffix without any digit is an error.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

from domain.model.errors import FieldError
from domain.model.limits import INT64_MAX

_TEXT_LENGTH_MAX = 64
_EXPONENT_MAX = 60  # far above every limit, far below what makes the integers expensive

_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?((?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?)")
_BINARY_RESOURCES = ("memory", "ephemeral-storage", "storage")
HUGE_PAGES_PREFIX = "hugepages-"


def _error(text: str, problem: str) -> FieldError:
    shown = text if len(text) <= _TEXT_LENGTH_MAX else text[:_TEXT_LENGTH_MAX] + "…"
    return FieldError(
        "",
        f"{shown!a} {problem}; allowed is a decimal number, alone or with one of the suffixes "
        "n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or with an exponent such as 1e3",
    )


def parse_quantity(text: str) -> Fraction:
    """Return the exact value of a quantity.

    Parameters
    ----------
    text : str
        The quantity, without surrounding blanks: ``100m``, ``1.5``, ``2Gi``, ``1e3``, ``128974848``.

    Raises
    ------
    FieldError
        If the text is not a quantity; the path is empty, the message names what is allowed.
    """
    match = _FORM.fullmatch(text) if len(text) <= _TEXT_LENGTH_MAX else None
    if match is None:
        raise _error(text, "is not a quantity")
    sign, whole, fraction, suffix = match.group(1), match.group(2), match.group(3) or "", match.group(4)
    if not whole and not fraction:
        raise _error(text, "has no digits")
    digits = int(whole + fraction)
    magnitude: Fraction
    if suffix in _BINARY:
        nanos = Fraction(digits << _BINARY[suffix], 10 ** len(fraction))
        magnitude = min(_at_least_nanos(nanos), Fraction(INT64_MAX))
    else:
        exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
        if abs(exponent) > _EXPONENT_MAX:
            raise _error(text, f"has an exponent beyond {_EXPONENT_MAX}")
        magnitude = _at_least_nanos(Fraction(digits) * Fraction(10) ** (exponent - len(fraction)))
    return -magnitude if sign == "-" else magnitude


def _at_least_nanos(value: Fraction) -> Fraction:
    """Round up to whole billionths, the finest step that a quantity can hold."""
    return Fraction(-((-value * 10**9) // 1), 10**9)


@lru_cache(maxsize=1 << 14)
def to_milli(text: str) -> int:
    """Return a quantity in thousandths, rounded away from zero (``Quantity.MilliValue``)."""
    if len(text) <= _TEXT_LENGTH_MAX and text.isascii():
        if text.isdigit():
            return int(text) * 1000
        if text[-1:] == "m" and text[:-1].isdigit():
            return int(text[:-1])
        if text[-2:] in _BINARY and text[:-2].isdigit():
            return min(int(text[:-2]) << _BINARY[text[-2:]], INT64_MAX) * 1000
    return _away_from_zero(parse_quantity(text) * 1000)


def to_units(text: str) -> int:
    """Return a quantity in whole units, rounded away from zero (``Quantity.Value``)."""
    return milli_to_units(to_milli(text))


def milli_to_units(milli: int) -> int:
    """Return thousandths as whole units, rounded away from zero."""
    return -(-milli // 1000) if milli >= 0 else milli // 1000


def _away_from_zero(value: Fraction) -> int:
    return -(-value // 1) if value >= 0 else value // 1


def format_milli(milli: int) -> str:
    """Return thousandths as a quantity: ``500m``, ``4``."""
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def format_units(value: int, *, binary: bool) -> str:
    """Return whole units as a quantity; with ``binary`` by the largest suffix that is exact: ``1536Mi``."""
    if not binary or value == 0:
        return str(value)
    for suffix, shift in reversed(_BINARY.items()):
        if value % (1 << shift) == 0:
            return f"{value >> shift}{suffix}"
    return str(value)


def format_resource(name: str, value: int) -> str:
    """Return an amount of a resource, in its canonical unit, as a quantity for people.

    Parameters
    ----------
    name : str
        The resource: ``cpu`` is in thousandths of a core, everything else in its own unit.
    value : int
        The amount.
    """
    if name == "cpu":
        return format_milli(value)
    return format_units(value, binary=name in _BINARY_RESOURCES or name.startswith(HUGE_PAGES_PREFIX))
