"""Arrays of preemption: placed pods by importance, what a pod asks, and the plan of each row."""

from __future__ import annotations

import numpy as np

from domain.kernels.arrays import LIMIT_COLUMNS_MAX
from domain.kernels.tables import Table, array

TILE = 128
"""Rows per tile. A tile knows its best row."""

NO_ROW = -1
RULED_OUT, UNFIT, PLANNED = range(3)
"""What was found of a row: no eviction of any pod makes room; not enough may be evicted; it has victims."""

STAYS, VIOLATING, VICTIM = 0, 1, 2
"""Marks of a pod that could be evicted: it violates a budget if it is, and it is a victim."""

NO_VICTIM = -(1 << 40)
"""Stands for the highest priority of no victims."""

NOT_STARTED = 1 << 62
"""Stands for the start of a pod that has not started."""

SHIFT = 1 << 31
"""Added to each priority before these are summed, so that a further victim always weighs more."""


class PlacedPods(Table):
    """The placed pods of each row, the most important first; N rows, P places, R resource columns.

    The pods of a row stand from ``first`` on, ``length`` of them, those left out that were evicted already.
    ``below[c, i]`` sums column c over the pod at i and the less important ones of its row; behind the last
    one stands 0. ``gone[c, row]`` sums it over the pods that were evicted already. ``budgets`` is the number
    of a set of budgets, 0 of none.
    """

    first: np.ndarray = array(np.int64, "N")
    length: np.ndarray = array(np.int32, "N")
    gone: np.ndarray = array(np.int64, "R", "N")
    priority: np.ndarray = array(np.int64, "P")
    start_ms: np.ndarray = array(np.int64, "P")
    kind: np.ndarray = array(np.int32, "P")  # the number of its class
    below: np.ndarray = array(np.int64, "R", "P")
    budgets: np.ndarray = array(np.int32, "P")
    is_there: np.ndarray = array(np.uint8, "P")  # 0 once it is a victim of a pod planned before
    mark: np.ndarray = array(np.uint8, "P")  # see ``VIOLATING`` and ``VICTIM``


class Band(Table):
    """What pods below one priority hold: ``start`` is the place of the first of them on a row.

    ``sums`` is what those of a row request together.
    """

    start: np.ndarray = array(np.int64, "N")
    sums: np.ndarray = array(np.int64, "R", "N")


class Asked(Table):
    """What a pod asks of a row, D demands, M limits and U columns that these read; and what it adds to A.

    ``demand_at`` and ``limit_at`` point into ``column``. So do, where the pod asks for devices, ``device_at``
    of each device that any node tells apart, and ``derived_at`` of ``BUSY`` and ``SHARED``
    (``domain.model.devices``), -1 of the one that is not read.
    """

    static_code: np.ndarray = array(np.int16, "N")
    column: np.ndarray = array(np.int32, "U")
    demand_at: np.ndarray = array(np.int32, "D")
    demand_value: np.ndarray = array(np.int64, "D")
    limit_at: np.ndarray = array(np.int32, "M", LIMIT_COLUMNS_MAX)
    limit_width: np.ndarray = array(np.int32, "M")
    limit_value: np.ndarray = array(np.int64, "M")
    limit_bound: np.ndarray = array(np.float64, "M", "N")  # what the sum must not exceed, times 100
    add_column: np.ndarray = array(np.int32, "A")
    add_value: np.ndarray = array(np.int64, "A")
    device_at: np.ndarray = array(np.int32, "V")  # empty where the pod asks for none
    derived_at: np.ndarray = array(np.int32, 2)


class Rules(Table):
    """The rules over counters, Q of them, and what these count.

    Layer 0 counts placed pods alone, layer 1 nominated ones too: the pod must pass both. ``layers`` is how
    many of them differ. Rule r counts in ``sums[layer]`` from ``first[r]`` on, ``length[r]`` domains.
    ``weight[k, r]`` is what a pod of class k adds, ``own[r]`` what the pod itself does. ``domain`` and
    ``eligible`` are those of ``Counters``. ``least``, ``least_count`` and ``second`` are the lowest count of
    a spread, how many domains have it, and the lowest of the others; ``domains`` how many domains there are.
    """

    kind: np.ndarray = array(np.int32, "Q")
    topology: np.ndarray = array(np.int32, "Q")
    mask: np.ndarray = array(np.int32, "Q")
    bound: np.ndarray = array(np.int64, "Q")
    min_domains: np.ndarray = array(np.int32, "Q")
    bootstraps: np.ndarray = array(np.int32, "Q")
    missing: np.ndarray = array(np.int32, "Q")
    first: np.ndarray = array(np.int64, "Q")
    length: np.ndarray = array(np.int64, "Q")
    sums: np.ndarray = array(np.int64, 2, "S")
    total: np.ndarray = array(np.int64, 2, "Q")
    has_nodes: np.ndarray = array(np.uint8, "S")
    weight: np.ndarray = array(np.int32, "K", "Q")
    own: np.ndarray = array(np.int32, "Q")
    domain: np.ndarray = array(np.int32, "T", "N")
    eligible: np.ndarray = array(np.uint8, "M", "N")
    layers: np.ndarray = array(np.int64, 1)
    least: np.ndarray = array(np.int64, 2, "Q")
    least_count: np.ndarray = array(np.int64, 2, "Q")
    second: np.ndarray = array(np.int64, 2, "Q")
    domains: np.ndarray = array(np.int64, "Q")


class BudgetSets(Table):
    """Set s holds the budgets ``budget[first[s] : first[s + 1]]``; ``allowed`` is what each has left."""

    first: np.ndarray = array(np.int64, "S + 1")
    budget: np.ndarray = array(np.int32, "E")
    allowed: np.ndarray = array(np.int64, "B")


class RowPlans(Table):
    """The plan of each row, N of them, and the best row of each tile, ``NO_ROW`` where there is none.

    ``state`` says what was found. The five criteria: how many victims violate a budget, the highest priority
    of a victim, the sum of their priorities, how many they are, and the earliest start of those of the
    highest priority. ``touched`` has bit b % 64 set where some pod that could be evicted is in budget b.
    ``used``, ``cut``, ``moved`` and ``nominated`` are memory.
    """

    state: np.ndarray = array(np.uint8, "N")
    violations: np.ndarray = array(np.int32, "N")
    highest: np.ndarray = array(np.int64, "N")
    priorities: np.ndarray = array(np.int64, "N")
    victims: np.ndarray = array(np.int32, "N")
    start_ms: np.ndarray = array(np.int64, "N")
    touched: np.ndarray = array(np.uint64, "N")
    tile_best: np.ndarray = array(np.int32, "N / TILE")
    used: np.ndarray = array(np.int64, "U")
    cut: np.ndarray = array(np.int64, "Q")
    moved: np.ndarray = array(np.uint8, "Q")
    nominated: np.ndarray = array(np.int64, 2)
