"""Objects of a scenario in berth's own form: what berth keeps of a node, a pod or a configuration object.

A manifest says what a user asked for; what berth makes of it is sums, defaults and answers of other objects.
Where a past decision is written as a scenario, that is what must come back, field by field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from domain.manifests.node import READY, USAGE_WINDOW_KEY
from domain.manifests.objects import node_from_manifest
from domain.model.config import CONTENTS, ConfigObject
from domain.model.errors import FieldError
from domain.model.events import ConfigUpserted, Event, NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.pods import NO_LIFE, PodLife, PodSpec, PodTemplate
from domain.model.resources import CPU
from domain.model.signature import signature
from domain.model.validation import field_error, shown

KEPT = "kept"
"""The field of an object that has it in berth's own form, in place of ``spec`` and ``status``."""

Json = dict[str, Any]


class KeptPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A pod: by which of the scenario's ``templates`` it is placed, where it counts, what is known of it.

    ``excluded`` are nodes to which it could not be bound a moment ago.
    """

    template: str
    node: str = ""
    life: PodLife = NO_LIFE
    excluded: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------- written


def template_value(template: PodTemplate) -> Json:
    """Return a template without the fields that have their defaults."""
    return _without_defaults(template, PodTemplate())


def node_object(spec: NodeSpec) -> Json:
    """Return a node as a manifest; in berth's own form where no manifest says the same."""
    written = _node_manifest(spec)
    try:
        if node_from_manifest(written, strict=False) == spec:
            return written
    except FieldError:
        pass
    kept = _without_defaults(spec, NodeSpec(name=spec.name, uid=spec.name, resource_version=None))
    return {"kind": "Node", "metadata": {"name": spec.name}, KEPT: kept}


def pod_object(pod: PodSpec, template: str, node: str = "", excluded: tuple[str, ...] = ()) -> Json:
    """Return a pod that is placed by the named template; ``node``, ``excluded`` as of ``KeptPod``."""
    meta: Json = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
    if pod.labels:
        meta["labels"] = dict(pod.labels)
    kept = KeptPod(template=template, node=node, life=pod.life or NO_LIFE, excluded=excluded)
    return {"kind": "Pod", "metadata": meta, KEPT: msgspec.to_builtins(kept)}


def config_object(thing: ConfigObject) -> Json:
    """Return a configuration object that is in force."""
    meta = {"name": thing.name, **({"namespace": thing.namespace} if thing.namespace else {})}
    return {"kind": thing.kind, "metadata": meta, KEPT: msgspec.to_builtins(thing.content)}


def _node_manifest(spec: NodeSpec) -> Json:
    meta: Json = {"name": spec.name}
    if spec.uid != spec.name:
        meta["uid"] = spec.uid
    if spec.resource_version is not None:
        meta["resourceVersion"] = str(spec.resource_version)
    if spec.labels:
        meta["labels"] = dict(spec.labels)
    if spec.usage_window_seconds:
        meta["annotations"] = {USAGE_WINDOW_KEY: str(spec.usage_window_seconds)}
    status: Json = {"allocatable": _quantities(spec.allocatable)}
    if spec.capacity:
        status["capacity"] = _quantities(spec.capacity)
    if spec.images:
        status["images"] = [{"names": list(e.names), "sizeBytes": e.size_bytes} for e in spec.images]
    if spec.ready is not None:
        status["conditions"] = [{"type": READY, "status": str(spec.ready)}]
    if spec.declared_features:
        status["declaredFeatures"] = list(spec.declared_features)
    asked: Json = {}
    if spec.unschedulable:
        asked["unschedulable"] = True
    if spec.taints:
        asked["taints"] = [_without_empty(msgspec.to_builtins(each)) for each in spec.taints]
    written = {"kind": "Node", "metadata": meta, "status": status}
    return {**written, "spec": asked} if asked else written


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Return amounts as manifests have them: cpu is kept in thousandths of a core."""
    return {name: f"{amount}m" if name == CPU else str(amount) for name, amount in amounts.items()}


def _without_empty(value: Json) -> Json:
    return {key: each for key, each in value.items() if each != ""}


def _without_defaults(value: msgspec.Struct, default: msgspec.Struct) -> Json:
    found: Json = msgspec.to_builtins(value)
    plain: Json = msgspec.to_builtins(default)
    return {key: each for key, each in found.items() if each != plain[key]}


# --------------------------------------------------------------------------------------------------- read


def read_templates(value: Any, path: str = "templates") -> dict[str, PodTemplate]:
    """Return the templates of a scenario by name.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    found: dict[str, PodTemplate] = _convert(value, dict[str, PodTemplate], path)
    return found


def kept_event(manifest: Mapping[str, Any], templates: Mapping[str, PodTemplate], path: str) -> Event:
    """Return the event that an object in berth's own form stands for.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    for field in ("spec", "status"):
        if field in manifest:
            raise FieldError(f"{path}.{field}", f"must be absent where {KEPT} is given")
    kind, at = manifest["kind"], f"{path}.{KEPT}"
    meta = _convert(manifest.get("metadata"), _Meta, f"{path}.metadata")
    if kind == "Node":
        named = {"name": meta.name, "uid": meta.name, "resource_version": None}
        return NodeUpserted(_convert({**named, **manifest[KEPT]}, NodeSpec, at))
    if kind == "Pod":
        return _pod_event(meta, _convert(manifest[KEPT], KeptPod, at), templates, at)
    if kind not in CONTENTS:
        raise FieldError(at, f"is for nodes, pods and configuration; a {shown(kind)} has none")
    content = _convert(manifest[KEPT], CONTENTS[kind], at)
    return ConfigUpserted(kind, meta.namespace, meta.name, content)


class _Meta(msgspec.Struct, frozen=True):
    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = {}


def _pod_event(meta: _Meta, kept: KeptPod, templates: Mapping[str, PodTemplate], path: str) -> PodUpserted:
    template = templates.get(kept.template)
    if template is None:
        raise FieldError(f"{path}.template", f"{shown(kept.template)} is none of the templates")
    key, known = f"{meta.namespace or 'default'}/{meta.name}", signature(template)
    template = msgspec.structs.replace(template, excluded=kept.excluded)  # which the signature leaves out
    pod = PodSpec(meta.uid or key, key, None, template, known, labels=meta.labels, node_name=kept.node)
    return PodUpserted(pod.living(kept.life))


def _convert(value: Any, shape: Any, path: str) -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise field_error(error, path) from None
