"""Profiles: an ordered list of filters and weighted scores, as data."""

from __future__ import annotations

from typing import Any

import msgspec

from domain.model.pods import COLOCATION_PROFILE, DEFAULT_PROFILE


class PluginUse(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin inside a profile: its name, weight (scores only) and arguments."""

    name: str
    weight: float = 1.0
    args: dict[str, Any] = {}


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Ordered filters and weighted scores. Pods name a profile in ``spec.schedulerName``."""

    name: str
    revision: int = 1
    filters: tuple[PluginUse, ...] = ()
    scores: tuple[PluginUse, ...] = ()


class ProfileRevision(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a profile since an accepted change. Revisions of a name count from 1 without a hole.

    ``profile`` is None after a deletion, or the built-in profile of that name. ``resource_version`` is the
    newest seen, so that a late duplicate stays late.
    """

    name: str
    revision: int
    profile: Profile | None
    resource_version: int | None = None


_FILTERS = tuple(
    PluginUse(name=name)
    for name in (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeDeclaredFeatures",
    )
)


_FIT_AT = next(i for i, use in enumerate(_FILTERS) if use.name == "NodeResourcesFit") + 1
_COLOCATION_FILTERS = (*_FILTERS[:_FIT_AT], PluginUse(name="ColocationFit"), *_FILTERS[_FIT_AT:])

_WHOLE = {"arithmetic": "integer"}
_UPSTREAM_SCORES = (
    PluginUse(name="TaintToleration", weight=3.0, args=_WHOLE),
    PluginUse(name="NodeAffinity", weight=2.0, args=_WHOLE),
    PluginUse(name="PodTopologySpread", weight=2.0),
    PluginUse(name="InterPodAffinity", weight=2.0),
    PluginUse(name="NodeResourcesFit", args={"scoringStrategy": {"type": "LeastAllocated"}, **_WHOLE}),
    PluginUse(name="NodeResourcesBalancedAllocation", args=_WHOLE),
    PluginUse(name="ImageLocality", args=_WHOLE),
)
"""The default set of kube-scheduler v1.36, in its order, with its weights and its whole-number arithmetic."""


def _fit_score(strategy: str) -> PluginUse:
    return PluginUse(name="NodeResourcesFit", args={"scoringStrategy": {"type": strategy}})


BUILT_IN_PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile(name=DEFAULT_PROFILE, filters=_FILTERS, scores=_UPSTREAM_SCORES),
        Profile(
            name=COLOCATION_PROFILE,
            filters=_COLOCATION_FILTERS,
            scores=(*_UPSTREAM_SCORES, PluginUse(name="ColocationScore", args=_WHOLE)),
        ),
        Profile(name="least-allocated", filters=_FILTERS, scores=(_fit_score("LeastAllocated"),)),
        Profile(name="most-allocated", filters=_FILTERS, scores=(_fit_score("MostAllocated"),)),
        Profile(name="first-fit", filters=_FILTERS, scores=(PluginUse(name="FirstFit"),)),
    )
}
"""The profiles that exist without any configuration, by name."""
