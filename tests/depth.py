"""How deep a run looks: at a tenth of all seeds, examples and days, at a third of them, or at all.

``TEST_DEPTH`` chooses; the Makefile and ``.ci/run`` set it. ``make check`` and ``make test`` look at a
tenth; continuous integration, ``make deep`` and pytest alone at a third; ``make nightly`` at everything.
``make check`` leaves out what is marked ``wide`` or ``deep``, ``make test`` what is marked ``deep``, which
``make deep`` runs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

SHARES = {"check": 10, "test": 10, "ci": 3, "nightly": 1}
"""One of so many is looked at."""

DEPTH = os.environ.get("TEST_DEPTH", "ci")
_ONE_OF = SHARES[DEPTH]

T = TypeVar("T")


def examples(count: int) -> int:
    """Return how many of so many examples this run looks at: at least one."""
    return max(1, -(-count // _ONE_OF))


def some(cases: Sequence[T]) -> Sequence[T]:
    """Return the cases that this run looks at, spread over all of them: the same ones every time."""
    return cases[::_ONE_OF]
