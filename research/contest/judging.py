"""Packs Tianchi's machines by search, and judges a packing by the rules of the contest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from research.contest.peaks import Beside, Peaks
from research.traces.tianchi import POINTS, Tianchi


class Judged(NamedTuple):
    """What the contest says of a packing: the score, and what is wrong with it.

    Attributes
    ----------
    score : float
        The mean over the 98 points of the sum over used machines of 1 + 10 (exp(max(0, u - 0.5)) - 1), where
        u is the used part of a machine's CPU.
    pending_count, used_count : int
        Instances without a machine; machines that hold an instance.
    overloaded_count, broken_count : int
        Machines that hold more than they have at some point; rules broken, one for each machine.
    """

    score: float
    pending_count: int
    used_count: int
    overloaded_count: int
    broken_count: int


def judge(trace: Tianchi, machine: np.ndarray) -> Judged:
    """Judge a packing (int32[P], N: pending) by the plain definition of the contest."""
    count = len(trace.machines)
    placed = machine < count
    rows, apps = machine[placed], trace.app[placed]
    cpu = _sums(trace.app_cpu, apps, rows, count)
    room = trace.machine_cpu[:, None]
    is_over = (cpu > room).any(axis=1)
    is_over |= (_sums(trace.app_memory, apps, rows, count) > trace.machine_memory[:, None]).any(axis=1)
    is_over |= (_sums(trace.app_counts, apps, rows, count) > trace.machine_counts).any(axis=1)
    is_used = np.bincount(rows, minlength=count) > 0
    excess = np.expm1(np.maximum(0.0, cpu[is_used] / room[is_used] - 0.5))
    score = float(is_used.sum() + 10.0 * excess.mean(axis=1).sum())
    beside = np.zeros((len(trace.apps), count), np.int16)
    np.add.at(beside, (apps, rows), 1)
    broken = sum(int(((beside[a] > 0) & (beside[b] > most)).sum()) for a, b, most in trace.rules)
    return Judged(score, int((~placed).sum()), int(is_used.sum()), int(is_over.sum()), broken)


def peaks_of(trace: Tianchi, seed: int) -> Peaks:
    """Return a search that begins with the machines that the trace gives."""
    memory = np.repeat(trace.machine_memory[:, None], POINTS, axis=1)
    return Peaks(
        trace.machine_cpu,
        trace.app_cpu,
        np.hstack([memory, trace.machine_counts]),
        np.hstack([trace.app_memory, trace.app_counts]),
        trace.app,
        trace.machine,
        beside=[Beside(*rule) for rule in trace.rules],
        seed=seed,
    )


def _sums(amounts: np.ndarray, apps: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """Return the sums of what instances use by machine: int64[count, columns]."""
    found = np.zeros((count, amounts.shape[1]), np.int64)
    np.add.at(found, rows, amounts[apps])
    return found
