"""The ways to place pods that a simulation compares: profiles, and searches with the filters of one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from domain.model.pods import DEFAULT_PROFILE
from domain.model.profiles import BUILT_IN_PROFILES, Profile
from research.simulate.searching import Search

OWN = "own"
"""Each pod by the profile that it names."""

LNS = "lns"
TBESK = "tbesk"
SEARCHES = (LNS, TBESK)

_WINDOW = 10
_EVALUATIONS_MAX = 300
_LNS_STEPS = 20_000
MOVES_MAX = 100


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A way to place pods.

    Attributes
    ----------
    profile : Profile, optional
        The profile of all pods; None: each pod names its own.
    search : Search, optional
        Places pods instead of the profile's scores.
    lns_steps : int
        At each look a search of large neighbourhoods makes the placement more even, with so many steps.
    moves_max : int
        It moves at most so many pods each time.
    """

    name: str
    profile: Profile | None
    search: Search | None = None
    lns_steps: int = 0
    moves_max: int = MOVES_MAX


def method_of(name: str, profile: Profile | None, resources: Sequence[str], moves_max: int) -> Method:
    """Return the search of a name, else the method that places by a profile."""
    default = BUILT_IN_PROFILES[DEFAULT_PROFILE]
    if name == LNS:
        return Method(name=name, profile=default, lns_steps=_LNS_STEPS, moves_max=moves_max)
    if name == TBESK:
        blind = msgspec.structs.replace(default, scores=())
        search = Search("tbesk", _WINDOW, _EVALUATIONS_MAX, tuple(resources))
        return Method(name=name, profile=blind, search=search)
    return Method(name=name, profile=profile)
