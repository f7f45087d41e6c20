"""Which pods a node ends where cpu or memory is short, and why these and not their neighbours."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

from domain.model.colocation import Amounts, EvictionRule, Portion, Quality

ONE_CORE_MILLI = 1_000
"""With less than one core no low pod makes headway (the study of Baidu's co-location)."""

_NODE_BUFFER_PERCENT = 2.0
_ORDER = (Quality.LOW, Quality.MID)


class LowCpu(NamedTuple):
    """The cpu of low pods over a window or now: the limit of their box, their use, their estimates."""

    limit_milli: int
    used_milli: int
    asked_milli: int


class Cause(enum.StrEnum):
    """Why pods are ended."""

    NO_BOX = "no-box"
    STARVED = "starved"
    NODE_CPU = "node-cpu"
    MEMORY = "memory"


class Candidate(NamedTuple):
    """A pod on the node, its name as ``namespace/name``."""

    name: str
    quality: Quality
    priority: int
    used: Amounts
    requests: Amounts
    estimate: Amounts


class Victim(NamedTuple):
    """A pod that is ended, and why it and not its neighbour."""

    name: str
    reason: str


def below_one_core_since(low_box_milli: int, since_ms: int | None, now_ms: int) -> int | None:
    """Return since when the low box has less than one core, None where it has one.

    ``since_ms`` is what this returned a moment ago.
    """
    if low_box_milli >= ONE_CORE_MILLI:
        return None
    return now_ms if since_ms is None else since_ms


def all_low_leave(rule: EvictionRule, since_ms: int | None, now_ms: int) -> bool:
    """Return whether the low box has had less than one core for so long that all low pods leave.

    Source: the study of Baidu's co-location.
    """
    return since_ms is not None and now_ms - since_ms >= rule.after_seconds * 1000


def is_pausing(rule: EvictionRule, last_ms: int | None, now_ms: int) -> bool:
    """Return whether starved pods were ended less than ``pause_seconds`` ago."""
    return last_ms is not None and now_ms - last_ms < rule.pause_seconds * 1000


def starved_release_milli(rule: EvictionRule, average: LowCpu | None, now: LowCpu | None) -> int:
    """Return how much of what low pods ask for must go, in thousandths of a core.

    They are starved where limit / asked is below ``lower_percent`` and they use ``busy_percent`` of their
    limit, which must hold over a window and now. Then ``asked x upper - limit`` goes, the smaller of both. A
    limit below one core counts as used; an unknown limit (0) or moment (None) releases nothing.

    Notes
    -----
    Source: Koordinator's koordlet (``cpuevict``, by satisfaction).
    """
    return min(_starved_milli(rule, average), _starved_milli(rule, now))


def _starved_milli(rule: EvictionRule, cpu: LowCpu | None) -> int:
    if cpu is None or cpu.limit_milli <= 0 or cpu.asked_milli <= 0:
        return 0
    is_busy = cpu.limit_milli < ONE_CORE_MILLI or (
        cpu.used_milli * 100 >= cpu.limit_milli * rule.busy_percent
    )
    if not is_busy or cpu.limit_milli * 100 >= cpu.asked_milli * rule.lower_percent:
        return 0
    return max(0, Portion(percent=rule.upper_percent).of(cpu.asked_milli) - cpu.limit_milli)


def node_release_milli(rule: EvictionRule, capacity_milli: int, used_milli: int) -> int:
    """Return how much cpu must be freed on a node that is used to ``node_percent``, in thousandths of a core.

    It is brought down to ``node_lower_percent``, by default two points below.

    Notes
    -----
    Source: Koordinator's koordlet (``cpuevict``, by use).
    """
    percent = rule.node_percent
    if percent is None or capacity_milli <= 0 or used_milli * 100 < capacity_milli * percent:
        return 0
    lower = percent - _NODE_BUFFER_PERCENT if rule.node_lower_percent is None else rule.node_lower_percent
    return max(0, used_milli - Portion(percent=lower).of(capacity_milli))


def memory_is_short(rule: EvictionRule, capacity_bytes: int, used_bytes: int, was_short: bool) -> bool:
    """Return whether memory is short: from ``memory_percent`` on, and until ``memory_lower_percent``."""
    percent = rule.memory_lower_percent if was_short else rule.memory_percent
    return capacity_bytes > 0 and used_bytes * 100 >= capacity_bytes * percent


def memory_release_bytes(rule: EvictionRule, capacity_bytes: int, used_bytes: int) -> int:
    """Return how much memory must be freed, so that less than ``memory_lower_percent`` is used."""
    if capacity_bytes <= 0:
        return 0
    return max(0, used_bytes - math.ceil(capacity_bytes * rule.memory_lower_percent / 100.0) + 1)


def choose_victims(cause: Cause, pods: Sequence[Candidate], release: int = 0) -> tuple[Victim, ...]:
    """Return the pods that are ended, in this order.

    Low pods go before mid pods; of equals, the one of lower priority, then the one that uses more relative
    to its request (low: its estimate) of what is short, then the first by name. For ``no-box`` and
    ``starved`` only low pods go; otherwise also mid pods that use more than they request. High pods never go.

    Parameters
    ----------
    cause : Cause
        Where it is ``no-box``, all low pods go.
    pods : sequence of Candidate
        The pods on the node, without those that leave already.
    release : int
        How much must go, in thousandths of a core, or bytes for ``memory``. For ``starved``, estimates
        count; otherwise use does. Where all that may go is less, all of it goes.
    """
    order = sorted((pod for pod in pods if _may_go(cause, pod)), key=lambda pod: _place(cause, pod))
    if cause is Cause.NO_BOX:
        return tuple(Victim(pod.name, _lead(cause, release)) for pod in order)
    chosen, freed = 0, 0
    while chosen < len(order) and freed < release:
        freed += _freed(cause, order[chosen])
        chosen += 1
    spared = order[chosen] if chosen < len(order) else None
    return tuple(
        Victim(pod.name, f"{_lead(cause, release)}; {_why_not(cause, pod, spared)}") for pod in order[:chosen]
    )


def _may_go(cause: Cause, pod: Candidate) -> bool:
    if pod.quality is Quality.LOW:
        return cause is Cause.NO_BOX or _freed(cause, pod) > 0
    by_use = cause in (Cause.NODE_CPU, Cause.MEMORY)
    return by_use and pod.quality is Quality.MID and _short(cause, pod.used) > _short(cause, pod.requests)


def _place(cause: Cause, pod: Candidate) -> tuple[int, int, float, str]:
    return _ORDER.index(pod.quality), pod.priority, -_share(cause, pod), pod.name


def _share(cause: Cause, pod: Candidate) -> float:
    """Return a pod's use relative to what it was expected to use."""
    used = _short(cause, pod.used)
    base = _short(cause, pod.estimate if pod.quality is Quality.LOW else pod.requests)
    if base > 0:
        return used / base
    return math.inf if used > 0 else 0.0


def _freed(cause: Cause, pod: Candidate) -> int:
    return _short(cause, pod.estimate if cause is Cause.STARVED else pod.used)


def _short(cause: Cause, amounts: Amounts) -> int:
    """Return the amount of the resource that is short."""
    return amounts.memory_bytes if cause is Cause.MEMORY else amounts.cpu_milli


def _lead(cause: Cause, release: int) -> str:
    match cause:
        case Cause.NO_BOX:
            return "less than one core is left for low pods, so all of them leave"
        case Cause.STARVED:
            return f"low pods are starved: {release / 1000:.2f} of the cores that they ask for must go"
        case Cause.NODE_CPU:
            return f"the node's cpu is short: {release / 1000:.2f} cores must be freed"
        case Cause.MEMORY:
            return f"the node's memory is short: {release / (1 << 20):.1f} MiB must be freed"


def _why_not(cause: Cause, pod: Candidate, spared: Candidate | None) -> str:
    """Say why a pod goes and not the first one that stays."""
    if spared is None:
        return "no other pod may go in its place"
    if pod.quality is not spared.quality:
        why = f"{pod.quality} pods go before {spared.quality} pods"
    elif pod.priority != spared.priority:
        why = f"its priority {pod.priority} is below {spared.priority}"
    elif _share(cause, pod) != _share(cause, spared):
        base = "estimate" if pod.quality is Quality.LOW else "request"
        why = f"it uses {_share(cause, pod):.2f} of its {base}, the other {_share(cause, spared):.2f}"
    else:
        why = "the two are equal and it is the first by name"
    return f"it goes and {spared.name} stays, as {why}"
