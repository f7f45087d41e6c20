"""Groups that ask for the same of a row share a base, and give it up where others need it more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from domain.engine.bases import Bases
from domain.engine.program import Program, StaticPart

SLOTS = 8


class Bed:
    """Two bases, and programs that ask for them."""

    def __init__(self) -> None:
        synced = np.zeros(2, dtype=np.int64)
        owned = np.zeros(SLOTS, dtype=np.int32)
        self.groups = SimpleNamespace(base_of=owned, bases=SimpleNamespace(synced=synced))
        self.bases = Bases(cast(Any, self.groups))
        self.static = StaticPart((b"all", (), False, None))

    def program(self, slot: int, asks: str) -> Program:
        """Return a program whose pods ask for something."""
        template = cast(Any, SimpleNamespace(ignored=()))
        made = Program(slot, template, cast(Any, None), self.static, ())
        made.demands = [cast(Any, asks)]
        return made

    def give(self, program: Program, call: int) -> int:
        """Give a base, let the kernel bring it up to date, and return which it is."""
        self.bases.give(program, call)
        index = int(self.groups.base_of[program.slot])
        if index >= 0:
            self.groups.bases.synced[index] = 5
        return index


def test_those_that_ask_for_the_same_share_one() -> None:
    bed = Bed()
    found = [bed.give(bed.program(slot, asks), 1) for slot, asks in enumerate(("a", "b", "a"))]
    assert found[0] == found[2] != found[1]


def test_a_call_that_uses_all_leaves_others_without_one() -> None:
    bed = Bed()
    found = [bed.give(bed.program(slot, asks), 1) for slot, asks in enumerate("abc")]
    assert found[2] == -1


def test_the_least_recently_used_goes_first_and_its_slots_know() -> None:
    bed = Bed()
    first, second, third = (bed.program(slot, asks) for slot, asks in enumerate("abc"))
    bed.give(first, 1)
    freed = bed.give(second, 1)
    bed.give(first, 2)
    assert bed.give(third, 3) == freed
    assert bed.groups.base_of[1] == -1
    assert bed.groups.base_of[0] >= 0
    assert bed.give(second, 4) != freed  # now the first one's was used least recently


def test_what_it_was_computed_from_must_be_the_same() -> None:
    bed = Bed()
    program = bed.program(0, "a")
    index = bed.give(program, 1)
    bed.bases.give(program, 2)
    assert bed.groups.bases.synced[index] == 5
    bed.static.version += 1
    bed.bases.give(program, 3)
    assert bed.groups.bases.synced[index] == -1
