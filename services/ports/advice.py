"""What the API and the process that says why pods wait tell each other, a line each."""

from __future__ import annotations

import msgspec

from domain.cures.changes import Findings
from domain.engine.evaluate import Eviction
from domain.model.decisions import Attempt


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told first: the ledger, the seed, and how old what it has read may be."""

    dsn: str
    seed: int
    fresh_seconds: float


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="why"):
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


class PlanAsked(msgspec.Struct, frozen=True, kw_only=True, tag="plan"):
    """Manifests to plan, as YAML or JSON, against what the ledger holds now, or did ``at`` a moment.

    Attributes
    ----------
    seen : list of str or None
        The namespaces that the caller sees; None: all. Of others he plans nothing.
    profile : str or None
        The profile that places all pods, by its name; None: each pod's own.
    replicas : int or None
        So many copies of each pod and pods of each workload; None: as they say.
    with_more, with_cures : bool
        Whether to count how many more would fit, and to search what would cure those that wait.
    """

    text: str
    seen: list[str] | None = None
    at: str | None = None
    profile: str | None = None
    replicas: int | None = None
    with_more: bool = False
    with_cures: bool = False


class PodPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a pod; ``attempt`` is the place of its group's attempt in the list of those."""

    pod: str
    outcome: str
    node: str | None
    score: float | None
    attempt: int


class AttemptPlanned(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt with the weights of its profile's scores; ``reasons`` are those at failure."""

    attempt: Attempt
    weights: dict[str, float]
    reasons: dict[str, int]


class MoreFit(msgspec.Struct, frozen=True, kw_only=True):
    """How many more copies of a pod fit, on how many nodes, and why the next one does not; {}: not tried."""

    pod: str
    count: int
    nodes_count: int
    stopped_by: dict[str, int]


class Cures(msgspec.Struct, frozen=True, kw_only=True):
    """What would cure a pod, and so many like it."""

    pod: str
    waiting_count: int
    findings: Findings


class Evictions(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods would have to go for a pod, on the best of the ``helped_count`` nodes where that helps."""

    pod: str
    helped_count: int
    best: list[Eviction]


class PlanTold(msgspec.Struct, frozen=True, kw_only=True, tag="planned"):
    """A plan, of the log time ``log_time_ms``; None: of a ledger without any."""

    log_time_ms: int | None
    nodes_count: int
    pods: list[PodPlanned]
    attempts: list[AttemptPlanned]
    more: list[MoreFit]
    cures: list[Cures]
    evictions: list[Evictions]
    notes: list[str]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """Why there is no answer."""

    code: str
    message: str
    path: str | None = None
