"""Co-location: the qualities of pods, what is measured by quality, and the policy that holds on a node.

Pods of weaker quality take what is idle. *high* pods (Guaranteed) have what they request, always; *mid* pods
(Burstable) have their request always and what is between it and their limit usually; *low* pods
(BestEffort) have the rest until it is needed. cpu is in thousandths of a core (``_milli``), memory in bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec


class Quality(enum.StrEnum):
    """What a pod was promised, the strongest first; ``system`` is all use of a node that is no pod's."""

    HIGH = "high"
    MID = "mid"
    LOW = "low"
    SYSTEM = "system"


QUALITY_OF: Mapping[str, Quality] = MappingProxyType(
    {"Guaranteed": Quality.HIGH, "Burstable": Quality.MID, "BestEffort": Quality.LOW}
)
"""The quality of each QoS class of Kubernetes (``PodTemplate.qos_class``)."""

QOS_CLASS_OF: Mapping[Quality, str] = MappingProxyType({each: qos for qos, each in QUALITY_OF.items()})
"""The QoS class of each quality of pods."""


class Amounts(NamedTuple):
    """cpu in thousandths of a core, and memory in bytes."""

    cpu_milli: int = 0
    memory_bytes: int = 0


class Portion(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a whole: so many percent of it, or an amount; the other is 0."""

    percent: float = 0.0
    amount: int = 0

    def of(self, whole: int) -> int:
        """Return the part of a whole, rounded down, in the unit of the whole."""
        return int(whole * self.percent / 100.0) + self.amount


class EstimateRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a container is expected to use: its limit, else its request times a factor, else a default.

    The factors are in percent. Source: scheduler-plugins, TargetLoadPacking, for cpu.
    """

    cpu_percent: int = 150
    memory_percent: int = 125
    cpu_milli: int = 1_000
    memory_bytes: int = 1 << 30


class LendingForm(enum.StrEnum):
    """How what is lent is computed.

    ``usage``: from what pods of stronger quality use. ``request``: from what they request.
    ``reclaimable``, for mid alone: from what high pods request and do not use, and what none requests.
    """

    USAGE = "usage"
    REQUEST = "request"
    RECLAIMABLE = "reclaimable"


class ViewRule(msgspec.Struct, frozen=True, kw_only=True):
    """What of a node is lent, and for how long a measurement is believed.

    ``margin`` is kept free per resource, ``reserved`` is the least that the system is taken to use. ``cap``
    bounds what is lent, in percent of the capacity; None: nothing but the capacity does. A measurement older
    than ``age_seconds_max`` of log time lends nothing. ``unallocated_percent`` and ``threshold_percent`` are
    of the form ``reclaimable``: so much is lent of what neither the system nor high pods claim, and so much
    of the capacity at most.
    """

    margin_cpu: Portion = Portion(percent=10.0)
    margin_memory: Portion = Portion(percent=10.0)
    reserved: Amounts = Amounts()
    cap_percent: float | None = None
    mid_form: LendingForm = LendingForm.USAGE
    low_form: LendingForm = LendingForm.USAGE
    unallocated_percent: float = 0.0
    threshold_percent: float = 100.0
    settle_seconds: int = 60
    age_seconds_max: int = 90

    @property
    def reads_requests(self) -> bool:
        """Whether what is lent follows from requests, too, and not from measured use alone."""
        return {self.mid_form, self.low_form} != {LendingForm.USAGE}

    @property
    def is_lending(self) -> bool:
        """Whether co-location holds on the node: a ``cap_percent`` of 0 says that nothing is ever lent."""
        return self.cap_percent != 0


class SuppressionRule(msgspec.Struct, frozen=True, kw_only=True):
    """How the boxes of mid and low move: they shrink at once, and grow by steps.

    ``grow_percent`` and ``ignore_percent`` are of the node's cores. ``floor_us`` is the least quota of the
    low box in a period of ``period_us``, ``floor_percent`` the same as a share of the node's cores.
    """

    grow_percent: float = 10.0
    ignore_percent: float = 1.0
    floor_us: int = 2_000
    floor_percent: float = 0.0
    period_us: int = 100_000


class EvictionRule(msgspec.Struct, frozen=True, kw_only=True):
    """When pods are ended on their node because cpu or memory is short, all in percent.

    All low pods go where their box stays below one core for ``after_seconds``. They are starved where the
    limit of their box is below ``lower_percent`` of what they ask for and they use ``busy_percent`` of it:
    then so much goes that it would be ``upper_percent``. That happens at most each ``pause_seconds``.
    A node whose cpu is used to ``node_percent`` is brought down to ``node_lower_percent`` (None: two points
    below); None: no node is. Memory at ``memory_percent`` is brought below ``memory_lower_percent``.
    """

    after_seconds: int = 10
    lower_percent: float = 30.0
    upper_percent: float = 40.0
    busy_percent: float = 90.0
    pause_seconds: int = 20
    node_percent: float | None = None
    node_lower_percent: float | None = None
    memory_percent: float = 70.0
    memory_lower_percent: float = 68.0


class HotSpotRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a node is hot, and how it is relieved.

    A sample is bad where cpu or memory is used to ``use_percent``, where pressure (``some avg60`` of cpu) is
    ``pressure_percent``, or where a pod's latency is ``latency_factor`` of its bound. ``bad_count`` bad
    samples in a row make the node hot, ``good_count`` good ones make it calm. Moves bring its use below
    ``target_percent``; ``moves_max`` are under way in the cluster, and a node rests ``rest_seconds`` after
    one.
    """

    use_percent: float = 80.0
    pressure_percent: float = 40.0
    latency_factor: float = 1.2
    bad_count: int = 5
    good_count: int = 3
    target_percent: float = 70.0
    moves_max: int = 3
    rest_seconds: int = 300


class ReplicasRule(msgspec.Struct, frozen=True, kw_only=True):
    """How many replicas of a hosted workload there should be, by the load of the nodes that it may go to."""

    step_seconds: int = 30
    wait_seconds: int = 30
    high_percent: float = 80.0
    low_percent: float = 60.0
    shrink_percent: float = 10.0


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """The price of use: per core and hour, and GiB and hour, times a factor by what was promised.

    ``plain`` is of nodes without co-location, ``request`` of use within the request, ``burst`` of use beyond
    it, ``low`` of low pods. Source: the weights are those of the study of Baidu's co-location.
    """

    core_hour: float = 1.0
    gib_hour: float = 0.0
    plain: float = 1.0
    request: float = 0.85
    burst: float = 0.5
    low: float = 0.1


class ReportingRule(msgspec.Struct, frozen=True, kw_only=True):
    """How often the agent of a node reports: the node, the node where nothing changed, and its pods."""

    node_seconds: int = 10
    quiet_seconds: int = 60
    pods_seconds: int = 60
    change_percent: float = 1.0


class CoLocationPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """A berth/v1 CoLocationPolicy: what holds on the nodes whose labels ``node_selector`` matches.

    Where several match, the one with the most labels holds, and of equals the first by name. ``estimate``,
    ``replicas`` and ``prices`` are the same for all nodes: only the policy without a selector may give them.
    """

    node_selector: dict[str, str] = {}
    estimate: EstimateRule = EstimateRule()
    view: ViewRule = ViewRule()
    suppression: SuppressionRule = SuppressionRule()
    eviction: EvictionRule = EvictionRule()
    hot_spot: HotSpotRule = HotSpotRule()
    replicas: ReplicasRule = ReplicasRule()
    prices: Prices = Prices()
    reporting: ReportingRule = ReportingRule()


DEFAULT_POLICY = CoLocationPolicy()
"""What holds where no policy was sent."""

OF_ALL_NODES = ("estimate", "replicas", "prices")
"""Sections of a policy that are the same for all nodes: only a policy without a selector may give them."""


class UseByQuality(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured on a node by quality, at one moment: see ``Quality``."""

    high: Amounts = Amounts()
    mid: Amounts = Amounts()
    low: Amounts = Amounts()
    system: Amounts = Amounts()

    @property
    def total(self) -> Amounts:
        """What was used of the node in sum."""
        parts = zip(self.high, self.mid, self.low, self.system, strict=True)
        return Amounts(*map(sum, parts))


class Heat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a node is hot, and how many bad and good samples came in a row: see ``HotSpotRule``.

    ``signs`` are those of the latest bad sample of a node that is hot, in plain words.
    """

    is_hot: bool = False
    bad_count: int = 0
    good_count: int = 0
    signs: tuple[str, ...] = ()


class PodCounters(NamedTuple):
    """What a pod has used since it started: core-seconds and byte-seconds. They only grow.

    A report that is lost or comes twice does no harm: amounts are differences of the latest ones.
    """

    cpu_seconds: float
    memory_byte_seconds: float
