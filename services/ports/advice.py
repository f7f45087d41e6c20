"""What the API and the process that says why pods wait tell each other, a line each."""

from __future__ import annotations

import msgspec

from domain.cures.changes import Findings


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told first: the ledger, the seed, and how old what it has read may be."""

    dsn: str
    seed: int
    fresh_seconds: float


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A question about a pod; so many wait that are like it."""

    namespace: str
    name: str
    waiting_count: int


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """An answer. Without ``findings`` the pod does not wait: it has the ``node``, or (None) is not there.

    It is of the log time ``log_time_ms``, and was read ``age_seconds`` ago.
    """

    log_time_ms: int
    age_seconds: float
    node: str | None = None
    findings: Findings | None = None


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why there is no answer."""

    code: str
    message: str
