"""Decisions: the immutable outcome for one pod, with its reasons."""

from __future__ import annotations

import enum

import msgspec

from domain.model.usage import Measured


class Outcome(enum.StrEnum):
    """What was decided for a pod: the one list, each with what it means; docs/events.md shows it."""

    says: str

    def __new__(cls, value: str, says: str) -> Outcome:
        """Make a member of its name and its sentence."""
        outcome = str.__new__(cls, value)
        outcome._value_, outcome.says = value, says
        return outcome

    BOUND = "bound", "berth chose the node"
    ADOPTED = "adopted", "the log said that the pod runs on the node"
    RESIZED = "resized", "a placed pod asks for something else now; it keeps its node and counts with that"
    ORPHANED = "orphaned", "the pod's node was deleted; the pod counts there again when the node returns"
    RETURNED = "returned", "the deleted node of the pod is there again"
    UNSCHEDULABLE = "unschedulable", "no node now; the pod waits"
    UNRESOLVABLE = "unresolvable", "no node even if every other pod left; the pod waits"
    NOMINATED = "nominated", "no node now; one is nominated for the pod, which waits until others have left"
    CLEARED = "cleared", "the pod has no nominated node any more; it waits"
    EVICTED = (
        "evicted",
        "the pod has to leave its node, for another pod or because the node is hot, and counts there until "
        "it has",
    )
    SPARED = "spared", "the pod does not have to leave its node any more"
    GANG_WAITING = (
        "gang-waiting",
        "too few of the pods of its gang exist or find a node, so that none of them is placed; the pod waits",
    )
    CONFLICT = (
        "conflict",
        "another worker changed the chosen node first; the pod waits and is tried again",
    )
    BIND_FAILED = (
        "bind-failed",
        "the pod could not be bound to the chosen node; it waits, and is tried on others",
    )
    RELEASED = "released", "the pod finished or was deleted; what it held is free"


def is_unresolvable(*, held: bool, nodes_count: int, hopeless: bool) -> bool:
    """Say whether a pod without a node would have none even if every other pod left.

    So it is where something about the pod itself holds it, or where on every node some filter refuses it for
    good (``hopeless``). Where there are no nodes, a node may come.
    """
    return held or (nodes_count > 0 and hopeless)


class Decision(msgspec.Struct, frozen=True, gc=False):
    """One row of the ledger's ``decisions``.

    ``decided_at_ms`` is log time (milliseconds since the epoch, of the record's append), so that it does not
    depend on when the worker ran; when the row was written is the ledger's business. ``event_at_ms`` is when
    the pod's event happened, as its producer claims; None where it claims nothing, or where it was not that
    event which led to the decision: the pod had waited. ``cycle_seq`` names the
    cycle row that explains it (0: none is needed). ``score`` is the node's total when it was chosen.
    ``devices`` are those of the node that the pod has, or had until now, by their indices.
    ``profile_revision`` is that of ``profile`` which was in force; None where no profile was asked, or where
    there is none of that name.
    """

    shard: int
    epoch: int
    seq: int
    pod_uid: str
    namespace: str
    name: str
    resource_version: int | None
    outcome: Outcome
    node: str | None
    decided_at_ms: int
    profile: str
    signature: bytes
    event_at_ms: int | None = None
    profile_revision: int | None = None
    reason: str = ""
    score: float | None = None
    cycle_seq: int = 0
    devices: tuple[int, ...] = ()


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A node that could have been chosen, with its total and its normalised score per plugin."""

    node: str
    score: float
    parts: dict[str, float]


class Extremes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Lowest and highest raw score of the feasible nodes, between which a score was normalised.

    None: no feasible node has one. A variance also has the number of nodes that count in it, and the sum of
    their metrics; otherwise both are 0. ``further`` are the same two of each further resource that it sums
    up.
    """

    low: float | None
    high: float | None
    nodes_count: int = 0
    metrics_sum: int = 0
    further: tuple[tuple[int, int], ...] = ()


class Basis(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """What the candidates' scores were computed from. Lists are in the order of the candidates.

    Where the profile reads no measured usage, only the first two candidates have sums, and the lists from
    ``node_versions`` on are empty: every decision pays for their size.

    Attributes
    ----------
    resources : tuple of str
        What filters and scores read as sums over a node. A name that begins with ``~`` is a sum of another
        kind (``domain.state.resources``).
    allocatable, requested : list of int
        One number per resource for the first candidate, then for the next one; in canonical units, without
        the pod itself.
    node_versions : list of int
        Each node's version just before the group's first pod: berth's own, as decisions name them.
    resource_versions : list
        The producer's version of each node's spec; None where it gave none.
    usage : list of dict
        Resource -> all that was measured of it.
    usage_at_ms : list of int
        Log time of the node's latest measurement; 0: there is none.
    extremes : dict
        Label of a score -> the extremes with which it was normalised.
    """

    resources: tuple[str, ...]
    allocatable: list[int]
    requested: list[int]
    node_versions: list[int] = []
    resource_versions: list[int | None] = []
    usage: list[dict[str, Measured]] = []
    usage_at_ms: list[int] = []
    extremes: dict[str, Extremes] = {}


class RuleSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A rule over what pods count, and what it saw when it refused nodes.

    Attributes
    ----------
    reason : str
        The reason code that nodes refused by it have.
    text : str
        The rule itself, such as ``topology.kubernetes.io/zone maxSkew 1 app=web``.
    count_max : int or None
        The highest count of a domain that passes. None: at least one pod is needed.
    count_min : int or None
        The lowest count of all domains, where the rule compares with it.
    domains : dict
        Some of the domains with more than ``count_max``, with their counts.
    """

    reason: str
    text: str
    count_max: int | None = None
    count_min: int | None = None
    domains: dict[str, int] = {}


class GangSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What an attempt saw of a gang of which no pod was placed.

    Attributes
    ----------
    name : str
        The PodGroup, as ``namespace/name``.
    min_member : int
        How many of its pods must have a node; 0 where there is no such PodGroup.
    placed_count, waiting_count : int
        Pods that have a node, and pods that wait and nothing else holds; of the shard that decides for it.
    found_count : int
        How many of those that wait would have had a node.
    missing : str
        The first pod that found none, as ``namespace/name``, whose reasons the attempt has; "" where none
        was tried.
    domain : str
        Where its pods are to be in one domain: the one in which most of them would have had a node, as
        ``key=value``.
    elsewhere_count : int
        Pods of it that have a node and do not count, as another worker decides for them.
    late_seconds : int
        For how long the gang has failed, where that is longer than its ``scheduleTimeoutSeconds``; else 0.
    """

    name: str
    min_member: int
    placed_count: int = 0
    waiting_count: int = 0
    found_count: int = 0
    missing: str = ""
    domain: str = ""
    elsewhere_count: int = 0
    late_seconds: int = 0


class Attempt(msgspec.Struct, kw_only=True):
    """One scheduling attempt of one group: what all decisions of the attempt share.

    ``reasons`` counts nodes per reason code of the first failing filter as the attempt's first pod saw them;
    ``reasons_at_failure`` as its first pod without a node did (empty when all were placed). ``unresolvable``
    says that at failure no node could have been made free by evicting. ``candidates`` are the best nodes,
    best first, as the first pod saw them, and ``basis`` what they were scored from. ``generation`` and
    ``looked_at_ms`` (log time) say when the nodes were looked at. Where an earlier verdict was repeated for
    pods of a parked group, ``repeated_at`` is the generation then, else 0. ``warnings`` name what of the
    pods had no say (``ignored:<code>``); unset where all of it had, so that the ledger does not pay for it.
    ``rules`` are those that refused nodes, as of the first pod without a node, or else as of the first pod;
    unset where none did. ``nodes_home`` is how many nodes were looked at, where these were the home nodes
    alone and all pods of the attempt found one; unset where all ``nodes_count`` were looked at. ``gang`` is
    set where no pod was placed for want of the others of its gang.

    The ledger keeps one row of it per shard: ``seq`` is that of the attempt's first decision there, and
    ``duration_us`` that of the worker's whole cycle, of which the attempt is a part.
    """

    shard: int = 0
    seq: int = 0
    signature: bytes
    profile: str
    profile_revision: int
    seed: int
    generation: int
    nodes_count: int
    feasible_count: int = 0
    unresolvable_count: int = 0
    reasons: dict[str, int] = {}
    reasons_at_failure: dict[str, int] = {}
    unresolvable: bool = False
    candidates: tuple[Candidate, ...] = ()
    pods_count: int = 0
    bound_count: int = 0
    duration_us: int = 0
    looked_at_ms: int = 0
    repeated_at: int = 0
    basis: Basis | None = None
    warnings: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    rules: tuple[RuleSeen, ...] | msgspec.UnsetType = msgspec.UNSET
    nodes_home: int | msgspec.UnsetType = msgspec.UNSET
    gang: GangSeen | msgspec.UnsetType = msgspec.UNSET

    @property
    def outcome_at_failure(self) -> Outcome:
        """What a pod is told that found no node in the attempt."""
        if self.gang is not msgspec.UNSET:
            return Outcome.GANG_WAITING
        return Outcome.UNRESOLVABLE if self.unresolvable else Outcome.UNSCHEDULABLE

    def again(self, pods_count: int, generation: int) -> Attempt:
        """Return the same verdict for further pods: they are told what was found when it was found."""
        return msgspec.structs.replace(
            self,
            repeated_at=generation if generation != self.generation else 0,
            pods_count=pods_count,
            bound_count=0,
        )
