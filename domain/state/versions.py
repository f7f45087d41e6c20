"""Resource versions and uids: which of two counts, and whether an event says anything new."""

from __future__ import annotations

import msgspec

from domain.model.events import NodeDeleted, PodDeleted
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec

OTHER_UID = "other-uid"
"""Why a deletion does not concern an object: it names another one."""


def is_stale(new: int | None, known: int | None) -> bool:
    """Say whether a version was seen before or is older than what is known."""
    return new is not None and known is not None and new <= known


def is_older(new: int | None, known: int | None) -> bool:
    """Say whether a version is older than what is known."""
    return new is not None and known is not None and new < known


def skip_reason(new: int | None, known: int | None) -> str:
    """Say why an event with a version that is not newer changes nothing."""
    return "older" if is_older(new, known) else "known"


def newer_of(first: int | None, second: int | None) -> int | None:
    """Return the newer of two versions, either of which may be missing."""
    if first is None or second is None:
        return first if second is None else second
    return max(first, second)


def why_not_deleted(event: NodeDeleted | PodDeleted, known: NodeSpec | PodSpec) -> str:
    """Return why a deletion does not concern the object that is there, "" where it does.

    A uid never comes back, so the deletion of a uid holds whatever versions were seen of it.
    """
    if event.uid:
        return "" if event.uid == known.uid else OTHER_UID
    return "older" if is_older(event.resource_version, known.resource_version) else ""


def taken(pod: PodSpec, holder: str) -> str:
    """Say which pod has a pod's uid, without the name of a pod of another namespace."""
    namespace = holder.partition("/")[0]
    other = f"pod {holder}" if namespace == pod.namespace else f"a pod of namespace {namespace}"
    return f"{pod.uid!r} is the uid of {other}; a uid names one pod"


def same_node(known: NodeSpec | None, new: NodeSpec) -> bool:
    """Say whether a node event says nothing new, as a heartbeat does."""
    return known is not None and msgspec.structs.replace(known, resource_version=new.resource_version) == new
