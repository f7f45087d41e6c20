"""Parses the documents of a text, YAML or JSON, and copies them as JSON can hold them, within bounds."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator
from typing import Any

from domain.model.errors import FieldError
from domain.model.validation import key_path

VALUES_SPARE = 100_000
"""Aliases may add so many values; without them a text has fewer than characters."""
TOO_MANY = "its aliases make far more of it than its text; write it out"
TOO_DEEP = "nested too deeply to be an object of Kubernetes"


class NotParsed(ValueError):
    """A text is not in its ``language``, at a ``line`` where that is known; "": it is more than it may be."""

    def __init__(self, said: str, language: str = "", line: int | None = None) -> None:
        super().__init__(said)
        self.said, self.language, self.line = said, language, line


def parse(text: str, *, as_json: bool, divider: str = "") -> Iterator[Any]:
    """Yield the documents of a text, JSON ones with white space or ``divider`` between them.

    Raises ``NotParsed``.
    """
    return _json(text, divider) if as_json else _yaml(text)


def _json(text: str, divider: str) -> Iterator[Any]:
    decoder, at, end = json.JSONDecoder(), 0, len(text)
    while True:
        while at < end and (text[at].isspace() or (divider and text.startswith(divider, at))):
            at += 1 if text[at].isspace() else len(divider)
        if at == end:
            return
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise NotParsed(getattr(error, "msg", str(error)), "JSON", line) from None
        except RecursionError:
            raise NotParsed(TOO_DEEP) from None
        yield document


def _yaml(text: str) -> Iterator[Any]:
    import yaml

    from services.plan import safe_yaml

    try:
        yield from safe_yaml.load_all(text, len(text) + VALUES_SPARE)
    except safe_yaml.TooDeep:
        raise NotParsed(TOO_DEEP) from None
    except safe_yaml.TooMany:
        raise NotParsed(TOO_MANY) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or "it does not parse"
        raise NotParsed(said, "YAML", mark.line + 1 if mark else None) from None


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
