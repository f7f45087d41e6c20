"""Copies parsed documents as JSON can hold them, within bounds."""

from __future__ import annotations

import datetime
import math
from typing import Any

from domain.model.errors import FieldError
from domain.model.validation import key_path

VALUES_SPARE = 100_000
"""Aliases may add so many values; without them a text has fewer than characters."""
TOO_MANY = "its aliases make far more of it than its text; write it out"


class Plain:
    """Copies a document as JSON can hold it: times that YAML parsed are text again.

    Parameters
    ----------
    values_max : int
        How many values there may be. An alias costs nothing until it is copied.
    """

    def __init__(self, values_max: int) -> None:
        self._left = values_max

    def of(self, value: Any, path: str) -> Any:
        """Return the copy.

        Raises
        ------
        FieldError
            There are too many values, a number is not finite (JSON would turn it into null), or JSON has no
            such value.
        """
        self._left -= 1
        if self._left < 0:
            raise FieldError("", TOO_MANY)
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise FieldError(path, f"the key {key!r} is not a text; put it in quotes")
            return {key: self.of(inner, key_path(path, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner, f"{path}[{at}]") for at, inner in enumerate(value)]
        if isinstance(value, int) and value.bit_length() > 64:
            raise FieldError(path, "is a whole number of more than 64 bits; put it in quotes")
        if isinstance(value, float) and not math.isfinite(value):
            raise FieldError(path, f"is {value}; a finite number is allowed")
        if isinstance(value, datetime.date):
            return value.isoformat().replace("+00:00", "Z")
        if value is not None and not isinstance(value, str | int | float):
            raise FieldError(path, f"is a {type(value).__name__} of YAML; what JSON can hold is allowed")
        return value
