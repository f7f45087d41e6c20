"""Arrays of what is counted over pods, and of what groups share that ask for it; see ``arrays.py``."""

from __future__ import annotations

import numpy as np

from domain.kernels.tables import Table, array


class Counters(Table):
    """What placed pods count by domain. C counters, T topologies, M masks of eligible rows, W rows.

    ``domain`` is the domain of a row, -1 where it has none, and ``-2 - d`` where it has none and yet counts
    in domain d, as one of the domains that give a score its size. Counter c counts the rows of
    ``eligible[mask[c]]``, all where the mask is -1, in the domains of topology ``topology[c]``: they stand in
    ``sums`` and ``has_nodes`` from ``first[c]`` on, ``length[c]`` of them. ``has_nodes`` says whether a
    domain has an eligible row: a minimum is taken over these. ``total`` is the sum of all domains,
    ``version`` grows with each change.
    """

    domain: np.ndarray = array(np.int32, "T", "W")
    eligible: np.ndarray = array(np.uint8, "M", "W")
    topology: np.ndarray = array(np.int32, "C")
    mask: np.ndarray = array(np.int32, "C")
    first: np.ndarray = array(np.int64, "C")
    length: np.ndarray = array(np.int32, "C")
    sums: np.ndarray = array(np.int32, "D")
    has_nodes: np.ndarray = array(np.uint8, "D")
    total: np.ndarray = array(np.int64, "C")
    version: np.ndarray = array(np.int64, "C")


class Effects(Table):
    """What a pod of a slot adds to counters once it is placed.

    Slot ``g`` adds ``weight[e]`` to ``counter[e]`` for every e in ``first[g] .. first[g + 1] - 1``.
    """

    first: np.ndarray = array(np.int32, "G + 1")
    counter: np.ndarray = array(np.int32, "E")
    weight: np.ndarray = array(np.int32, "E")


class Bases(Table):
    """Bases B (``bases``): which rows fit, and their totals; ``synced`` as in trees."""

    fits: np.ndarray = array(np.uint8, "B", "N")
    total: np.ndarray = array(np.int64, "B", "N")
    synced: np.ndarray = array(np.int64, "B")


class RowBounds(Table):
    """Bounds by the row, kept from one turn of a group to its next. The first axis is the place K.

    A slot's place is its number modulo K, so some slots may share one. ``owner`` is the slot whose bounds
    ``bound`` are, negative where a row is refused. ``synced`` as in trees.
    """

    owner: np.ndarray = array(np.int32, "K")
    synced: np.ndarray = array(np.int64, "K")
    bound: np.ndarray = array(np.int16, "K", "N")
