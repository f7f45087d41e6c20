"""What is applied and deleted: manifests as events with ids, in requests that the API takes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from berth.client.errors import InvalidRequest
from berth.client.requests import PAGE, Moment, moment_text, pod_names

if TYPE_CHECKING:
    from berth.client import models

Manifest = Mapping[str, Any]
Objects = Manifest | Iterable[Manifest]
"""A manifest, a watch event (`{"type": …, "object": …}`), a list of kubectl, or several of them."""

REQUEST_BYTES = 8 << 20
"""About how much goes in a request, half of what the API takes."""

_KINDS = {"pod": "Pod", "node": "Node", "profile": "SchedulingProfile", "policy": "CoLocationPolicy"}
_GROUPS = {"Pod": "v1", "Node": "v1"}


class Applied(Struct):
    """What became of what was sent.

    ``accepted`` went into the log by this call; ``duplicates`` had been accepted before, by their id.
    ``positions`` say where the log has them. With ``wait``, ``folded`` says whether all took effect in time,
    ``deadletters`` what a worker refused, ``older`` the pods of which a higher resourceVersion stands; with
    ``wait="decided"`` ``decisions`` has the last decision of each pod. With ``partial`` ``invalid`` were
    refused, and ``errors`` say why.
    """

    accepted: int = 0
    duplicates: int = 0
    invalid: int = 0
    folded: bool | None = None
    pods: list[str] = []
    positions: list[models.Position] = []
    errors: list[models.ErrorDetail] = []
    decisions: list[models.Decision] = []
    deadletters: list[models.DeadLetter] = []
    older: list[str] = []

    def add(self, answer: models.Ingested, before: int) -> None:
        """Take the answer to a request; so many objects went before its first one."""
        self.accepted += answer.accepted
        self.duplicates += answer.duplicates
        self.invalid += answer.invalid
        if answer.folded is not None:
            self.folded = answer.folded if self.folded is None else self.folded and answer.folded
        self.positions += answer.positions
        self.errors += moved(answer.errors, before)
        self.decisions += answer.decisions or ()
        self.deadletters += answer.deadletters or ()
        self.older += answer.older or ()


class Written(NamedTuple):
    """How far the log has what was written, by topic and partition."""

    ends: dict[tuple[str, int], int]

    def add(self, positions: Iterable[models.Position]) -> None:
        """Note that records were written."""
        for each in positions:
            at = each.topic, each.partition
            self.ends[at] = max(self.ends.get(at, -1), each.offset)

    def copy(self) -> Written:
        """Return the same, to be forgotten apart."""
        return Written(dict(self.ends))

    def taken(self, most: int = 50) -> dict[tuple[str, int], int]:
        """Return the positions that a read waits for, as many as the API takes at once."""
        return dict(list(self.ends.items())[:most])

    def seen(self, positions: Mapping[tuple[str, int], int]) -> None:
        """Forget what a read has waited for; what was written since stays."""
        for at, offset in positions.items():
            if self.ends.get(at) == offset:
                del self.ends[at]


def wait_text(positions: Mapping[tuple[str, int], int]) -> str | None:
    """Return positions as the parameter `wait` takes them; None: there are none."""
    return ",".join(f"{topic}/{part}/{at}" for (topic, part), at in positions.items()) or None


def moved(details: Iterable[models.ErrorDetail], count: int) -> list[models.ErrorDetail]:
    """Return what is wrong with objects, each counted from the first one that was given."""
    return [
        each if each.index is None else msgspec.structs.replace(each, index=each.index + count)
        for each in details
    ]


def named(kind: str, name: str) -> dict[str, Any]:
    """Return the least manifest that names an object: `pod` or a kind, and `namespace/name` or a name."""
    full = _KINDS.get(kind.lower(), kind)
    if full == "Pod" or "/" in name:
        namespace, bare = pod_names(name)
        metadata = {"namespace": namespace, "name": bare}
    else:
        metadata = {"name": name}
    return {"apiVersion": _GROUPS.get(full, "berth/v1"), "kind": full, "metadata": metadata}


def events_of(
    objects: Objects, event_type: str, key: str | None = None, at: Moment | None = None
) -> Iterator[dict[str, Any]]:
    """Yield an event for each object, with an id by which the API knows it again."""
    prefix = uuid.uuid4().hex if key is None else key
    for number, each in enumerate(_flat(objects)):
        if not isinstance(each, Mapping):
            raise InvalidRequest(
                f"an object has to be a mapping, as a manifest read from JSON or YAML; this is {each!r:.60}",
                path=f"[{number}]",
            )
        event = dict(each) if "object" in each else {"type": event_type, "object": each}
        event.setdefault("id", f"{prefix}-{number}")
        if at is not None:
            event.setdefault("at", moment_text(at))
        yield event


def manifests_text(objects: str | Objects) -> str:
    """Return manifests as one text: YAML or JSON as it is, else a list of kubectl in JSON."""
    if isinstance(objects, str):
        return objects
    items = [each.get("object", each) for each in _flat(objects)]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}).decode()


def _flat(objects: Objects) -> Iterator[Manifest]:
    """Yield manifests and events; lists of kubectl one by one."""
    for each in (objects,) if isinstance(objects, Mapping) else objects:
        if isinstance(each, Mapping) and isinstance(each.get("items"), Sequence) and "object" not in each:
            yield from each["items"]
        else:
            yield each


class Batch(NamedTuple):
    """The events of a request as they are sent, and the pods among them as `namespace/name`."""

    body: bytes
    length: int
    pods: list[str]


def batches(events: Iterable[dict[str, Any]]) -> Iterator[Batch]:
    """Yield events in requests of a size that the API takes, in order."""
    parts, pods, size = list[bytes](), list[str](), 0
    for event in events:
        part = msgspec.json.encode(event)
        if parts and (len(parts) >= PAGE or size + len(part) > REQUEST_BYTES):
            yield Batch(b"[" + b",".join(parts) + b"]", len(parts), pods)
            parts, pods, size = [], [], 0
        parts.append(part)
        size += len(part) + 1
        pods += pod_of(event)
    if parts:
        yield Batch(b"[" + b",".join(parts) + b"]", len(parts), pods)


def pod_of(event: Mapping[str, Any]) -> list[str]:
    """Return the pod that an event is of, as `namespace/name`; empty: it is of none."""
    thing = event["object"]
    meta = thing.get("metadata") if isinstance(thing, Mapping) and thing.get("kind") == "Pod" else None
    if not isinstance(meta, Mapping):
        return []
    return [f"{meta.get('namespace') or 'default'}/{meta.get('name')}"]
