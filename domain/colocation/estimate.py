"""What a pod is expected to use, as long as no measurement has seen it."""

from __future__ import annotations

from typing import NamedTuple


class ClaimSums(NamedTuple):
    """What the containers of a pod say of one resource, in its unit.

    ``fixed`` sums the limits of the containers that have one, and the pod's overhead; ``requested`` the
    requests of the others; ``silent_count`` containers give neither.
    """

    fixed: int = 0
    requested: int = 0
    silent_count: int = 0


def expected(claim: ClaimSums, percent: int, default: int) -> int:
    """Return what a pod is expected to use of one resource: thousandths of a core, or bytes.

    Per container: its limit, else ``percent`` of its request, else a default. The product is rounded up, once
    for the pod: this errs towards lending less.

    Notes
    -----
    Source: scheduler-plugins, TargetLoadPacking, for cpu (limit, else request x 1.5, else one core); the
    same for memory with numbers of its own.
    """
    return claim.fixed - (-claim.requested * percent // 100) + claim.silent_count * default
