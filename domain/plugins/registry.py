"""Every plugin of berth, in the order in which documentation lists them; profiles name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.profiles import Profile
from domain.plugins import in_flight
from domain.plugins.asked import unread_by
from domain.plugins.base import (
    CURES_ALL,
    Cure,
    Demand,
    FirmFilter,
    LimitFilter,
    Plugin,
    RelativeScore,
    ResourceFilter,
    ResourceScore,
    Score,
    StaticFilter,
    StaticScore,
)
from domain.plugins.contract import declared, registered
from domain.plugins.counting import CountFilter, CountScore
from domain.plugins.filters.colocation_fit import ColocationFit
from domain.plugins.filters.inter_pod_affinity import InterPodAffinity
from domain.plugins.filters.master_share import MasterShare
from domain.plugins.filters.max_memory_sum import MaxMemorySum
from domain.plugins.filters.node_affinity import NodeAffinity
from domain.plugins.filters.node_declared_features import NodeDeclaredFeatures
from domain.plugins.filters.node_name import NodeName
from domain.plugins.filters.node_ports import NodePorts
from domain.plugins.filters.node_resources_fit import NodeResourcesFit
from domain.plugins.filters.node_unschedulable import NodeUnschedulable
from domain.plugins.filters.peak_usage import PeakUsage
from domain.plugins.filters.pod_topology_spread import PodTopologySpread
from domain.plugins.filters.resource_threshold import ResourceThreshold
from domain.plugins.filters.taint_toleration import TaintToleration
from domain.plugins.kernel_budget import KernelBudget
from domain.plugins.scores.allocated import Allocated
from domain.plugins.scores.bra import BRA
from domain.plugins.scores.colocation_score import ColocationScore
from domain.plugins.scores.cwt import CWT
from domain.plugins.scores.fgd import FGD
from domain.plugins.scores.first_fit import FirstFit
from domain.plugins.scores.global_variance import GlobalVariance
from domain.plugins.scores.gpu_best_fit import GpuBestFit
from domain.plugins.scores.gpu_dot_product import GpuDotProduct
from domain.plugins.scores.gpu_packing import GpuPacking
from domain.plugins.scores.gpu_stranding import GpuStranding
from domain.plugins.scores.image_locality import IMAGE_FIELDS, ImageLocality, known_images
from domain.plugins.scores.inter_pod_affinity import InterPodAffinity as InterPodAffinityScore
from domain.plugins.scores.load_variation_risk_balancing import (
    LoadVariationInFlight,
    LoadVariationRiskBalancing,
)
from domain.plugins.scores.low_risk_over_commitment import LowRiskOverCommitment
from domain.plugins.scores.lra import LRA
from domain.plugins.scores.node_affinity import NodeAffinity as NodeAffinityScore
from domain.plugins.scores.node_resources_allocatable import Allocatable
from domain.plugins.scores.node_resources_balanced_allocation import Balanced
from domain.plugins.scores.peaks import Peaks, PeaksInFlight
from domain.plugins.scores.pod_topology_spread import PodTopologySpread as PodTopologySpreadScore
from domain.plugins.scores.requested_to_capacity_ratio import RequestedToCapacityRatio
from domain.plugins.scores.search_score import SearchScore
from domain.plugins.scores.taint_toleration import TaintToleration as TaintTolerationScore
from domain.plugins.scores.target_load_packing import TargetLoadPacking
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

FILTERS = registered(
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    ColocationFit,
    PodTopologySpread,
    InterPodAffinity,
    NodeDeclaredFeatures,
    ResourceThreshold,
    MaxMemorySum,
    MasterShare,
    PeakUsage,
)
SCORES = registered(
    Allocated,
    FirstFit,
    Balanced,
    TaintTolerationScore,
    NodeAffinityScore,
    PodTopologySpreadScore,
    InterPodAffinityScore,
    ImageLocality,
    Allocatable,
    TargetLoadPacking,
    LoadVariationRiskBalancing,
    LowRiskOverCommitment,
    Peaks,
    GlobalVariance,
    ColocationScore,
    SearchScore,
    LRA,
    BRA,
    CWT,
    FGD,
    GpuStranding,
    GpuBestFit,
    GpuDotProduct,
    GpuPacking,
)
STRATEGIES: Mapping[str, type[Plugin]] = MappingProxyType(
    {"RequestedToCapacityRatio": declared(RequestedToCapacityRatio)}
)
"""Scoring strategies of NodeResourcesFit that are not in its own file, by type."""

IN_FLIGHT = registered(LoadVariationInFlight, PeaksInFlight)
"""What scores are that depend on one measurement alone, once they count the pods that came since."""


_Kind = TypeVar("_Kind", bound=Score, covariant=True)


class ScoreUse(NamedTuple, Generic[_Kind]):
    """A score of a profile. ``label`` is its name, numbered when the profile has it more than once."""

    label: str
    weight: float
    plugin: _Kind


class ProfilePlan:
    """A profile ready for use: its plugins, instantiated and sorted by kind, with positions and weights.

    Attributes
    ----------
    static_scores, normalised_scores : list of ScoreUse
        Static scores without and with a normaliser.
    kernel_scores : tuple of ScoreUse
        The scores that the kernel computes, in its order: all but the static ones without a normaliser.
    raws_count : int
        Number of columns per node that the kernel needs besides the table's: one for each normalised score,
        then the measured figures of the other scores.
    firm : FirmFilter or None
        The filter that asks for what no eviction frees.
    colocates : bool
        Whether pods of weaker quality take what is idle, and so low ones have their turns behind all others.
    measured_first : dict
        Plugin whose figures the kernel reads -> where its measured columns begin.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.filters: list[Plugin] = []
        self.scores: list[ScoreUse[Score]] = []
        self.static_filters: list[tuple[int, StaticFilter]] = []
        self.limits: list[tuple[int, LimitFilter]] = []
        self.fit: tuple[int, ResourceFilter] | None = None
        self.firm: FirmFilter | None = None
        self.static_scores: list[ScoreUse[StaticScore]] = []
        self.normalised_scores: list[ScoreUse[StaticScore]] = []
        self.resource_scores: list[ScoreUse[ResourceScore]] = []
        self.relative_scores: list[ScoreUse[RelativeScore]] = []
        self.count_filters: list[tuple[int, CountFilter]] = []
        self.count_scores: list[ScoreUse[CountScore]] = []
        budget = KernelBudget()
        for i, use in enumerate(profile.filters):
            if use.name in [other.name for other in profile.filters[:i]]:
                raise FieldError(f"filters[{i}].name", f"{use.name} is there twice; a filter counts once")
            plugin = _make(FILTERS, use.name, use.args, f"filters[{i}]")
            budget.count_plugin(plugin, f"filters[{i}]")
            if isinstance(plugin, FirmFilter) and (self.fit is None or self.fit[0] != i - 1):
                where = "it stands right behind NodeResourcesFit, with which it is asked"
                raise FieldError(f"filters[{i}].name", f"{use.name} stands elsewhere; {where}")
            self._add_filter(i, plugin)
        for i, use in enumerate(profile.scores):
            plugin = _make(_scores_for(use.args), use.name, use.args, f"scores[{i}]")
            budget.count_plugin(plugin, f"scores[{i}]")
            self._add_score(use.weight, plugin)
        self.kernel_scores: tuple[ScoreUse[Score], ...] = (
            *self.normalised_scores, *self.resource_scores, *self.relative_scores, *self.count_scores
        )  # fmt: skip
        self.raws_count = len(self.normalised_scores)
        self.measured_first: dict[Plugin, int] = {}
        measuring = [use.plugin for use in (*self.resource_scores, *self.relative_scores)]
        for plugin in (*measuring, *(limit for _, limit in self.limits)):
            self.measured_first[plugin] = self.raws_count
            self.raws_count += plugin.measured_count
        self._refusing = {kind: plugin for plugin in self.filters for kind in plugin.phrases}
        scores = {use.plugin.name for use in self.scores}
        self._unread = unread_by({plugin.name for plugin in self.filters}, scores)
        asked = [*self.filters, *(use.plugin for use in self.scores)]
        self.reads_usage = any(plugin.reads_usage for plugin in asked)
        self.colocates = self.firm is not None
        self.reads_images = any(use.plugin.reads_images for use in self.static_scores)
        reads = [plugin.static_reads for _, plugin in self.static_filters]
        rating = [use.plugin for use in (*self.static_scores, *self.normalised_scores)]
        reads += [each.reads - IMAGE_FIELDS if each.reads_images else each.reads for each in rating]
        self._static_reads = sorted(set().union(*reads))

    @property
    def metrics_count(self) -> int:
        """Number of metrics of nodes that the kernel needs for scores that compare all nodes."""
        return sum(use.plugin.metrics_count for use in self.relative_scores)

    @property
    def filters_by_usage(self) -> bool:
        """Whether a measurement alone can make a node feasible."""
        return any(plugin.reads_usage for _, plugin in self.static_filters)

    def static_key(self, template: PodTemplate, view: NodeView) -> bytes:
        """Return all that the static plugins read of a template: equal keys get equal answers.

        Images that no node has are not among it.
        """
        read = [getattr(template, field) for field in self._static_reads]
        if self.reads_images:
            read.append(known_images(template, view))
        return msgspec.json.encode([self.profile.name, self.profile.revision, *read], order="deterministic")

    def demands(self, template: PodTemplate, resources: ResourceIndex) -> tuple[list[Demand], int]:
        """Return what must be free on a node, and how many of the last of these demands are firm."""
        demands = [] if self.fit is None else self.fit[1].demands(template, resources)
        firm = [] if self.firm is None else self.firm.demands(template, resources)
        return [*demands, *firm], len(firm)

    def cures(self, codes: Iterable[str]) -> Cure:
        """Return what may cure nodes that were refused with these reason codes."""
        found = Cure(0)
        for code in codes:
            plugin = self._refusing.get(code.split(":")[0].split(",")[0])
            found |= CURES_ALL if plugin is None else plugin.cures(code)
        return found or CURES_ALL

    def ignores(self, template: PodTemplate) -> tuple[str, ...]:
        """Return what of a pod has no effect: what is never read, and what this profile has no plugin for."""
        ignored = [asked.code for asked in self._unread if asked.is_asked(template)]
        return (*template.ignored, *ignored)

    def _add_filter(self, position: int, plugin: Plugin) -> None:
        self.filters.append(plugin)
        if isinstance(plugin, StaticFilter):
            if not all(reason.unresolvable for reason in plugin.reasons):
                raise TypeError(f"{plugin.name}: no pod that leaves changes what a static filter says")
            self.static_filters.append((position, plugin))
        if isinstance(plugin, LimitFilter):
            self.limits.append((position, plugin))
        if isinstance(plugin, CountFilter):
            self.count_filters.append((position, plugin))
        if isinstance(plugin, ResourceFilter):
            self.fit = (position, plugin)
        if isinstance(plugin, FirmFilter):
            self.firm = plugin

    def _add_score(self, weight: float, plugin: Plugin) -> None:
        assert isinstance(plugin, Score), f"{plugin.name} is no score"
        before = sum(use.plugin.name == plugin.name for use in self.scores)
        label = f"{plugin.name}#{before + 1}" if before else plugin.name
        self.scores.append(ScoreUse(label, weight, plugin))
        match plugin:
            case StaticScore():
                kind = self.static_scores if plugin.normaliser is None else self.normalised_scores
                kind.append(ScoreUse(label, weight, plugin))
            case ResourceScore():
                self.resource_scores.append(ScoreUse(label, weight, plugin))
            case RelativeScore():
                self.relative_scores.append(ScoreUse(label, weight, plugin))
            case CountScore():
                self.count_scores.append(ScoreUse(label, weight, plugin))
            case _:
                raise TypeError(f"{plugin.name} is a score of no kind")


def _scores_for(args: Mapping[str, Any]) -> Mapping[str, type[Plugin]]:
    """Return the scores by name. What is asked of one may need a plugin of its own under a shared name."""
    if args.get(in_flight.ARGUMENT) is True:
        return {**SCORES, **IN_FLIGHT}
    strategy = args.get("scoringStrategy")
    own = STRATEGIES.get(str(strategy.get("type"))) if isinstance(strategy, Mapping) else None
    return SCORES if own is None else {**SCORES, own.name: own}


def _make(known: Mapping[str, type[Plugin]], name: str, args: Mapping[str, Any], path: str) -> Plugin:
    plugin = known.get(name)
    if plugin is None:
        raise FieldError(f"{path}.name", f"{name!r} is unknown; allowed: {', '.join(known)}")
    return plugin(args, f"{path}.args")
