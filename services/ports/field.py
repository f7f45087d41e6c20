"""The field: all live nodes at once, as columns, for a reader that draws or sums them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

from domain.model.devices import GPU
from domain.model.resources import CPU, MEMORY, PODS
from services.ports.past import Moment

FIELD_RESOURCES = (CPU, MEMORY, GPU, PODS)
"""Resources that a field has where no others are asked for."""


class FieldGroup(NamedTuple):
    """Nodes in a row that have one value of the label; None: they do not have it."""

    value: str | None
    nodes_count: int


class Column(NamedTuple):
    """One resource of all nodes, in its canonical unit; devices are in thousandths of one.

    ``measured`` is the latest measurement in percent of the capacity, None where there is none; it is empty
    where measurements were not asked for.
    """

    offered: Sequence[int]
    taken: Sequence[int]
    measured: Sequence[float | None]


class Field(NamedTuple):
    """Live nodes by the value of a label, those without it last, then by name.

    Attributes
    ----------
    groups : sequence of FieldGroup
        Which nodes have which value, in their order.
    names : sequence of str
        One for each node; each column is as long.
    columns : mapping
        Resource -> its column.
    unschedulable, not_ready, repelling, hot : sequence of int
        Indices of the nodes that take no pods, that say that they are not ready, that have a taint which
        keeps pods off, and that are hot (empty where measurements were not asked for).
    """

    groups: Sequence[FieldGroup]
    names: Sequence[str]
    columns: Mapping[str, Column]
    unschedulable: Sequence[int]
    not_ready: Sequence[int]
    repelling: Sequence[int]
    hot: Sequence[int]


class FieldFilter(NamedTuple):
    """What of the nodes is asked for: the label that groups them ("": none), which resources, and whether
    what was measured, too."""

    by: str = ""
    resources: Sequence[str] = FIELD_RESOURCES
    measured: bool = False


class Fields(Protocol):
    """Reads the field. Nodes are of no namespace, so it is the same for all callers."""

    async def field(self, which: FieldFilter, moment: Moment | None) -> Field:
        """Return all live nodes, of now or as of a moment; of the past nothing is known to be measured."""


def groups_of(labels: Sequence[str | None]) -> list[FieldGroup]:
    """Return the runs of equal values."""
    return [FieldGroup(value, sum(1 for _ in run)) for value, run in groupby(labels)]
