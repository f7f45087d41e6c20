"""Reads the profiles of a KubeSchedulerConfiguration as profiles of berth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from domain.manifests.profile import API_VERSION, KIND
from domain.model.errors import FieldError
from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.validation import shown
from domain.plugins.registry import FILTERS, SCORES

Json = dict[str, Any]

_DEFAULTS: tuple[tuple[str, int], ...] = (
    ("SchedulingGates", 0),
    ("PrioritySort", 0),
    ("NodeUnschedulable", 0),
    ("NodeName", 0),
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("NodePorts", 0),
    ("NodeResourcesFit", 1),
    ("VolumeRestrictions", 0),
    ("NodeVolumeLimits", 0),
    ("VolumeBinding", 0),
    ("VolumeZone", 0),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("DefaultPreemption", 0),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
    ("DefaultBinder", 0),
    ("NodeDeclaredFeatures", 0),
)
"""What kube-scheduler enables at ``multiPoint`` by itself, in its order, with the weights of the scores."""

_BUILT_IN = frozenset(("SchedulingGates", "PrioritySort", "DefaultBinder"))
"""Plugins of kube-scheduler whose work every worker does under any profile."""

_IN_WHOLE_NUMBERS = frozenset(
    use.name for use in BUILT_IN_PROFILES[DEFAULT_PROFILE].scores if "arithmetic" in use.args
)
"""Scores of kube-scheduler that berth computes in real numbers unless it is told otherwise."""

_POINTS = (
    "preEnqueue", "queueSort", "preFilter", "filter", "postFilter", "preScore", "score", "reserve", "permit",
    "preBind", "bind", "postBind", "multiPoint",
)  # fmt: skip
_OF_PROFILE = ("schedulerName", "plugins", "pluginConfig", "percentageOfNodesToScore")


class _Enabled(NamedTuple):
    name: str
    weight: int
    path: str  # empty: by default


class Translation(NamedTuple):
    """The profiles as manifests, each with its path in the configuration, and what berth does not have."""

    profiles: list[tuple[str, Json]]
    warnings: list[str]


def profiles_of(document: Mapping[str, Any]) -> Translation:
    """Return the profiles of a KubeSchedulerConfiguration as SchedulingProfiles.

    Plugins are enabled and disabled as kube-scheduler does it: ``multiPoint`` first, then the extension
    points, each with ``*`` for all. A plugin that the configuration names and that berth does not have is
    left out and named in a warning.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    warnings = []
    if document.get("extenders"):
        warnings.append("extenders: berth calls no extenders, so they have no say")
    profiles: list[tuple[str, Json]] = []
    given = _list(document, "profiles", "") or [{}]
    for i, profile in enumerate(given):
        path = f"profiles[{i}]"
        fields = _object(profile, path)
        for key in fields:
            if key not in _OF_PROFILE:
                raise FieldError(f"{path}.{key}", f"unknown; allowed are {', '.join(_OF_PROFILE)}")
        name = fields.get("schedulerName") or DEFAULT_PROFILE
        if any(name == known["metadata"]["name"] for _, known in profiles):
            raise FieldError(f"{path}.schedulerName", f"{shown(name)} is there twice")
        translated = _Profile(fields, path)
        profiles.append((path, translated.manifest(name)))
        warnings += translated.warnings
    return Translation(profiles, warnings)


class _Profile:
    """One profile of the configuration."""

    def __init__(self, fields: Mapping[str, Any], path: str) -> None:
        self.warnings: list[str] = []
        self._plugins = _object(fields.get("plugins") or {}, f"{path}.plugins")
        self._path = f"{path}.plugins"
        for point in self._plugins:
            if point not in _POINTS:
                allowed = ", ".join(_POINTS)
                raise FieldError(f"{self._path}.{point}", f"is no extension point; allowed are {allowed}")
        self._args = self._read_args(fields, path)
        self._everywhere = self._multi_point()

    def manifest(self, name: Any) -> Json:
        filters = [self._use(each, {}) for each in self._at("filter", FILTERS)]
        scores = [self._score(each) for each in self._at("score", SCORES)]
        for point in set(_POINTS) - {"filter", "score", "multiPoint"}:
            for each in self._enabled(point):
                self._warn_unless_known(each)
        spec = {"filters": filters, "scores": scores}
        return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}

    def _use(self, each: _Enabled, more: Json) -> Json:
        return {"name": each.name, **more, "args": self._args.get(each.name, {})}

    def _score(self, each: _Enabled) -> Json:
        """Return a score that counts as kube-scheduler does: in whole numbers."""
        use = self._use(each, {"weight": each.weight or 1})
        if each.name in _IN_WHOLE_NUMBERS:
            use["args"] = {"arithmetic": "integer", **use["args"]}
        return use

    def _multi_point(self) -> list[_Enabled]:
        disabled = self._disabled("multiPoint")
        own = {each.name: each for each in self._enabled("multiPoint")}
        found = []
        for name, weight in _DEFAULTS:
            if "*" not in disabled and name not in disabled:
                found.append(own.pop(name, _Enabled(name, weight, "")))
        for each in own.values():
            self._warn_unless_known(each)
        return found + list(own.values())

    def _at(self, point: str, known: Mapping[str, Any]) -> Iterator[_Enabled]:
        """Yield a point's plugins: enabled here and at ``multiPoint``, then there alone, then here alone."""
        disabled, here = self._disabled(point), {each.name: each for each in self._enabled(point)}
        everywhere = [
            each
            for each in self._everywhere
            if each.name in known and "*" not in disabled and each.name not in disabled
        ]
        names = {each.name for each in everywhere}
        yield from (each for each in here.values() if each.name in names)
        yield from (each for each in everywhere if each.name not in here)
        for each in here.values():
            if each.name in known and each.name not in names:
                yield each
            elif each.name not in known:
                self._warn_unless_known(each, f"has no {point} {each.name}")

    def _warn_unless_known(self, each: _Enabled, lacks: str = "") -> None:
        if lacks or each.name not in (*FILTERS, *SCORES, *_BUILT_IN):
            lacks = lacks or f"has no plugin {each.name}"
            self.warnings.append(f"{each.path}: berth {lacks}; it is left out")

    def _enabled(self, point: str) -> list[_Enabled]:
        found = []
        for path, fields in self._set(point, "enabled"):
            weight = fields.get("weight") or 0
            if isinstance(weight, bool) or not isinstance(weight, int):
                raise FieldError(f"{path}.weight", f"expected an integer, got {shown(weight)}")
            found.append(_Enabled(fields["name"], weight, path))
        return found

    def _disabled(self, point: str) -> set[str]:
        return {fields["name"] for _, fields in self._set(point, "disabled")}

    def _set(self, point: str, which: str) -> Iterator[tuple[str, Json]]:
        path = f"{self._path}.{point}"
        plugins = _object(self._plugins.get(point) or {}, path)
        for i, item in enumerate(_list(plugins, which, path)):
            at = f"{path}.{which}[{i}]"
            fields = _object(item, at)
            if not isinstance(fields.get("name"), str):
                raise FieldError(f"{at}.name", f"expected a plugin's name, got {shown(fields.get('name'))}")
            yield at, fields

    def _read_args(self, fields: Mapping[str, Any], path: str) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for i, item in enumerate(_list(fields, "pluginConfig", path)):
            at = f"{path}.pluginConfig[{i}]"
            each = _object(item, at)
            name = each.get("name")
            if not isinstance(name, str):
                raise FieldError(f"{at}.name", f"expected a plugin's name, got {shown(name)}")
            if name not in FILTERS and name not in SCORES:
                self.warnings.append(f"{at}: berth has no plugin {name}; its arguments are left out")
                continue
            args = _object(each.get("args") or {}, f"{at}.args")
            found[name] = {key: value for key, value in args.items() if key not in ("apiVersion", "kind")}
        return found


def _object(value: Any, path: str) -> Json:
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {shown(value)}")
    return value


def _list(fields: Mapping[str, Any], key: str, path: str) -> list[Any]:
    value = fields.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise FieldError(f"{path}.{key}".lstrip("."), f"expected a list, got {shown(value)}")
    return value
