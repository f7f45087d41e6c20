"""Profiles as they are written: plugins by bare name, or with weight and arguments."""

from __future__ import annotations

from typing import Any

from domain.manifests.metadata import read_name
from domain.model.errors import FieldError
from domain.model.limits import INT64_MAX
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import PluginUse, Profile
from domain.model.validation import check_printable, finite, key_path, shown

WEIGHT_MAX = 1_000_000
KIND = "SchedulingProfile"
API_VERSION = "berth/v1"

_BARE_FIELDS = ("name", "revision", "filters", "scores")
_SPEC_FIELDS = ("schedulerName", "filters", "scores")
_FILTER_FIELDS = ("name", "args")
_SCORE_FIELDS = ("name", "weight", "args")


def profile_from_manifest(document: Any, *, path: str = "") -> Profile:
    """Return a profile given as plain dicts and lists.

    Parameters
    ----------
    document : mapping
        A SchedulingProfile (``kind``, ``metadata.name``, ``spec``), or bare: ``filters`` and ``scores``,
        lists whose items are a plugin's name, or an object with ``name``, ``args`` and, for scores,
        ``weight``; ``name`` and ``revision`` may be left out. What the plugins make of their arguments is
        not looked at here.
    path : str
        What the paths in errors begin with.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    below = f"{path}." if path else ""
    if isinstance(document, dict) and "kind" in document:
        return _from_object(document, below)
    fields = _object(document, path, _BARE_FIELDS)
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


def _from_object(document: dict[str, Any], below: str) -> Profile:
    for field, expected in (("kind", KIND), ("apiVersion", API_VERSION)):
        if (given := document.get(field, expected)) != expected:
            raise FieldError(f"{below}{field}", f"{shown(given)} is not a profile's; allowed is {expected}")
    meta = document.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    if name is not None and not isinstance(name, str):
        raise FieldError(f"{below}metadata.name", f"expected a string, got {shown(name)}")
    name = read_name(name, f"{below}metadata", strict=True)
    return profile_from_spec(document.get("spec"), name=name, path=f"{below}spec")


def profile_from_spec(spec: Any, *, name: str, path: str) -> Profile:
    """Return the profile of a SchedulingProfile's ``spec``; both lists must be there, if only empty.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    if spec is None:
        raise FieldError(path, "is missing; a profile needs filters and scores")
    fields = _object(spec, path, _SPEC_FIELDS)
    for field in ("filters", "scores"):
        if fields.get(field) is None:
            raise FieldError(f"{path}.{field}", "is missing; a list of plugins is needed")
    if (given := fields.get("schedulerName", name)) != name:
        raise FieldError(f"{path}.schedulerName", f"{shown(given)} is not metadata.name; allowed is {name}")
    return Profile(
        name=name,
        filters=_uses(fields["filters"], f"{path}.filters", _FILTER_FIELDS),
        scores=_uses(fields["scores"], f"{path}.scores", _SCORE_FIELDS),
    )


def profile_to_spec(profile: Profile) -> dict[str, Any]:
    """Return the ``spec`` of a profile in its one form: what ``profile_from_spec`` reads."""
    return {
        "filters": [_written(use, {}) for use in profile.filters],
        "scores": [_written(use, {"weight": _plain(use.weight)}) for use in profile.scores],
    }


def _written(use: PluginUse, more: dict[str, Any]) -> dict[str, Any]:
    return {"name": use.name, **more, **({"args": use.args} if use.args else {})}


def _plain(weight: float) -> float | int:
    return int(weight) if weight.is_integer() else weight


def _uses(items: Any, path: str, allowed: tuple[str, ...]) -> tuple[PluginUse, ...]:
    if items is None:
        return ()
    if not isinstance(items, list):
        raise FieldError(path, f"expected a list of plugins, got {shown(items)}")
    _check_integers(items, path)
    return tuple(_use(item, f"{path}[{i}]", allowed) for i, item in enumerate(items))


def _check_integers(value: Any, path: str) -> None:
    """Refuse values that the ledger or a plugin cannot hold, at any depth."""
    if isinstance(value, int) and not -INT64_MAX <= value <= INT64_MAX:
        raise FieldError(path, "is out of range; allowed are integers of 64 bits")
    if isinstance(value, list):
        for i, item in enumerate(value):
            _check_integers(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_integers(item, key_path(path, str(key)))


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
    weight = finite(value)
    if weight is None:
        raise FieldError(path, f"expected a number, got {shown(value)}")
    if not 0 < weight <= WEIGHT_MAX:
        raise FieldError(path, f"{weight:g} is out of range; allowed is above 0, up to {WEIGHT_MAX}")
    return weight


def _object(value: Any, path: str, allowed: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {shown(value)}")
    for key in value:
        if key not in allowed:
            raise FieldError(key_path(path, str(key)), f"unknown; allowed are {', '.join(allowed)}")
    return value
