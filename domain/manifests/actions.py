"""Read and write a berth/v1 NodeAction: what the agent of a node did, as it is written."""

from __future__ import annotations

from typing import Any

import msgspec

from domain.manifests.metadata import Identity, read_name, read_namespace, read_uid
from domain.model.actions import AMOUNT_OF, ActionKind, NodeAction
from domain.model.colocation import Quality
from domain.model.errors import FieldError
from domain.model.limits import action_text_bytes_max, action_times_max
from domain.model.quantities import format_resource
from domain.model.resources import read_amounts, to_canonical
from domain.model.validation import check_choice, check_printable, check_range, shown

_POLICY_LENGTH_MAX = 300  # a name, '@' and a version
_QUALITIES = (Quality.HIGH.value, Quality.MID.value, Quality.LOW.value)


class WireActedPod(msgspec.Struct, omit_defaults=True):
    """The pod that was ended, as it is written."""

    namespace: str | None = None
    name: str | None = None
    uid: str | None = None


class WireNodeAction(msgspec.Struct, rename="camel", omit_defaults=True):
    """A NodeAction as it is written. ``amount`` is a quantity of cpu or memory, as the action has it."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None
    action: str | None = None
    quality: str | None = None
    amount: Any = None
    times: int = 1
    reason: str | None = None
    policy: str | None = None
    pod: WireActedPod | None = None


def action_from_wire(wire: WireNodeAction, at_ms: int, path: str) -> NodeAction:
    """Return what an agent says that it did at a moment.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    name = read_name((wire.metadata or Identity()).name, f"{path}.metadata", strict=True)
    kind = ActionKind(check_choice(wire.action or "", tuple(ActionKind), f"{path}.action"))
    quality = check_choice(wire.quality or "", _QUALITIES, f"{path}.quality")
    pod, uid = "", ""
    if kind is ActionKind.EVICT:
        acted, at = wire.pod or WireActedPod(), f"{path}.pod"
        pod = f"{read_namespace(acted.namespace, at)}/{read_name(acted.name, at, strict=True)}"
        uid = read_uid(acted.uid, pod, at)
    elif wire.pod is not None:
        raise FieldError(f"{path}.pod", f"is of an eviction alone, not of {kind}")
    return NodeAction(
        node=name,
        at_ms=at_ms,
        kind=kind,
        quality=quality,
        reason=_text(wire.reason, f"{path}.reason"),
        amount=_amount(kind, wire.amount, f"{path}.amount"),
        times=check_range(wire.times, 1, action_times_max, f"{path}.times"),
        policy=check_printable(wire.policy, f"{path}.policy", "", _POLICY_LENGTH_MAX) if wire.policy else "",
        pod=pod,
        uid=uid,
    )


def action_to_wire(action: NodeAction) -> dict[str, Any]:
    """Return a NodeAction as it is written."""
    namespace, _, name = action.pod.partition("/")
    written = {
        "apiVersion": "berth/v1",
        "kind": "NodeAction",
        "metadata": {"name": action.node},
        "action": action.kind.value,
        "quality": action.quality,
        "amount": amount_text(action),
        "times": action.times if action.times > 1 else None,
        "reason": action.reason,
        "policy": action.policy or None,
        "pod": {"namespace": namespace, "name": name, "uid": action.uid} if action.pod else None,
    }
    return {field: value for field, value in written.items() if value is not None}


def amount_text(action: NodeAction) -> str | None:
    """Return the amount of an action as a quantity, None where it has none."""
    return None if action.amount is None else format_resource(AMOUNT_OF[action.kind], action.amount)


def _amount(kind: ActionKind, value: Any, path: str) -> int | None:
    if value is None:
        return None
    resource = AMOUNT_OF.get(kind)
    if resource is None:
        raise FieldError(path, f"is of {', '.join(AMOUNT_OF)} alone, not of {kind}")
    try:
        return to_canonical(read_amounts({resource: value}, ""))[resource]
    except FieldError as error:
        raise FieldError(path, error.message) from None


def _text(text: str | None, path: str) -> str:
    if not text:
        raise FieldError(path, "is missing; every action says why")
    if len(text.encode()) > action_text_bytes_max:
        allowed = f"allowed are {action_text_bytes_max} bytes (action_text_bytes_max)"
        raise FieldError(path, f"{shown(text)} is too long; {allowed}")
    if not text.isprintable():
        raise FieldError(path, f"{shown(text)} is not allowed; allowed are printable characters")
    return text
