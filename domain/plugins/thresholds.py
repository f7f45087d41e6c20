"""Thresholds in percent, one per resource, with which a filter compares what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from domain.model.errors import FieldError
from domain.model.validation import shown
from domain.plugins.arguments import Arguments

REQUESTED, MEASURED = "requested", "measured"


class Threshold(NamedTuple):
    """At most ``percent`` of a resource.

    ``of`` says whether what is requested counts, or what is measured.
    """

    resource: str
    percent: float
    of: str


def read_thresholds(given: Arguments, *, of: tuple[str, ...]) -> list[Threshold]:
    """Return the argument ``resources``: ``name``, ``threshold``, and ``of`` where there is a choice.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    found: list[Threshold] = []
    for path, item in given.items("resources"):
        fields = Arguments(item, path, ("name", "threshold", "of") if len(of) > 1 else ("name", "threshold"))
        name = fields.raw("name")
        if not isinstance(name, str) or not name:
            raise FieldError(fields.at("name"), f"expected the name of a resource, got {shown(name)}")
        if "threshold" not in fields:
            raise FieldError(fields.at("threshold"), "is missing; allowed are 0..100 (percent)")
        percent = fields.number("threshold", 0.0, 0.0, 100.0)
        each = Threshold(name, percent, fields.choice("of", of))
        if any((each.resource, each.of) == (known.resource, known.of) for known in found):
            raise FieldError(fields.at("name"), f"{shown(name)} is there twice")
        found.append(each)
    return found


def first_passed(
    thresholds: Sequence[Threshold], measured: Callable[[str], np.ndarray], count: int
) -> np.ndarray | None:
    """Return uint8[count]: the number, from 1, of the first threshold that a node exceeds, 0 for none.

    None where no node exceeds any. ``measured`` gives float64[count] per resource, in percent. NaN, which is
    not measured, exceeds nothing.
    """
    passed = np.zeros(count, dtype=np.uint8)
    for i, threshold in reversed(list(enumerate(thresholds, start=1))):
        passed[measured(threshold.resource) > threshold.percent] = i
    return passed if passed.any() else None
