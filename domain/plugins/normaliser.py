"""Min-max normalisation: the rule that brings the scores of all feasible nodes to 0..100."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from domain.kernels.arrays import CUT, EQUAL_FULL, FROM_ZERO, REVERSED, ZERO_FULL


class Normaliser(NamedTuple):
    """Places a score between the lowest (0) and the highest (100) of the feasible nodes.

    Formula: ``(score - lowest) / (highest - lowest) * 100``. A score that is not a number, or beyond 1e300,
    becomes 0.

    Attributes
    ----------
    reverse : bool
        The lowest gets 100, the highest 0.
    from_zero : bool
        The lowest is taken as 0: scores are shares of the highest.
    equal_full : bool
        All get 100 where all are equal and not 0; else all get 0.
    zero_full : bool
        The same where all are 0.
    cut : bool
        The share is cut to a whole number, before it is reversed.
    """

    reverse: bool = False
    from_zero: bool = False
    equal_full: bool = False
    zero_full: bool = False
    cut: bool = False

    @property
    def flags(self) -> int:
        """The attributes as one number, for the kernel (``domain.kernels.normalising``)."""
        return _flags(self)


@cache
def _flags(normaliser: Normaliser) -> int:
    flags = (REVERSED, FROM_ZERO, EQUAL_FULL, ZERO_FULL, CUT)
    return sum(flag for flag, is_set in zip(flags, normaliser, strict=True) if is_set)
