"""What a pod is expected to use, as long as no measurement has seen it."""

from __future__ import annotations

from typing import NamedTuple

from domain.model.colocation import Amounts, EstimateRule


class ClaimSums(NamedTuple):
    """What the containers of a pod say of one resource, in its unit.

    ``fixed`` sums the limits of the containers that have one, and the pod's overhead; ``requested`` the
    requests of the others; ``silent_count`` containers give neither.
    """

    fixed: int = 0
    requested: int = 0
    silent_count: int = 0


def estimate_of(rule: EstimateRule, cpu: ClaimSums, memory: ClaimSums) -> Amounts:
    """Return what a pod is expected to use: thousandths of a core, and bytes.

    Per container: its limit, else its request times a factor, else a default. The product is rounded up,
    once for the pod: this errs towards lending less.

    Notes
    -----
    Source: scheduler-plugins, TargetLoadPacking, for cpu (limit, else request x 1.5, else one core); the
    same for memory with numbers of its own.
    """
    return Amounts(
        _expected(cpu, rule.cpu_percent, rule.cpu_milli),
        _expected(memory, rule.memory_percent, rule.memory_bytes),
    )


def _expected(claim: ClaimSums, percent: int, default: int) -> int:
    return claim.fixed - (-claim.requested * percent // 100) + claim.silent_count * default
