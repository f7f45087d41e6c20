"""Writes docs/schemas/*.json from the structs of records: `python -m docs.build.schemas [--check]`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType

from domain.manifests.actions import WireNodeAction
from domain.manifests.colocation_policy import SELECTOR, TREE, Tree
from domain.manifests.colocation_policy import Field as PolicyField
from domain.manifests.config_objects import READERS
from domain.manifests.node import WireNode
from domain.manifests.pod import WirePod
from domain.manifests.usage import WireNodeUsage
from domain.model.config import CO_LOCATION_POLICY
from domain.model.decisions import Outcome
from services.adapters.batches import DeadLetterRecord
from services.codec.encode import DecisionRecord, ScaleRecord
from services.codec.envelope import KINDS, AnyObject, Envelope, types_on, versions_of
from services.ports.log import DEAD_LETTER_TOPIC, DECISIONS_TOPIC, SCALES_TOPIC

FOLDER = Path(__file__).parent.parent / "schemas"
COMMAND = "python -m docs.build.schemas"
Json = dict[str, Any]


class Plugin(msgspec.Struct, forbid_unknown_fields=True):
    """A filter, with its arguments."""

    name: str
    args: dict[str, Any] | None = None


class WeightedPlugin(Plugin, forbid_unknown_fields=True):
    """A score, with its weight (1 where it is missing) and its arguments."""

    weight: float | None = None


class ProfileSpec(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """The plugins of a profile, in order; a bare name is a plugin without arguments."""

    filters: list[str | Plugin]
    scores: list[str | WeightedPlugin]
    scheduler_name: str | UnsetType = UNSET


class SchedulingProfile(AnyObject):
    """A profile; DELETED needs no spec."""

    spec: ProfileSpec | None = None


def _strict(name: str, tree: Tree, *more: tuple[str, Any, Any]) -> type[msgspec.Struct]:
    """Return a struct of the fields of a table, which takes no others."""
    fields = []
    for key, each in tree.items():
        known = each.form.type if isinstance(each, PolicyField) else _strict(key.capitalize(), each)
        fields.append((key, known | None, None))
    return msgspec.defstruct(name, [*more, *fields], forbid_unknown_fields=True)


class CoLocationPolicy(AnyObject):
    """A policy; DELETED needs no spec."""

    spec: _strict("CoLocationPolicySpec", TREE, (SELECTOR, dict[str, str] | None, None)) | None = None  # type: ignore[valid-type]


class _NodeEvent(Envelope):
    object: WireNode | None = None


class _PodEvent(Envelope):
    object: WirePod | None = None


class _UsageEvent(Envelope):
    object: WireNodeUsage | None = None


class _ActionEvent(Envelope):
    object: WireNodeAction | None = None


class _ProfileEvent(Envelope):
    object: SchedulingProfile | None = None


class _PolicyEvent(Envelope):
    object: CoLocationPolicy | None = None


def _config_event(wire: type[msgspec.Struct]) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"_{wire.__name__}Event", [("object", wire | None, None)], bases=(Envelope,))


_EVENTS: Mapping[str, tuple[str, type]] = {
    "node-event": ("Node", _NodeEvent),
    "pod-event": ("Pod", _PodEvent),
    "node-usage-event": ("NodeUsage", _UsageEvent),
    "node-action-event": ("NodeAction", _ActionEvent),
    "scheduling-profile-event": ("SchedulingProfile", _ProfileEvent),
    **{
        f"{re.sub('(?<=.)(?=[A-Z])', '-', kind).lower()}-event": (kind, _config_event(reader.wire))
        for kind, reader in READERS.items()
    },
    "co-location-policy-event": (CO_LOCATION_POLICY, _PolicyEvent),
}


def schemas() -> dict[str, Json]:
    """Return all schemas by the name of their file."""
    found = {name: _event(kind, shape) for name, (kind, shape) in _EVENTS.items()}
    decision = _schema(
        DecisionRecord, f"A record of {DECISIONS_TOPIC}; docs/events.md says what its fields mean."
    )
    decision["properties"]["outcome"] = {"enum": [str(each) for each in Outcome]}
    decision["properties"]["template"] = {
        "type": "object",
        "properties": {
            "signature": {"type": "string"},
            "requests": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["signature", "requests"],
    }
    # The relay adds it to what the worker has encoded.
    decision["properties"]["recorded_at"] = {"type": "string"}
    left_out = {name for name, hint in get_type_hints(DecisionRecord).items() if UnsetType in get_args(hint)}
    decision["required"] = [name for name in decision["properties"] if name not in left_out]
    found["decision"] = decision
    found["dead-letter"] = _schema(
        DeadLetterRecord, f"A record of {DEAD_LETTER_TOPIC}: why a record was refused."
    )
    found["scale"] = _schema(
        ScaleRecord,
        f"A record of {SCALES_TOPIC}: how many replicas of a hosted workload are wanted.",
    )
    return {f"{name}.json": schema for name, schema in found.items()}


def _event(kind: str, shape: type) -> Json:
    """Return the schema of a topic's events, of which the structs leave more open than the decoder does."""
    versions, topic = versions_of(kind), KINDS[kind][1]
    said = (
        f"An event about a {kind}: a record of {topic}. Fields that are not here are ignored, or named in a "
        "warning (docs/manifests.md); limits and forms of values are in docs/events.md."
    )
    schema = _schema(shape, said)
    properties = schema["properties"]
    properties["type"] = {"enum": list(types_on(topic))}
    properties["object"] = {"$ref": _ref(properties["object"])}
    schema["required"] = ["type", "object"]
    thing = schema["$defs"][properties["object"]["$ref"].rpartition("/")[2]]
    thing["properties"]["kind"] = {"const": kind}
    only = {"const": versions[0]} if len(versions) == 1 else {"enum": list(versions)}
    thing["properties"]["apiVersion"] = only
    thing["required"] = ["kind", "metadata"]
    return schema


def _schema(shape: type, description: str) -> Json:
    (top,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    name = top["$ref"].rpartition("/")[2]
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_plain(parts.pop(name))}
    whole["description"] = description
    whole.pop("title", None)
    if parts:
        whole["$defs"] = {key.removeprefix("Wire"): _plain(part) for key, part in sorted(parts.items())}
    return whole


def _plain(value: Any) -> Any:
    """Leave out what only Python cares for, defaults, titles and names of structs; say null in a word."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value.replace("#/$defs/Wire", "#/$defs/") if isinstance(value, str) else value
    kept = {
        key: each
        for key, each in value.items()
        if not (key == "default" and each is None) and not (key == "title" and isinstance(each, str))
    }
    match kept:
        case {"anyOf": [{"type": str(kind), **rest}, {"type": "null"}]}:
            kept = kept | {"type": [kind, "null"], **rest}
            del kept["anyOf"]
    return {key: _plain(each) for key, each in kept.items()}


def _ref(field: Json) -> str:
    return next(str(each["$ref"]) for each in field["anyOf"] if "$ref" in each)


def main(arguments: list[str]) -> int:
    """Write the files; with ``--check`` only say whether they are as the structs are."""
    texts = {name: json.dumps(schema, indent=1) + "\n" for name, schema in schemas().items()}
    if arguments == ["--check"]:
        there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
        wrong = sorted(name for name in there.keys() | texts.keys() if there.get(name) != texts.get(name))
        if wrong:
            sys.stderr.write(f"{', '.join(wrong)}: not what the structs say; run `{COMMAND}`\n")
        return bool(wrong)
    FOLDER.mkdir(exist_ok=True)
    for path in FOLDER.glob("*.json"):
        path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
