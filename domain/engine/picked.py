"""What the kernel says of pods: the arrays for it, parts of them, and the devices that pods got."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from domain.engine.program import Program
from domain.kernels import arrays as kernel
from domain.kernels.devices import DEVICES_MAX
from domain.model.pods import PodSpec
from domain.state.pods import PodEntry

Specs = Mapping[str, PodSpec]
"""Specs of pods by key, with the devices that they got."""


def room_for(pods: int, programs: Collection[Program], slots: int) -> kernel.Placed:
    """Return arrays for the kernel's output: one attempt per program."""
    attempts = len(programs)
    rules = max((len(program.counted.rules) for program in programs), default=0)
    columns = np.array(sorted(set().union(*{program.columns for program in programs})), dtype=np.int32)
    return kernel.Placed.allocate(
        np.zeros,
        {"P": pods, "G": slots, "A": attempts, "C": len(columns), "R": rules},
        attempt_of=np.full(slots, -1, dtype=np.int32),
        top_row=np.full((attempts, kernel.TOP), -1, dtype=np.int32),
        reason_code=np.full((attempts, 2, kernel.REASONS), -1, dtype=np.int32),
        explained_columns=columns,
        rule_domain=np.full((attempts, 2, rules, kernel.DOMAINS_EXPLAINED), -1, dtype=np.int32),
        done=np.full(1, pods, dtype=np.int64),
    )


def part_of(placed: kernel.Placed, at: np.ndarray | slice) -> kernel.Placed:
    """Return the kernel's output for some of its pods."""
    return placed.replace(row=placed.row[at], score=placed.score[at], devices=placed.devices[at])


def indices_of(bits: int) -> tuple[int, ...]:
    """Return the devices that bits stand for."""
    return tuple(index for index in range(DEVICES_MAX) if bits >> index & 1)


def with_devices(
    pods: Mapping[str, PodEntry], keys: Sequence[str], rows: np.ndarray, devices: np.ndarray
) -> dict[str, PodSpec]:
    """Return by key the specs of pods that got devices, with these.

    ``rows`` and ``devices`` int32[len(keys)] are the row of each pod (-1: none) and its devices as bits.
    Cost: O(pods that got any).
    """
    found = np.flatnonzero((devices != 0) & (rows >= 0)).tolist()
    return {
        keys[i]: msgspec.structs.replace(pods[keys[i]].spec, devices=indices_of(int(devices[i])))
        for i in found
    }
