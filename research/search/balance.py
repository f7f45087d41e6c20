"""How evenly nodes are used: the paper's imbalance Z, and what must stand beside it."""

from __future__ import annotations

import msgspec
import numpy as np


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """How evenly some nodes are used. Lists are in the order of the resources.

    Attributes
    ----------
    imbalance : float
        Z_avg, the mean of ``imbalance`` over the nodes. It compares the resources of one node, so that a
        cluster with one full and one empty node is in perfect balance. The others show that.
    deviation : list of float
        The population's standard deviation of a resource's utilisation over the nodes.
    lowest, highest : list of float
        The extremes over the nodes.
    overloaded : list of int
        How many nodes are used beyond what they offer.
    """

    imbalance: float
    deviation: list[float]
    lowest: list[float]
    highest: list[float]
    overloaded: list[int]

    @property
    def ranges(self) -> list[float]:
        """The differences of the extremes."""
        return [high - low for low, high in zip(self.lowest, self.highest, strict=True)]


def utilisation(allocatable: np.ndarray, requested: np.ndarray) -> np.ndarray:
    """Return A, float64[..., N, R] of int64[R, N] and int64[R, ..., N]; 0 where a node offers none.

    Source: equation 32 of the paper on an improved bald eagle search for placement (TBESK, 2023).
    """
    offered = np.maximum(allocatable, 1).reshape(len(allocatable), *(1,) * (requested.ndim - 2), -1)
    shares: np.ndarray = np.where(allocatable.reshape(offered.shape) > 0, requested / offered, 0.0)
    return np.moveaxis(shares, 0, -1)


def imbalance(shares: np.ndarray) -> np.ndarray:
    """Return Z of each node, float64[..., N] of float64[..., N, R].

    Formula: ``Z(i) = sqrt(sum over resources of (A(i, r) - mean of A(i))^2)``. It is the root of the sum, as
    in equation 33, not of the mean: with four resources twice their standard deviation.
    """
    apart = shares - shares.mean(axis=-1, keepdims=True)
    found: np.ndarray = np.sqrt(np.square(apart).sum(axis=-1))
    return found


def balance(shares: np.ndarray) -> Balance:
    """Return how evenly nodes with utilisation float64[N, R] are used."""
    return Balance(
        imbalance=float(imbalance(shares).mean()),
        deviation=shares.std(axis=0).tolist(),
        lowest=shares.min(axis=0).tolist(),
        highest=shares.max(axis=0).tolist(),
        overloaded=(shares > 1.0).sum(axis=0).tolist(),
    )
