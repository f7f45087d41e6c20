"""Profiles as they are written: plugins by bare name, or with weight and arguments."""

from __future__ import annotations

import math
from typing import Any

from domain.model.errors import FieldError
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import PluginUse, Profile
from domain.model.validation import check_printable, key_path, shown

WEIGHT_MAX = 1_000_000

_PROFILE_FIELDS = ("name", "revision", "filters", "scores")
_FILTER_FIELDS = ("name", "args")
_SCORE_FIELDS = ("name", "weight", "args")


def profile_from_manifest(document: Any, *, path: str = "") -> Profile:
    """Return a profile given as plain dicts and lists.

    Parameters
    ----------
    document : mapping
        ``filters`` and ``scores``: lists whose items are a plugin's name, or an object with ``name``,
        ``args`` and, for scores, ``weight``; ``name`` and ``revision`` may be left out. What the plugins
        make of their arguments is not looked at here.
    path : str
        What the paths in errors begin with.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    fields = _object(document, path, _PROFILE_FIELDS)
    below = f"{path}." if path else ""
    revision = fields.get("revision", 1)
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 0:
        raise FieldError(f"{below}revision", f"expected an integer from 0, got {shown(revision)}")
    name = fields.get("name", DEFAULT_PROFILE)
    if not isinstance(name, str):
        raise FieldError(f"{below}name", f"expected a string, got {shown(name)}")
    return Profile(
        name=check_printable(name, f"{below}name"),
        revision=revision,
        filters=_uses(fields.get("filters"), f"{below}filters", _FILTER_FIELDS),
        scores=_uses(fields.get("scores"), f"{below}scores", _SCORE_FIELDS),
    )


def _uses(items: Any, path: str, allowed: tuple[str, ...]) -> tuple[PluginUse, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise FieldError(path, f"expected a list of plugins, got {shown(items)}")
    return tuple(_use(item, f"{path}[{i}]", allowed) for i, item in enumerate(items))


def _use(item: Any, path: str, allowed: tuple[str, ...]) -> PluginUse:
    if isinstance(item, str):
        return PluginUse(name=item)
    fields = _object(item, path, allowed)
    name, args = fields.get("name"), fields.get("args")
    if not isinstance(name, str) or not name:
        raise FieldError(f"{path}.name", f"expected the name of a plugin, got {shown(name)}")
    if args is not None and not isinstance(args, dict):
        raise FieldError(f"{path}.args", f"expected an object, got {shown(args)}")
    return PluginUse(name=name, weight=_weight(fields.get("weight"), f"{path}.weight"), args=args or {})


def _weight(value: Any, path: str) -> float:
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FieldError(path, f"expected a number, got {shown(value)}")
    if not 0 < value <= WEIGHT_MAX:
        raise FieldError(path, f"{value:g} is out of range; allowed is above 0, up to {WEIGHT_MAX}")
    return float(value)


def _object(value: Any, path: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {shown(value)}")
    for key in value:
        if key not in allowed:
            raise FieldError(key_path(path, str(key)), f"unknown; allowed are {', '.join(allowed)}")
    return value
