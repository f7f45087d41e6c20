"""What names, labels and texts may be, by the rules of Kubernetes, and how a wrong field is named."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import msgspec

from domain.model.errors import FieldError
from domain.model.limits import INT64_MAX, label_name_length_max, labels_per_object_max, name_length_max

_DNS_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(rf"(?:{_LABEL_NAME.pattern})?")
_QUALIFIED_LENGTH_MAX = name_length_max + 1 + label_name_length_max
_PLAIN_KEY = re.compile(r"[-A-Za-z0-9_]{1,63}")
_MSGSPEC_PATH = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
_MSGSPEC_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "datetime": "an RFC 3339 timestamp",
    "null": "null",
}

_SUBDOMAIN_RULE = (
    f"at most {name_length_max} lower-case letters, digits, '-' and '.', "
    "each part beginning and ending with a letter or digit (a DNS-1123 subdomain)"
)
_LABEL_VALUE_RULE = (
    f"at most {label_name_length_max} letters, digits, '-', '_' and '.', "
    "beginning and ending with a letter or digit, or nothing"
)
_LABEL_KEY_RULE = (
    f"a name of at most {label_name_length_max} letters, digits, '-', '_' and '.', beginning and ending with "
    "a letter or digit, after an optional DNS-1123 subdomain and '/'"
)


def shown(value: object) -> str:
    """Return a value as an error message shows it: quoted, escaped, cut."""
    text = ascii(value)
    return text if len(text) <= 80 else text[:79] + "…"


def key_path(path: str, key: str) -> str:
    """Return the path of a key: ``limits.cpu``, ``limits[nvidia.com/gpu]``."""
    return f"{path}.{key}" if _PLAIN_KEY.fullmatch(key) else f"{path}[{shown(key)[1:-1]}]"


def check_subdomain(name: str, path: str, field: str = "") -> str:
    """Return ``name`` if it is a DNS-1123 subdomain, as the names of nodes and pods are.

    ``field`` is joined to the path in an error alone: of a million names hardly one is wrong.
    """
    if len(name) > name_length_max or not _DNS_SUBDOMAIN.fullmatch(name):
        raise FieldError(path + field, f"{shown(name)} is not a name; allowed are {_SUBDOMAIN_RULE}")
    return name


@lru_cache(maxsize=1024)
def _is_dns_label(name: str) -> bool:
    return _DNS_LABEL.fullmatch(name) is not None  # ask with short names only: the cache keeps them


def check_dns_label(name: str, path: str, field: str = "") -> str:
    """Return ``name`` if it is a DNS-1123 label, as namespaces are."""
    if len(name) > label_name_length_max or not _is_dns_label(name):
        raise FieldError(
            path + field,
            f"{shown(name)} is not a DNS-1123 label; allowed are at most {label_name_length_max} lower-case "
            "letters, digits and '-', beginning and ending with a letter or digit",
        )
    return name


def check_printable(text: str, path: str, field: str = "", length_max: int = name_length_max) -> str:
    """Return ``text`` if it is printable ASCII without blanks, not empty and not too long."""
    is_printable = text.isascii() and text.isprintable() and " " not in text
    if not (text and is_printable and len(text) <= length_max):
        raise FieldError(
            path + field, f"{shown(text)} is not allowed; allowed are 1 to {length_max} printable characters"
        )
    return text


def is_qualified_name(key: str) -> bool:
    """Whether a key of a label, taint or resource has the form ``[subdomain/]name``."""
    return len(key) <= _QUALIFIED_LENGTH_MAX and _is_qualified_name(key)


@lru_cache(maxsize=1 << 14)
def _is_qualified_name(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > name_length_max or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return False
    return _LABEL_NAME.fullmatch(name) is not None


def check_label_key(key: str, path: str) -> str:
    """Return ``key`` if it is a label key."""
    if not is_qualified_name(key):
        raise FieldError(path, f"{shown(key)} is not a label key; allowed is {_LABEL_KEY_RULE}")
    return key


def check_label_value(value: object, path: str) -> str:
    """Return ``value`` if it is a label value."""
    if not isinstance(value, str):
        raise FieldError(path, f"expected a string, got {shown(value)}")
    if value and not _LABEL_NAME.fullmatch(value):
        raise FieldError(path, f"{shown(value)} is not a label value; allowed are {_LABEL_VALUE_RULE}")
    return value


def check_label_values(values: Sequence[str], path: str) -> None:
    """Raise where one is no label value. A place is made only of what is wrong: there may be thousands."""
    if not all(map(_LABEL_VALUE.fullmatch, values)):
        for index, value in enumerate(values):
            check_label_value(value, f"{path}[{index}]")


def check_labels(labels: Mapping[str, Any] | None, path: str) -> dict[str, str]:
    """Return labels whose keys and values are all valid."""
    if not labels:
        return {}
    if len(labels) > labels_per_object_max:
        too_many(path, len(labels), labels_per_object_max, "labels_per_object_max")
    for key, value in labels.items():
        if not is_qualified_name(key):
            check_label_key(key, key_path(path, key))
        if not isinstance(value, str) or (value and not _LABEL_NAME.fullmatch(value)):
            check_label_value(value, key_path(path, key))
    return dict(labels)


def finite(value: object) -> float | None:
    """Return a number of a JSON document; None for what is none, or more than a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON sets no limit to the digits of a whole number
        return None
    return number if math.isfinite(number) else None


def check_choice(value: str, allowed: tuple[str, ...], path: str) -> str:
    """Return ``value`` if it is one of ``allowed``."""
    if value not in allowed:
        raise FieldError(path, f"{shown(value)} is not allowed; allowed are {', '.join(allowed)}")
    return value


def check_range(value: int, low: int, high: int, path: str) -> int:
    """Return ``value`` if it is within the bounds."""
    if not low <= value <= high:
        raise FieldError(path, f"{shown(value)} is out of range; allowed is {low} to {high}")
    return value


def check_count(count: int, bound: int, bound_name: str, path: str) -> None:
    """Raise if there are more items than a named limit allows."""
    if count > bound:
        too_many(path, count, bound, bound_name)


def too_many(path: str, count: int, bound: int, bound_name: str) -> NoReturn:
    """Raise the error for more items than a named limit allows."""
    raise FieldError(path, f"{count} are too many; allowed are at most {bound} ({bound_name})")


def read_resource_version(text: str | None, path: str, field: str = "") -> int | None:
    """Return a resource version as the number that orders it, None when it is absent or empty."""
    if not text:
        return None
    if len(text) <= 19 and text.isascii() and text.isdigit() and (version := int(text)) <= INT64_MAX:
        return version
    raise FieldError(
        path + field, f"{shown(text)} is not a resource version; allowed is a decimal number below 2^63"
    )


def field_error(error: msgspec.ValidationError, path: str) -> FieldError:
    """Return what msgspec says of a field in our words, with the path below ``path``."""
    text = str(error)
    where = _MSGSPEC_PATH.search(text)
    below = where.group(1).replace("[...]", "") if where else ""
    problem = text[: where.start()] if where else text
    if "`key` in" in text:
        problem += " as a key"
    for word, plain in _MSGSPEC_WORDS.items():
        problem = re.sub(rf"\b{word}\b(?=[^`]*`)", plain, problem)
    problem = problem.replace("`", "").replace(" | null", "").replace(" | ", " or ")
    full = f"{path}{below}" if path else below.removeprefix(".")
    return FieldError(full, problem[:1].lower() + problem[1:])
