"""The methods that the study of imbalance compares: profiles, and searches."""

from __future__ import annotations

from typing import Any

import msgspec

from domain.model.profiles import PluginUse, Profile
from research.search.setting import RESOURCES
from research.simulate.generated import PROFILE
from research.simulate.searching import Search

_FIT = PluginUse(name="NodeResourcesFit")
_BLIND = PluginUse(name="NodeResourcesFit", args={"ignoredResources": list(RESOURCES[2:])})
"""Cpu and memory alone, as the schedulers do that the paper compares with: they know of nothing else."""


class Method(msgspec.Struct, frozen=True):
    """A way to place pods.

    ``search`` goes by the profile's resource score where there is one, and by the imbalance Z otherwise.
    ``improving_steps``: at each look the placement is made more even by so many steps per pod of a search of
    large neighbourhoods, on paper alone: the next pods come to the placement as it was.
    """

    title: str
    scores: tuple[PluginUse, ...] = ()
    fit: PluginUse = _FIT
    search: Search | None = None
    improving_steps: int = 0

    def profile(self) -> Profile:
        """Return the profile: its filters hold for searches, too."""
        return Profile(name=PROFILE, filters=(self.fit,), scores=self.scores)


def _over_four(name: str, **args: Any) -> PluginUse:
    return PluginUse(name=name, args={**args, "resources": list(RESOURCES)})


_NAMED = [{"name": name, "weight": 1} for name in RESOURCES]
_LEAST_BALANCED = (
    PluginUse(
        name="NodeResourcesFit", args={"scoringStrategy": {"type": "LeastAllocated", "resources": _NAMED}}
    ),
    PluginUse(name="NodeResourcesBalancedAllocation", args={"variant": "with-pod", "resources": _NAMED}),
)

_SEARCH_SCORE = (_over_four("SearchScore"),)

METHODS: dict[str, Method] = {
    "lra": Method("LRA: least requested of cpu and memory", (PluginUse(name="LRA"),), _BLIND),
    "bra": Method("BRA: cpu and memory alike", (PluginUse(name="BRA"),), _BLIND),
    "cwt": Method("CWT: TOPSIS, weights by AHP and entropy", (_over_four("CWT"),)),
    "bes": Method("bald eagle search by S_N", _SEARCH_SCORE, search=Search("bes", 10, 3_000, RESOURCES)),
    "tbesk": Method("TBESK by S_N", _SEARCH_SCORE, search=Search("tbesk", 10, 3_000, RESOURCES)),
    "tbesk-z": Method("TBESK by Z", search=Search("tbesk", 10, 3_000, RESOURCES)),
    "search-score": Method("greedy by S_N", _SEARCH_SCORE),
    "least-balanced": Method("Least + Balanced on four resources", _LEAST_BALANCED),
    "global-variance": Method(
        "global variance of four resources",
        tuple(PluginUse(name="GlobalVariance", args={"resource": name}) for name in RESOURCES),
    ),
    "lns": Method(
        "Least + Balanced, then large-neighbourhood search", _LEAST_BALANCED, improving_steps=1_000
    ),
}
