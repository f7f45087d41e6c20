"""How low and mid pods give cpu back: the boxes that they may fill, and the settings that hold them there.

Boxes are nested as kubelet nests control groups: all pods hold high pods, the box of mid pods and the box of
low pods. Low pods are squeezed to their floor before mid pods are squeezed at all; mid pods never below their
requests; high pods never. The means, in this order: low pods yield (``cpu.idle``, or the least weight), then
quotas, then eviction (``eviction.py``), which waits until quotas have not helped for a while.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from domain.colocation.view import Requests
from domain.model.colocation import Amounts, Portion, Quality, SuppressionRule, UseByQuality, ViewRule

UNLIMITED_US = -1
"""The quota of a box without one, as cgroups v1 writes it."""


class Boxes(NamedTuple):
    """What mid and low pods may use in sum, in thousandths of a core."""

    mid_milli: int
    low_milli: int


class BoxSettings(NamedTuple):
    """What the boxes are set to: quotas in microseconds of a period, and whether low pods yield."""

    low_yields: bool = False
    low_quota_us: int = UNLIMITED_US
    mid_quota_us: int = UNLIMITED_US


class Setting(enum.StrEnum):
    """What of a box is set."""

    IDLE = "cpu.idle"
    WEIGHT = "cpu.weight"
    QUOTA = "cpu.quota"


class Step(NamedTuple):
    """One change of a box: its quality, what is set, to which value (quotas in microseconds), and why."""

    box: Quality
    setting: Setting
    value: int
    reason: str


class SuppressionPlan(NamedTuple):
    """The next settings, and the steps that lead to them in the order in which they are taken."""

    settings: BoxSettings
    steps: tuple[Step, ...]


def boxes_of(
    view: ViewRule, rule: SuppressionRule, capacity: Amounts, use: UseByQuality, requests: Requests
) -> Boxes:
    """Return what mid and low pods may use now.

    With capacity C, margin K and S = max(use of the system, reserved)::

        mid box = max(C - S - use(high) - K, requests of mid)
        low box = max(0, C x floor_percent, C - S - use(high) - min(use(mid), mid box) - K)

    Always by use, whatever the form in which a node lends: a form says what further pods are promised, and
    with it mid pods could be squeezed while low pods have room.

    Notes
    -----
    Source: the study of Baidu's co-location (order, floors); margin, reserve and the floor of low as a share
    of the capacity: Koordinator's koordlet (``cpusuppress``).
    """
    cores = capacity.cpu_milli
    system = max(use.system.cpu_milli, view.reserved.cpu_milli)
    free = cores - system - use.high.cpu_milli - view.margin_cpu.of(cores)
    mid = max(free, requests.mid.cpu_milli, 0)
    low = max(free - min(use.mid.cpu_milli, mid), Portion(percent=rule.floor_percent).of(cores), 0)
    return Boxes(mid, low)


def next_quota_us(
    rule: SuppressionRule, node_milli: int, target_milli: int, quota_us: int, floor_us: int | None = None
) -> int:
    """Return the next quota of a box on its way to a target, in microseconds of ``rule.period_us``.

    A quota shrinks at once and grows by at most ``grow_percent`` of the node. A change of less than
    ``ignore_percent`` of the node is ignored, but never a fall to the floor. It is never below the floor.

    Parameters
    ----------
    rule : SuppressionRule
        The period, the steps and the floor.
    node_milli, target_milli : int
        The cores of the node and those of the box, in thousandths.
    quota_us : int
        The quota now; below 0 there is none, and the target is taken at once.
    floor_us : int or None
        The floor; None: ``rule.floor_us``.

    Notes
    -----
    Source: Koordinator's koordlet (``cpusuppress``, by quota).
    """
    floor_us = rule.floor_us if floor_us is None else floor_us
    target_us = max(_quota_us(rule, target_milli), floor_us)
    if quota_us < 0:
        return target_us
    if target_us != floor_us and _is_small(rule, node_milli, target_us - quota_us):
        return max(quota_us, floor_us)
    grown_us = quota_us + Portion(percent=rule.grow_percent).of(_quota_us(rule, node_milli))
    return min(target_us, max(grown_us, floor_us))


def plan_suppression(
    rule: SuppressionRule,
    node_milli: int,
    boxes: Boxes,
    before: BoxSettings,
    requests: Requests,
    has_idle: bool,
) -> SuppressionPlan:
    """Return how the boxes are set next.

    Low pods yield first, and go on to yield. The floor of the mid box is what mid pods request. Where mid
    pods are squeezed, ``boxes_of`` leaves low pods their floor alone; and low pods get nothing more until
    the mid box has grown to its size.

    Parameters
    ----------
    rule : SuppressionRule
        The steps and the floors.
    node_milli : int
        The cores of the node, in thousandths.
    boxes : Boxes
        What the boxes should be: see ``boxes_of``.
    before : BoxSettings
        What they are set to.
    requests : Requests
        What the pods on the node request.
    has_idle : bool
        Whether the kernel knows ``cpu.idle``; the least weight is set where it does not.
    """
    mid_floor_us = _quota_us(rule, requests.mid.cpu_milli)
    low_floor_us = max(rule.floor_us, _quota_us(rule, Portion(percent=rule.floor_percent).of(node_milli)))
    mid_us = next_quota_us(rule, node_milli, boxes.mid_milli, before.mid_quota_us, mid_floor_us)
    low_us = next_quota_us(rule, node_milli, boxes.low_milli, before.low_quota_us, low_floor_us)
    lacking_us = _quota_us(rule, boxes.mid_milli) - mid_us
    if lacking_us > 0 and not _is_small(rule, node_milli, lacking_us) and 0 <= before.low_quota_us < low_us:
        low_us = max(before.low_quota_us, low_floor_us)
    after = BoxSettings(True, low_us, mid_us)
    return SuppressionPlan(after, _steps(rule, boxes, before, after, has_idle))


def _steps(
    rule: SuppressionRule, boxes: Boxes, before: BoxSettings, after: BoxSettings, has_idle: bool
) -> tuple[Step, ...]:
    """Return what changes: low pods give back before mid pods, and get back after them."""
    steps = []
    if not before.low_yields:
        setting, value = (Setting.IDLE, 1) if has_idle else (Setting.WEIGHT, 1)
        steps.append(Step(Quality.LOW, setting, value, "low pods yield to all others"))
    quotas = [
        _quota_step(rule, Quality.LOW, boxes.low_milli, before.low_quota_us, after.low_quota_us),
        _quota_step(rule, Quality.MID, boxes.mid_milli, before.mid_quota_us, after.mid_quota_us),
    ]
    if 0 <= before.low_quota_us < after.low_quota_us:
        quotas.reverse()
    return (*steps, *(step for step in quotas if step is not None))


def _quota_step(
    rule: SuppressionRule, box: Quality, box_milli: int, before_us: int, after_us: int
) -> Step | None:
    if before_us == after_us:
        return None
    now = f"{box_milli / 1000:.2f} cores are left for {box} pods"
    earlier = "had no quota" if before_us < 0 else f"had {before_us / rule.period_us:.2f}"
    reason = f"{now}; they {earlier} and get {after_us / rule.period_us:.2f}"
    return Step(box, Setting.QUOTA, after_us, reason)


def _quota_us(rule: SuppressionRule, milli: int) -> int:
    return milli * rule.period_us // 1000


def _is_small(rule: SuppressionRule, node_milli: int, change_us: int) -> bool:
    return abs(change_us) < _quota_us(rule, node_milli) * rule.ignore_percent / 100.0
