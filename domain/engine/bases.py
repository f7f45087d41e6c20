"""Which base each slot has: groups that ask for the same of a row share one (``domain.kernels.bases``)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from domain.engine.program import Base, Program
from domain.kernels import arrays as kernel
from domain.model.limits import base_cache_bytes_max

_ROW_BYTES = 1 + 8
_BASES_MIN, _BASES_MAX = 4, 512


def empty_bases(width: int) -> kernel.Bases:
    """Return room for as many bases of ``width`` rows as the memory bound allows."""
    count = min(max(_BASES_MIN, base_cache_bytes_max // (width * _ROW_BYTES)), _BASES_MAX)
    lengths = {"B": count, "N": width}
    return kernel.Bases.allocate(np.zeros, lengths, synced=np.full(count, -1, dtype=np.int64))


class Bases:
    """Gives bases to slots; the least recently used goes first. ``groups`` holds both."""

    def __init__(self, groups: kernel.Groups) -> None:
        self.groups = groups
        groups.base_of[:] = -1
        self._bases: OrderedDict[Hashable, Base] = OrderedDict()  # in order of use, oldest first
        self._free = list(range(len(groups.bases.synced) - 1, -1, -1))

    def give(self, program: Program, call: int) -> None:
        """Give a program a base. It goes without one where this call uses all."""
        base = program.base
        if base is None or base.index < 0:
            base = program.base = self._find(program, call)
            self.groups.base_of[program.slot] = -1 if base is None else base.index
        if base is None:
            return
        if base.called != call:
            self._bases.move_to_end(base.key)
            base.called = call
        if base.static is not program.static or base.version != program.static.version:
            base.static, base.version = program.static, program.static.version
            self.groups.bases.synced[base.index] = -1

    def _find(self, program: Program, call: int) -> Base | None:
        key = (program.static.key, tuple(program.demands), tuple(program.limits), tuple(program.terms))
        base = self._bases.get(key)
        if base is None:
            if not self._free:
                oldest = next(iter(self._bases.values()))
                if oldest.called == call:
                    return None
                self._drop(oldest)
            base = self._bases[key] = Base(key, self._free.pop())
        return base

    def _drop(self, base: Base) -> None:
        del self._bases[base.key]
        owners = self.groups.base_of
        owners[owners == base.index] = -1
        self._free.append(base.index)
        base.index = -1
