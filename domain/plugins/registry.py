"""Every plugin of berth, in the order in which documentation lists them; profiles name them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.profiles import Profile
from domain.plugins.base import (
    OccupancyFilter,
    Plugin,
    ResourceFilter,
    ResourceScore,
    Score,
    StaticFilter,
    StaticScore,
)
from domain.plugins.filters.node_affinity import NodeAffinity
from domain.plugins.filters.node_name import NodeName
from domain.plugins.filters.node_ports import NodePorts
from domain.plugins.filters.node_resources_fit import NodeResourcesFit
from domain.plugins.filters.node_unschedulable import NodeUnschedulable
from domain.plugins.filters.taint_toleration import TaintToleration
from domain.plugins.scores.allocated import Allocated
from domain.plugins.scores.first_fit import FirstFit
from domain.plugins.scores.global_variance import GlobalVariance
from domain.plugins.scores.image_locality import ImageLocality
from domain.plugins.scores.load_variation_risk_balancing import LoadVariationRiskBalancing
from domain.plugins.scores.low_risk_over_commitment import LowRiskOverCommitment
from domain.plugins.scores.node_affinity import NodeAffinity as NodeAffinityScore
from domain.plugins.scores.node_resources_allocatable import Allocatable
from domain.plugins.scores.node_resources_balanced_allocation import Balanced
from domain.plugins.scores.peaks import Peaks
from domain.plugins.scores.requested_to_capacity_ratio import RequestedToCapacityRatio
from domain.plugins.scores.taint_toleration import TaintToleration as TaintTolerationScore
from domain.plugins.scores.target_load_packing import TargetLoadPacking

FILTERS: Mapping[str, type[Plugin]] = MappingProxyType(
    {
        plugin.name: plugin
        for plugin in (
            NodeUnschedulable,
            NodeName,
            TaintToleration,
            NodeAffinity,
            NodePorts,
            NodeResourcesFit,
        )
    }
)
SCORES: Mapping[str, type[Plugin]] = MappingProxyType(
    {
        plugin.name: plugin
        for plugin in (
            Allocated,
            FirstFit,
            Balanced,
            TaintTolerationScore,
            NodeAffinityScore,
            ImageLocality,
            Allocatable,
            TargetLoadPacking,
            LoadVariationRiskBalancing,
            LowRiskOverCommitment,
            Peaks,
            GlobalVariance,
        )
    }
)
STRATEGIES: Mapping[str, type[Plugin]] = MappingProxyType(
    {"RequestedToCapacityRatio": RequestedToCapacityRatio}
)
"""Scoring strategies of NodeResourcesFit that are not in its own file, by type."""


class ScoreUse(NamedTuple):
    """A score of a profile: ``label`` is its name, numbered when the profile has it more than once."""

    label: str
    weight: float
    plugin: Score


class ProfilePlan:
    """A profile made ready: its plugins, instantiated, with their positions and weights.

    Parameters
    ----------
    profile : Profile
        Ordered filters and weighted scores.
    planning : bool
        Take every plugin. Without it the plan is for a worker, and a score that the placing kernel cannot
        compute yet is refused.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """

    def __init__(self, profile: Profile, *, planning: bool = False) -> None:
        self.profile = profile
        self.filters: list[Plugin] = []
        self.scores: list[ScoreUse] = []
        self.static_filters: list[tuple[int, StaticFilter]] = []
        self.occupancy: tuple[int, OccupancyFilter] | None = None
        self.fit: tuple[int, ResourceFilter] | None = None
        self.static_scores: list[tuple[float, StaticScore]] = []
        self.resource_scores: list[tuple[float, ResourceScore]] = []
        for i, use in enumerate(profile.filters):
            if use.name in [other.name for other in profile.filters[:i]]:
                raise FieldError(f"filters[{i}].name", f"{use.name} is there twice; a filter counts once")
            self._add_filter(i, _make(FILTERS, use.name, use.args, f"filters[{i}]"))
        for i, use in enumerate(profile.scores):
            score = _make(_scores_for(use.args), use.name, use.args, f"scores[{i}]")
            self._add_score(use.weight, score, None if planning else f"scores[{i}]")
        static = [plugin for _, plugin in self.static_filters] + [plugin for _, plugin in self.static_scores]
        self._static_reads = sorted(set().union(*(plugin.reads for plugin in static)))

    def static_key(self, template: PodTemplate) -> bytes:
        """Return what the static plugins can tell of a template: equal keys, equal answers."""
        read = [getattr(template, field) for field in self._static_reads]
        return msgspec.json.encode([self.profile.name, self.profile.revision, *read], order="deterministic")

    def _add_filter(self, position: int, plugin: Plugin) -> None:
        self.filters.append(plugin)
        match plugin:
            case StaticFilter():
                self.static_filters.append((position, plugin))
            case OccupancyFilter():
                self.occupancy = (position, plugin)
            case ResourceFilter():
                self.fit = (position, plugin)
            case _:
                raise TypeError(f"{plugin.name} is no filter")

    def _add_score(self, weight: float, plugin: Plugin, refuse_at: str | None) -> None:
        """Take a score; one that only a plan can ask is refused at the given path."""
        assert isinstance(plugin, Score), f"{plugin.name} is no score"
        before = sum(use.plugin.name == plugin.name for use in self.scores)
        label = f"{plugin.name}#{before + 1}" if before else plugin.name
        self.scores.append(ScoreUse(label, weight, plugin))
        match plugin:
            case StaticScore():
                self.static_scores.append((weight, plugin))
            case ResourceScore():
                self.resource_scores.append((weight, plugin))
            case _ if refuse_at is not None:
                message = (
                    f"{type(plugin).__name__} works in `berth plan` only; a worker cannot compute it yet"
                )
                raise FieldError(refuse_at, message)


def _scores_for(args: Mapping[str, Any]) -> Mapping[str, type[Plugin]]:
    """Return the scores by name; a strategy may have a plugin of its own under a name that others share."""
    strategy = args.get("scoringStrategy")
    own = STRATEGIES.get(str(strategy.get("type"))) if isinstance(strategy, Mapping) else None
    return SCORES if own is None else {**SCORES, own.name: own}


def _make(known: Mapping[str, type[Plugin]], name: str, args: Mapping[str, Any], path: str) -> Plugin:
    plugin = known.get(name)
    if plugin is None:
        raise FieldError(f"{path}.name", f"{name!r} is unknown; allowed: {', '.join(known)}")
    return plugin(args, f"{path}.args")
