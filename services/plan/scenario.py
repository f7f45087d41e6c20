"""A scenario: a cluster, what was measured, a profile and the pods to place, all in one document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from domain.engine.evaluate import Verdict
from domain.manifests.profile import KIND as PROFILE_KIND
from domain.manifests.profile import profile_from_manifest
from domain.model.colocation import UseByQuality
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.profiles import Profile
from domain.model.signature import signature
from domain.model.timestamps import NEVER_MS
from domain.model.usage import usage_from_manifest
from domain.model.validation import field_error, key_path, shown
from domain.plugins.registry import ProfilePlan
from domain.state.nominations import Nomination, Victim
from domain.state.steps import Nominated, NominationsFollowed
from services.codec.envelope import KINDS
from services.plan.kept import KEPT, kept_event, read_templates
from services.plan.objects import Given
from services.plan.plan import OTHER_SHARD, Moment, Plan, Planned
from services.plan.spelling import ignored, meant, unknown_fields

SCENARIO_KEYS = (
    "objects", "schedule", "profile", "usage",
    "seed", "profiles", "templates", "home", "nominations", "recent", "quality",
)  # fmt: skip
SCENARIO_NOTES = frozenset(
    (
        "about", "article_claims", "article_error", "article_figures", "conventions", "derived",
        "description", "equation", "expect", "expect_detail", "function", "given", "given_in_seed", "id",
        "missing_in_seed", "name", "note", "notes", "origin", "origin_values", "published_figures", "rule",
        "schema", "source", "stage", "title", "tolerance", "topic",
    )
)  # fmt: skip
"""Keys of a scenario for its readers: names, sources, and the answer that a test expects."""


def is_scenario(document: Any) -> bool:
    """Return whether a document is a scenario, even one with a misspelt key, and no manifest or event."""
    if not isinstance(document, dict) or "kind" in document or {"type", "object"} <= document.keys():
        return False
    return any(key in SCENARIO_KEYS or _meant(key) for key in document)


def unread(document: Mapping[str, Any]) -> list[str]:
    """Return a line for each key, field and measured node of a scenario that the plan does not use."""
    known = ", ".join(SCENARIO_KEYS)
    found = [
        f"{_at(key)}: is no key of a scenario, so it is ignored; a scenario has {known}"
        for key in document
        if key not in SCENARIO_KEYS and key not in SCENARIO_NOTES
    ]
    for i, manifest in enumerate(document["objects"]):
        if KEPT not in manifest:
            found += [ignored(*field) for field in unknown_fields(manifest, f"objects[{i}]")]
    nodes = {thing["metadata"]["name"] for thing in document["objects"] if thing["kind"] == "Node"}
    usage = _or(document, "usage", {})
    return found + [
        f"{key_path('usage', node)}: no node of the objects has this name, so it is ignored"
        for node in usage
        if node not in nodes
    ]


def plan_scenario(
    document: Mapping[str, Any], *, seed: int | None = None, profile: Profile | None = None
) -> list[Verdict]:
    """Return a verdict for every pod that a scenario schedules; see ``placed_scenario``."""
    plan, _ = placed_scenario(document, seed=seed, profile=profile)
    return list(plan.verdicts())


def placed_scenario(
    document: Mapping[str, Any], *, seed: int | None = None, profile: Profile | None = None
) -> tuple[Plan, list[Planned]]:
    """Place the pods that a scenario schedules; return the plan, which has the verdicts, and the decisions.

    Parameters
    ----------
    document : mapping
        ``objects`` (manifests; a pod is bound when it has ``spec.nodeName``), ``schedule`` (names of the
        pods, which arrive one by one, in order; without it all waiting pods are there at once),
        ``profile`` and optionally ``usage`` (node -> resource -> ``avg``, ``std``, ``latest``, ``peak`` in
        percent), and what of a past moment no object says: see docs/plan.md. Other keys are ignored, and
        ``unread`` names them. A key that looks like a misspelling of one of these is an error.
    seed : int, optional
        Decides between nodes of equal score. The scenario's own goes before it; without either it is 0.
    profile : Profile, optional
        Instead of the scenario's own.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    for key in document:
        if near := _meant(key):
            raise FieldError(_at(key), f"is no key of a scenario; did you mean {near}?")
    own = document.get("profile")
    if profile is None and own is not None:
        profile = profile_from_manifest(own, path="profile")
    templates = read_templates(_or(document, "templates", {}))
    moment = _moment(document, templates)
    for one in moment.profiles:
        _checked(one, "profiles")
    if profile is not None:
        _checked(profile, "profile")
    seed = _convert(document.get("seed", seed or 0), int, "seed")
    plan = Plan(seed=seed, profile=profile, lenient=True, moment=moment)
    if document.get("usage") is not None or document.get("quality") is not None:
        quality = _convert(_or(document, "quality", {}), dict[str, UseByQuality], "quality")
        plan.measure(usage_from_manifest(_or(document, "usage", {})), quality)
    _add_objects(plan, _list(document, "objects"), templates)
    if "schedule" not in document:
        return plan, plan.place()
    schedule = _list(document, "schedule")
    for i, name in enumerate(schedule):
        if not isinstance(name, str):
            raise FieldError(f"schedule[{i}]", f"expected the name of a pod, got {shown(name)}")
    return plan, plan.place_one_by_one(schedule)


class _Nominated(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node that is set aside for a waiting pod, until its victims have left.

    With a ``template`` the pod is one of another worker, and not among the objects.
    """

    pod: str
    node: str
    victims: list[str] = []
    template: str = ""


def _nomination(
    given: _Nominated, number: int, templates: Mapping[str, PodTemplate]
) -> Nominated | NominationsFollowed:
    if not given.template:
        return Nominated(given.pod, given.node, given.victims, at_ms=0, expires_ms=NEVER_MS, below=-(2**31))
    template = templates.get(given.template)
    if template is None:
        message = f"{shown(given.template)} is none of the templates"
        raise FieldError(f"nominations[{number}].template", message)
    nomination = Nomination(
        key=given.pod,
        uid=given.pod,
        shard=OTHER_SHARD,
        node=given.node,
        signature=signature(template),
        template=template,
        at_ms=0,
        expires_ms=NEVER_MS,
        victims=tuple(Victim(key, key, OTHER_SHARD) for key in given.victims),
    )
    return NominationsFollowed([nomination], [])


def _moment(document: Mapping[str, Any], templates: Mapping[str, PodTemplate]) -> Moment:
    """Return what of a past moment no object says."""
    home = document.get("home")
    given = _convert(_or(document, "nominations", []), list[_Nominated], "nominations")
    return Moment(
        profiles=[
            profile_from_manifest(each, path=f"profiles[{i}]")
            for i, each in enumerate(_convert(_or(document, "profiles", []), list[Any], "profiles"))
        ],
        home=None if home is None else frozenset(_convert(home, list[str], "home")),
        nominations=[_nomination(each, i, templates) for i, each in enumerate(given)],
        recent=frozenset(_convert(_or(document, "recent", []), list[str], "recent")),
    )


def _or(document: Mapping[str, Any], key: str, absent: Any) -> Any:
    """Return the value of a key, which null leaves out."""
    value = document.get(key)
    return absent if value is None else value


def _checked(profile: Profile, path: str) -> None:
    try:
        ProfilePlan(profile)
    except FieldError as error:
        raise FieldError(f"{path}.{error.path}", error.message) from None


def _convert(value: Any, shape: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None


def _add_objects(plan: Plan, objects: list[Any], templates: Mapping[str, PodTemplate]) -> None:
    first: dict[tuple[str, str, str], int] = {}
    for i, manifest in enumerate(objects):
        kind = manifest.get("kind") if isinstance(manifest, Mapping) else None
        if kind not in KINDS:
            raise FieldError(
                f"objects[{i}].kind",
                f"{shown(kind)} is not planned with; allowed are {', '.join(KINDS)}",
            )
        given = Given("ADDED", manifest, f"objects[{i}]")
        if KEPT in manifest:
            plan.add_event(kept_event(manifest, templates, f"objects[{i}]"), given)
        else:
            plan.add(given)
        if kind not in ("Node", "Pod", PROFILE_KIND):
            continue
        meta = manifest.get("metadata") or {}
        namespace = (meta.get("namespace") or "default") if kind == "Pod" else ""
        at = first.setdefault((kind, namespace, meta.get("name") or ""), i)
        if at != i:
            raise FieldError(
                f"objects[{i}].metadata.name",
                f"{shown(meta.get('name'))} is the {kind} at objects[{at}] already; one of them is too many",
            )


def _meant(key: str) -> str | None:
    """Return the key of a scenario that a key looks like a misspelling of."""
    return None if key in SCENARIO_NOTES else meant(key, SCENARIO_KEYS)


def _at(key: str) -> str:
    return key_path("", key).removeprefix(".")


def _list(document: Mapping[str, Any], key: str) -> list[Any]:
    if key not in document:
        raise FieldError(key, "is missing; a scenario has objects, a list of manifests")
    value = document[key]
    if not isinstance(value, list):
        raise FieldError(key, f"expected a list, got {shown(value)}")
    return value
