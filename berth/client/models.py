"""The structs of the API's answers, as its contract says them.

Made by `python -m docs.build.client`; edit `services/api`, not this file. A text that is one of several
is a `str` here, and fields that a later API adds are passed over: the API may be newer.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

BILL_BYS = (
    "day",
    "namespace",
    "quality",
)
"""What the lines of a bill are of."""

BYS = (
    "cluster",
    "namespace",
    "node",
)
"""What a row of a roll-up is of."""

EXPORT_FORMATS = (
    "csv",
    "ndjson",
    "parquet",
)
"""How an export is written."""

OUTCOMES = (
    "adopted",
    "bind-failed",
    "bound",
    "cleared",
    "conflict",
    "evicted",
    "gang-waiting",
    "nominated",
    "orphaned",
    "released",
    "resized",
    "returned",
    "spared",
    "unresolvable",
    "unschedulable",
)
"""What was decided for a pod: the one list, each with what it means; docs/events.md shows it."""

WHATS = (
    "decisions",
    "attempts",
    "placements",
    "nodes",
    "config",
)
"""What can be exported."""


class AccessEntry(Struct, frozen=True, kw_only=True):
    """A request, or equal ones of one minute."""

    at: str
    """When it was answered, or the first of them (RFC 3339, UTC, the API's clock)"""

    last_at: str
    """When the last of them was answered (RFC 3339, UTC)"""

    times: int
    """How many equal requests of the minute this stands for"""

    caller: str | None
    """Who: key:<name> or anonymous; null: nobody was let in"""

    roles: list[str]
    """The caller's roles"""

    address: str
    """From where; `others`: one of too many strangers"""

    method: str
    """Method"""

    route: str
    """Path, with the names of its parameters; `unknown`: no route"""

    target: str
    """Path and query as asked, where somebody was let in"""

    status: int
    """Status of the answer; 0 with the code `lost`"""

    code: str
    """Code of the error; no-key and wrong-key are failed logins; lost: not noted"""

    duration_ms: int
    """Milliseconds that the answer took, of the slowest"""

    events: int | None
    """Events that the log took; null: none were sent"""

    positions: list[EventSpan]
    """Where the log has them"""


class AccessPage(Struct, frozen=True, kw_only=True):
    """Requests, those of the latest minute first."""

    items: list[AccessEntry]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class ActionPage(Struct, frozen=True, kw_only=True):
    """What agents did, the latest first."""

    items: list[NodeAction]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Asking(Struct, frozen=True, kw_only=True):
    """Who asks, and what the answers are limited to."""

    name: str | None
    """Name of the key; null: this API asks the caller for none"""

    roles: list[str]
    """Its roles"""

    namespaces: list[str] | None
    """The namespaces that it sees; null: all"""

    may: list[str]
    """What its roles may do, of write, read, export, audit, manage"""

    session_until: str | None
    """Until when the session lasts at most (RFC 3339, UTC); null: it is none"""


class AuditAnswer(Struct, frozen=True, kw_only=True):
    """Which of the ledger's invariants hold: of its present state, and of what came since the last audit."""

    ok: bool
    """Whether all hold but what is a warning"""

    at: str
    """When its snapshot was taken (RFC 3339, UTC, the database's clock)"""

    seconds: float
    """How long it took"""

    invariants: int
    """How many invariants were asked"""

    decisions: int
    """How many decisions were looked at"""

    records: int | None
    """Records of berth.decisions that were compared; null: not asked"""

    passed_over: list[PassedOverRecords]
    """Which of them were acknowledged (`--topic`)"""

    remembered: bool
    """Whether the next audit goes on where this one ended"""

    shards: list[AuditedShard]
    """What was looked at"""

    broken: list[BrokenInvariant]
    """The invariants that do not hold"""


class AuditedShard(Struct, frozen=True, kw_only=True):
    """What an audit looked at of a shard's history."""

    shard: int
    """Number of the shard"""

    decisions_from: int
    """First decision that was looked at"""

    decisions_next: int
    """Next after the last one"""

    batches_from: int | None
    """First batch of its journal; null: it has none"""

    batches_last: int | None
    """Last batch of its journal"""


class BillItem(Struct, frozen=True, kw_only=True):
    """A line of a bill."""

    cpu_core_hours: float
    """What they used of cpu, in cores times hours"""

    memory_gib_hours: float
    """What they used of memory, in GiB times hours"""

    lent_cpu_core_hours: float
    """How much of it was lent: what low pods used, and others beyond their requests"""

    lent_memory_gib_hours: float
    """The same of memory"""

    billed: float
    """What all of it costs, at the prices that held when it was used"""

    saved: float
    """How much less that is than on nodes without co-location"""

    name: str
    """The namespace, the quality (high, mid, low), or the day (UTC)"""


class BillPage(Struct, frozen=True, kw_only=True):
    """A bill, by name."""

    items: list[BillItem]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""

    by: str
    """What its lines are of"""

    since: str | None
    """From when on (RFC 3339, UTC); null: from the first hour that is kept"""

    until: str | None
    """Up to when, hours that begin before (RFC 3339, UTC); null: all"""

    total: BillSum
    """The sum of all lines, those of other pages included"""


class BillSum(Struct, frozen=True, kw_only=True):
    """What pods used, and what it costs."""

    cpu_core_hours: float
    """What they used of cpu, in cores times hours"""

    memory_gib_hours: float
    """What they used of memory, in GiB times hours"""

    lent_cpu_core_hours: float
    """How much of it was lent: what low pods used, and others beyond their requests"""

    lent_memory_gib_hours: float
    """The same of memory"""

    billed: float
    """What all of it costs, at the prices that held when it was used"""

    saved: float
    """How much less that is than on nodes without co-location"""


class BrokenInvariant(Struct, frozen=True, kw_only=True):
    """An invariant that does not hold."""

    name: str
    """Its name"""

    says: str
    """What should hold"""

    warning: bool
    """Whether it may have a cause outside of berth"""

    rows: list[dict[str, Any]]
    """The first 100 offenders"""


class Candidate(Struct, frozen=True, kw_only=True):
    """A node that could have been chosen."""

    node: str
    """The node"""

    score: float
    """Its total score: the sum of its parts, each times its weight"""

    parts: dict[str, float]
    """Its score per plugin, 0 to 100, before the weight"""

    inputs: CandidateInputs | None
    """What it was scored from: of all candidates where the profile reads measured usage, else of the
    first two
    """


class CandidateInputs(Struct, frozen=True, kw_only=True):
    """What a candidate was scored from."""

    node_version: int | None
    """The node's version just before; kept where the profile reads measured usage"""

    resource_version: int | None
    """Version of the node's spec that its producer gave; kept where usage is"""

    sums: dict[str, SumOfNode]
    """What filters and scores read as sums; names with ~ are explained in docs/explanations.md"""

    usage: UsageThen | None
    """What was measured, as the profile's plugins read it; null where they do not"""


class Change(Struct, frozen=True, kw_only=True):
    """One thing to change. Of the fields those are there that its kind has."""

    kind: str
    """What is changed; docs/why.md has a line for each kind"""

    does: str
    """The change in words"""

    node: str | None = None
    """The node that it is about"""

    zone: str | None = None
    """The zone of that node"""

    amounts: dict[str, str] | None = None
    """more-room: what the node lacks for one pod: Kubernetes quantities by resource name, such as cpu
    500m or memory 16Gi
    """

    uncordon: bool | None = None
    """repair-node: whether it is cordoned now"""

    taints: list[Taint] | None = None
    """tolerate: what to tolerate; repair-node: what goes when it is well"""

    gates: list[str] | None = None
    """lift-gates: the gates"""

    key: str | None = None
    """drop-selector, drop-requirement: label, or field, of nodes"""

    values: list[str] | None = None
    """drop-selector, drop-requirement: what it may be now"""

    operator: str | None = None
    """drop-requirement: In, NotIn, Exists, DoesNotExist, Gt, Lt"""

    excludes: int | None = None
    """drop-selector, drop-requirement: nodes without it"""

    at: int | None = None
    """drop-requirement, relax-spread, drop-term: its place in the list, from 0"""

    topology_key: str | None = None
    """relax-spread, drop-term: the label it is over"""

    max_skew: int | None = None
    """relax-spread: the smallest that does; absent: ScheduleAnyway is needed"""

    anti: bool | None = None
    """drop-term: whether the term is one of anti-affinity"""

    port: int | None = None
    """drop-port: the port of the node"""

    pods: list[str] | None = None
    """leave: the pods, as namespace/name, of namespaces that the key sees"""

    pods_of_others: int | None = None
    """leave: how many more leave, of namespaces that the key does not see"""

    below: int | None = None
    """leave: all of them have a priority below this one"""

    budgets: list[str] | None = None
    """leave: disruption budgets that do not let all of them go; seen ones alone"""

    budgets_of_others: bool | None = None
    """leave: whether a budget of a namespace that the key does not see does not, too"""

    priority: int | None = None
    """raise-priority: the lowest that does"""

    victims: int | None = None
    """raise-priority: how many pods would be evicted for all that it cures"""

    gang: str | None = None
    """smaller-gang: the gang, as namespace/name"""

    min_member: int | None = None
    """smaller-gang: the largest that does"""

    like: str | None = None
    """more-nodes: the node that a new one is like"""

    count: int | None = None
    """more-nodes: how many of them"""


class ChangedNode(Struct, frozen=True, kw_only=True):
    """A node that came, went or changed what it says of itself."""

    name: str
    """Name of the node"""

    change: str
    """came, went or changed"""

    fields: dict[str, Any]
    """Of a changed one, each field that differs: what it was `before` and `after`"""


class ChangedPod(Struct, frozen=True, kw_only=True):
    """A pod that is elsewhere, waits, or is gone."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    uid: str
    """Unique id of the pod"""

    change: str
    """placed; moved to another node; evicted: berth had it leave; returned: it waits again; gone: it was
    deleted or ended; waiting: it came and waits; orphaned: its node was deleted
    """

    before: str | None
    """Node that it counted on before; null: none"""

    after: str | None
    """Node that it counts on after; null: none"""


class ConfigObject(Struct, frozen=True, kw_only=True):
    """The latest of an object by which pods are selected, counted or ranked, or of a policy of nodes."""

    kind: str
    """Its kind, such as Service"""

    namespace: str | None
    """Its namespace; null: the kind has none"""

    name: str
    """Its name"""

    object: dict[str, Any]
    """What berth keeps of it: labels, a selector, or what it sets; of a CoLocationPolicy its whole
    `spec`, with what it leaves out
    """

    resource_version: int | None
    """Newest version of the object that was seen"""

    since: str
    """When its last event was folded (RFC 3339, UTC, log time)"""

    sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """


class ConfigPage(Struct, frozen=True, kw_only=True):
    """Configuration objects, by kind, namespace and name."""

    items: list[ConfigObject]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Cure(Struct, frozen=True, kw_only=True):
    """One or two changes with which a dry run of the engine placed pods of the group."""

    does: str
    """All of it in words"""

    changes: list[Change]
    """What to change: one thing, or two together"""

    pods: int
    """How many pods were placed"""

    tried: int
    """Of how many: those that wait and that the key sees, 1000 at most"""

    all: bool
    """Whether that is every pod that was tried"""


class CuresOfPod(Struct, frozen=True, kw_only=True):
    """What would cure pods that find no node."""

    pod: str
    """The first of them"""

    waiting: int
    """How many are like it"""

    cures: list[Cure]
    """Cures of all pods first, then the smallest first"""

    reached: bool
    """Whether the search came to its end; false: there may be smaller cures"""


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A record that could not be accepted."""

    id: str
    """<shard>-<seq>"""

    topic: str
    """Topic that it was read from"""

    partition: int
    """Partition that it was read from"""

    offset: int
    """Offset that it was read at"""

    key: str | None
    """Key of the record, where it is text"""

    code: str
    """Stable name of the reason"""

    path: str
    """Path of the field that is wrong"""

    message: str
    """What is wrong and what is allowed"""

    at: str
    """When the record was appended (RFC 3339, UTC)"""

    sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """

    raw_bytes: int
    """How many bytes are kept of the record, see docs/events.md"""

    raw_base64: str
    """These bytes; in a list the first ones, and /v1/deadletters/{id} has all"""

    raw_text: str | None
    """The same bytes as text, where they are UTF-8"""


class DeadLetterPage(Struct, frozen=True, kw_only=True):
    """Dead letters, latest first."""

    items: list[DeadLetter]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Decision(Struct, frozen=True, kw_only=True):
    """The immutable outcome for one pod: the record of berth.decisions, and where it is explained."""

    id: str
    """<shard>-<seq>"""

    shard: int
    """Shard that decided"""

    seq: int
    """Number of the decision in its shard, from 1 without a hole"""

    epoch: int
    """Ownership of the shard under which it was decided"""

    pod: PodRef
    """The pod"""

    outcome: str
    """bound: berth chose the node; adopted: the log said that the pod runs on the node; resized: a placed
    pod asks for something else now; it keeps its node and counts with that; orphaned: the pod's node
    was deleted; the pod counts there again when the node returns; returned: the deleted node of the
    pod is there again; unschedulable: no node now; the pod waits; unresolvable: no node even if every
    other pod left; the pod waits; nominated: no node now; one is nominated for the pod, which waits
    until others have left; cleared: the pod has no nominated node any more; it waits; evicted: the pod
    has to leave its node, for another pod or because the node is hot, and counts there until it has;
    spared: the pod does not have to leave its node any more; gang-waiting: too few of the pods of its
    gang exist or find a node, so that none of them is placed; the pod waits; conflict: another worker
    changed the chosen node first; the pod waits and is tried again; bind-failed: the pod could not be
    bound to the chosen node; it waits, and is tried on others; released: the pod finished or was
    deleted; what it held is free
    """

    node: str | None
    """The node, where there is one"""

    devices: list[int] = field(default_factory=list)
    """Devices (GPUs) of the node that the pod has, or had, from 0"""

    node_version: int | None = None
    """Change counter of the node after this decision"""

    decided_at: str
    """Log time of the decision (RFC 3339, UTC)"""

    event_at: str | None = None
    """When the pod's event happened, as its `at` claims"""

    sent_by: str | None = None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """

    recorded_at: str | None = None
    """When it became durable (RFC 3339, UTC, the database's clock)"""

    profile: str
    """Profile that the pod names"""

    profile_revision: int | None
    """Its revision then, where a profile was asked"""

    reason: str
    """Reason, where the outcome has one"""

    reasons: dict[str, int] = field(default_factory=dict)
    """Nodes per reason code, where no node was found"""

    warnings: list[str] = field(default_factory=list)
    """What of the pod had no say in it, as ignored:<code>"""

    score: float | None
    """Total score of the node when it was chosen"""

    preemption: Preemption | None = None
    """Which pods have to leave, and for which pod; null: none has to"""

    migration: Migration | None = None
    """evicted: from a hot node; null: from no such"""

    requests: dict[str, str] = field(default_factory=dict)
    """What the pod asked for, or held until it was released: Kubernetes quantities by resource name, such
    as cpu 500m or memory 16Gi
    """

    signature: str = ""
    """Hex signature of the equivalence group"""

    cycle: str | None = None
    """Id of the cycle that explains it"""


class DecisionPage(Struct, frozen=True, kw_only=True):
    """Decisions, in commit order of their shard."""

    items: list[Decision]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Diff(Struct, frozen=True, kw_only=True):
    """What differs between two moments; what came and went between them is not told."""

    from_: str | None = field(name="from")
    """Log time of the first moment; null: before all"""

    until: str | None
    """Log time of the second moment; null: before all"""

    nodes: list[ChangedNode]
    """Nodes, by name"""

    pods: list[ChangedPod]
    """Pods, by uid; those of the namespaces that the key sees"""

    before: Totals
    """Sums at the first moment"""

    after: Totals
    """Sums at the second moment"""

    more: bool
    """Whether there are more than the 10,000 that are told"""


class Error(Struct, frozen=True, kw_only=True):
    """The one shape of all errors."""

    error: ErrorBody
    """What went wrong"""


class ErrorBody(Struct, frozen=True, kw_only=True):
    """What went wrong."""

    code: str
    """Stable name of the error, for programs"""

    message: str
    """What was wrong and what to do, for people"""

    path: str | None = None
    """Path of the field that is wrong, where there is one"""

    details: list[ErrorDetail] | None = None
    """All that is wrong, where it is several"""


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    index: int | None = None
    """Position of the bad event in the request, from 0; absent: it is no event"""

    path: str
    """Path of the field inside the event or the request"""

    message: str
    """What is wrong and what is allowed"""


class Event(Struct, frozen=True, kw_only=True):
    """A watch event: what happened to one object. Unknown fields are ignored."""

    type: str
    """ADDED, MODIFIED or DELETED; of a pod also BIND_FAILED"""

    object: dict[str, Any]
    """v1 Node or v1 Pod as in Kubernetes, or berth/v1 SchedulingProfile or NodeUsage"""

    at: str | None = None
    """When it happened (RFC 3339, UTC); absent: when it arrived"""

    id: str | None = None
    """Unique id: what was accepted is not sent again; another event with it is an error"""


class EventList(Struct, frozen=True, kw_only=True):
    """Events to append to the log; a bare list is accepted as well, and a single event."""

    events: list[Event]
    """The events, in order"""


class EventSpan(Struct, frozen=True, kw_only=True):
    """Neighbouring records of one partition of the log."""

    topic: str
    """Topic"""

    partition: int
    """Partition"""

    first: int
    """Offset of the first record"""

    last: int
    """Offset of the last record"""


class EvictionsOfPod(Struct, frozen=True, kw_only=True):
    """The pods that would have to leave for one that finds no node and may preempt; none is told to."""

    pod: str
    """The pod"""

    nodes_helped: int
    """On how many nodes evicting pods of lower priority would help"""

    nodes: list[NodeEvicted]
    """The best of these nodes, the one that would be taken first"""


class ExplainedAttempt(Struct, frozen=True, kw_only=True):
    """One scheduling attempt of one equivalence group."""

    id: str
    """<shard>-<seq of its first decision>"""

    profile: str
    """Profile that was used"""

    profile_revision: int
    """Revision of the profile"""

    weights: dict[str, float]
    """Weight of each score of the profile, by the name in `parts`"""

    seed: int
    """Seed of tie-breaking"""

    generation: int
    """Generation of the snapshot that was looked at"""

    looked_at: str | None
    """When it was looked at (RFC 3339, UTC, log time)"""

    repeated_at_generation: int | None
    """Generation at which the verdict was only repeated, for further pods of a parked group; null: it is
    no repetition
    """

    nodes: int
    """Nodes that were there"""

    nodes_home: int | None
    """Nodes that were looked at, where these were the home nodes alone and all pods of the attempt found
    one; null: all nodes were
    """

    feasible: int
    """Nodes that passed all filters"""

    unresolvable: int
    """Nodes that would not fit even if all their pods left"""

    reasons: dict[str, int]
    """Nodes per reason code of the first filter that failed, for the first pod"""

    rules: list[RuleSeen]
    """Rules over other pods that refused nodes, for the first pod without a node, or else the first"""

    candidates: list[Candidate]
    """Best nodes, best first, as the first pod saw them"""

    extremes: dict[str, Extremes]
    """What scores were normalised with, by score"""

    pods: int
    """Pods of the group in this attempt"""

    bound: int
    """Pods that got a node"""

    duration_us: int
    """Microseconds in which the worker placed all pods of the batch, this attempt's among them"""


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a decision was what it was."""

    decision: Decision
    """The decision"""

    requests: dict[str, str]
    """What the pod asks for: Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"""

    template: dict[str, Any]
    """All of the pod that mattered for placing it, in canonical units; empty fields left out"""

    quality: str | None = None
    """What the pod was promised, by its QoS class: high (Guaranteed), mid (Burstable) or low
    (BestEffort); null: its template is not kept any more
    """

    reasons: dict[str, int]
    """Nodes per reason code, as the summary counts them: of a pod that waits, all nodes when its turn
    came; of a placed one, those that could not take the first pod of its group
    """

    cycle: ExplainedAttempt | None
    """The attempt behind it; null where none was needed"""

    profile: str | None
    """Where this API shows the revision of the profile that was used"""

    summary: str
    """The same in words"""


class Extremes(Struct, frozen=True, kw_only=True):
    """What the raw values of a score were normalised with."""

    low: float | None
    """Lowest raw score of the feasible nodes; null: none was a number"""

    high: float | None
    """Highest raw score of the feasible nodes; null: as for low"""

    nodes: int
    """Of a variance: nodes that count in it"""

    metrics_sum: int
    """Of a variance: the sum of their metrics, in units of 2^-20"""

    further: list[tuple[int, int]]
    """Of variances in sum: nodes and sum of metrics of each resource but the first"""


class Field(Struct, frozen=True, kw_only=True):
    """All live nodes as columns: what stands at one index in each list is of one node."""

    at: str | None
    """Log time of the moment that was asked for; null: now, or before all"""

    by: str | None
    """Label whose values group the nodes; null: none does"""

    groups: list[FieldGroup]
    """Which nodes have which value, in the order of the lists"""

    names: list[str]
    """Names of the nodes, by group, then by name"""

    resources: list[FieldColumn]
    """The columns, in the order in which they were asked for"""

    unschedulable: list[int]
    """Indices of the nodes that take no new pods (cordoned)"""

    not_ready: list[int]
    """Indices of the nodes that say that they are not ready"""

    tainted: list[int]
    """Indices of the nodes with a taint that keeps pods off: NoSchedule or NoExecute"""

    hot: list[int] | None
    """Indices of the nodes that are hot; null where measurements were not asked for, and of the past"""


class FieldColumn(Struct, frozen=True, kw_only=True):
    """One resource, with an entry for each node."""

    name: str
    """The resource. Amounts of cpu are in thousandths of a core, of nvidia.com/gpu in thousandths of a
    device, of memory in bytes, of others in their own units
    """

    allocatable: list[int]
    """What each node offers"""

    requested: list[int]
    """What the pods of each node ask for together"""

    measured: list[float | None] | None
    """What was measured on each node last, in percent of its capacity, null where nothing was; instead of
    a list null where it was not asked for, and of the past
    """


class FieldGroup(Struct, frozen=True, kw_only=True):
    """Nodes in a row with one value of the label."""

    value: str | None
    """Value of the label; null: these nodes do not have it"""

    nodes: int
    """How many nodes these are"""


class Figures(Struct, frozen=True, kw_only=True):
    """What was measured of one resource of a node, in percent of what the node has; null: not measured."""

    avg: float | None
    """Average over the window"""

    std: float | None
    """Standard deviation over the window (of the population)"""

    latest: float | None
    """Latest value in the window"""

    peak_yesterday: float | None
    """Highest value of the UTC day before the latest one"""


class Gang(Struct, frozen=True, kw_only=True):
    """The pods of a PodGroup, or of a Workload's group, which are placed together or not at all."""

    namespace: str
    """Namespace of the gang"""

    name: str
    """Name of the PodGroup, or `WORKLOAD:GROUP`, or `WORKLOAD:GROUP:REPLICA`"""

    min_member: int | None
    """So many of its pods must have a node; null: nothing says so"""

    members: int
    """Pods that name it and have a node or wait for one"""

    placed: int
    """How many of them have a node"""

    waiting: int
    """How many of them wait"""

    why: str | None
    """What those that wait lack, in words; null: none waits"""

    reasons: dict[str, int]
    """Nodes per reason code at the last attempt, of the first pod without a node"""

    since: str | None
    """Since when the oldest of those waits (RFC 3339, UTC, log time); null: none waits"""


class GangDetail(Struct, frozen=True, kw_only=True):
    """A gang with its pods, and the rest of its PodGroup."""

    namespace: str
    """Namespace of the gang"""

    name: str
    """Name of the PodGroup, or `WORKLOAD:GROUP`, or `WORKLOAD:GROUP:REPLICA`"""

    min_member: int | None
    """So many of its pods must have a node; null: nothing says so"""

    members: int
    """Pods that name it and have a node or wait for one"""

    placed: int
    """How many of them have a node"""

    waiting: int
    """How many of them wait"""

    why: str | None
    """What those that wait lack, in words; null: none waits"""

    reasons: dict[str, int]
    """Nodes per reason code at the last attempt, of the first pod without a node"""

    since: str | None
    """Since when the oldest of those waits (RFC 3339, UTC, log time); null: none waits"""

    found: int | None
    """How many would have had a node at the last attempt that is kept; null: none is"""

    missing: str | None
    """The first pod that found none then, as namespace/name; null: none was tried"""

    domain: str | None
    """The domain in which most would have had one; null: they need not be in one"""

    min_resources: dict[str, str]
    """What must be free for it in all: Kubernetes quantities by resource name, such as cpu 500m or memory
    16Gi
    """

    schedule_timeout_seconds: int | None
    """After so long without success it is tried less often; null: it does not say"""

    topology_key: str | None
    """Node label of which all have one value; null: any node"""

    topology_mode: str | None
    """`required`, or `preferred`: else anywhere; null: no key"""

    pods: list[Pod]
    """Its pods, by uid"""

    pods_next: str | None
    """There are more: `cursor` for /v1/pods with this gang; null: no"""


class GangPage(Struct, frozen=True, kw_only=True):
    """Gangs that have a PodGroup, or pods that wait for one, by namespace and name."""

    items: list[Gang]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Health(Struct, frozen=True, kw_only=True):
    """Whether this process lives (`/healthz`), or the deployment can decide (`/readyz`)."""

    status: str
    """ok or not-ready"""

    checks: dict[str, str]
    """Per part: ok, or what is wrong and what to do"""

    lag: list[ShardLag] = field(default_factory=list)
    """Per shard, where ledger and log answer"""

    alarms: list[str] = field(default_factory=list)
    """What is amiss though pods are placed; docs/operations.md"""


class Heat(Struct, frozen=True, kw_only=True):
    """Whether a node is hot: too busy for long, so that it takes no mid or low pods."""

    hot: bool
    """Whether it is"""

    why: list[str]
    """Signs of its latest bad sample, in plain words; empty: it is not hot"""


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One thing that happened. The field of its kind has all of it, as the other answers show it."""

    at: str
    """Log time (RFC 3339, UTC); of owners and log faults the database's"""

    recorded_at: str | None
    """When it became durable (RFC 3339, UTC); null: it is not kept"""

    kind: str
    """decision, attempt, action, spec, owner, log-fault or revision: what happened"""

    id: str | None
    """Its id, or its number, where it has one"""

    says: str
    """What happened, in a sentence"""

    links: dict[str, str] = field(default_factory=dict)
    """Where the API shows what it names: by what that is to it"""

    decision: Decision | None = None
    """Of a decision"""

    attempt: RefusedAttempts | None = None
    """Of attempts that refused the pod alike"""

    action: NodeAction | None = None
    """Of what an agent did"""

    spec: NodeChange | None = None
    """Of a node that its producer changed"""

    facts: dict[str, Any] = field(default_factory=dict)
    """Of the other kinds: what the ledger keeps of it"""


class HistoryPage(Struct, frozen=True, kw_only=True):
    """A part of a history: by log time, of one moment by when it was recorded."""

    of: str
    """What it is the history of"""

    why_now: WhyNow | None = None
    """Of a pod that is placed, on the first page"""

    journal: JournalSpan | None = None
    """Of a shard: what is kept of what its owners did"""

    items: list[HistoryEntry]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class HostedWorkload(Struct, frozen=True, kw_only=True):
    """What controls the pods that are scaled."""

    kind: str
    """Its kind, such as ReplicaSet"""

    name: str
    """Its name; its namespace is that of the object"""


class Ingested(Struct, frozen=True, kw_only=True):
    """What became of the events of a request."""

    accepted: int
    """Events appended to the log by this request"""

    duplicates: int
    """Events skipped because they were accepted before, by their id"""

    invalid: int
    """Events refused; above 0 only with partial=true"""

    errors: list[ErrorDetail]
    """Why events were refused"""

    positions: list[Position]
    """Where the log has the accepted events: the last of each run"""

    folded: bool | None = None
    """With wait: whether all took effect within the time"""

    deadletters: list[DeadLetter] | None = None
    """Folded: the events that a worker refused"""

    older: list[str] | None = None
    """Folded: pods of the request of which a higher resourceVersion stands"""

    decisions: list[Decision] | None = None
    """With until=decided, once folded: the last decision of each pod"""


class JournalSpan(Struct, frozen=True, kw_only=True):
    """What is kept of a shard's journal."""

    first: int
    """Number of the first batch that is kept"""

    last: int
    """Number of the last batch"""

    missing: int
    """Batches between them that are not kept"""


class Key(Struct, frozen=True, kw_only=True):
    """What a key allows; the key itself is not kept. ``priority_max`` is the one that holds; null: any."""

    name: str
    """Who holds it; several keys may share a name"""

    roles: list[str]
    """Of producer, operator, auditor, agent and admin"""

    namespaces: list[str] | None = None
    """Only these namespaces; null: all"""

    kinds: list[str] | None = None
    """What it sends; null: what its roles send"""

    events_per_second: int | None = None
    """Events that the name may send; null: any number"""

    bytes_per_second: int | None = None
    """Bytes that the name may send; null: any number"""

    requests_at_once: int | None = None
    """Requests under way; null: as the API is set"""

    priority_max: int | None = None
    """Highest priority of its pods; null: 0 with namespaces or priority_classes, else 1000000000"""

    priority_classes: list[str] | None = None
    """Priority classes that its pods may name; null: none with namespaces or priority_max, else all but
    the system's
    """

    node: str | None = None
    """Of the role agent: the one node that it is for"""

    created_at: str
    """When it was made (RFC 3339, UTC)"""

    revoked_at: str | None
    """When it was revoked (RFC 3339, UTC); null: it is good"""


class KeyPage(Struct, frozen=True, kw_only=True):
    """All keys, oldest first."""

    items: list[Key]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class KeyRevoked(Struct, frozen=True, kw_only=True):
    """What was revoked."""

    name: str
    """Whose keys"""

    revoked: int
    """How many there were"""


class KeyToMake(Struct, frozen=True, kw_only=True):
    """What a key is to allow; docs/keys.md says what each role may do."""

    name: str
    """Who holds it; several keys may share a name"""

    roles: list[str]
    """Of producer, operator, auditor, agent and admin"""

    namespaces: list[str] | None = None
    """Only these namespaces; null: all"""

    kinds: list[str] | None = None
    """What it sends; null: what its roles send"""

    events_per_second: int | None = None
    """Events that the name may send; null: any number"""

    bytes_per_second: int | None = None
    """Bytes that the name may send; null: any number"""

    requests_at_once: int | None = None
    """Requests under way; null: as the API is set"""

    priority_max: int | None = None
    """Highest priority of its pods; null: 0 with namespaces or priority_classes, else 1000000000"""

    priority_classes: list[str] | None = None
    """Priority classes that its pods may name; null: none with namespaces or priority_max, else all but
    the system's
    """

    node: str | None = None
    """Of the role agent: the one node that it is for"""


class Looked(Struct, frozen=True, kw_only=True):
    """What a moment means: where it is, and what there is a record of by then."""

    at: str
    """The time that was asked for; of a batch, its log time"""

    log_time: str | None
    """Log time of the last record by then; null: before all"""

    begins: str | None
    """Before all: log time of the first record; null: there is none"""


class Measured(Struct, frozen=True, kw_only=True):
    """Figures of one resource of a node, and how many samples they rest on."""

    avg: float | None
    """Average over the window"""

    std: float | None
    """Standard deviation over the window (of the population)"""

    latest: float | None
    """Latest value in the window"""

    peak_yesterday: float | None
    """Highest value of the UTC day before the latest one"""

    samples: int
    """Samples that are kept of the window"""


class Migration(Struct, frozen=True, kw_only=True):
    """Why a pod has to leave a hot node, and where another one like it would go."""

    from_: str = field(name="from")
    """The hot node"""

    why: list[str]
    """By what it is hot, in plain words"""

    relief: dict[str, int]
    """What the pod is expected to use: cpu in thousandths of a core, memory in bytes"""

    to: str
    """Where a dry run found room for it; nothing is kept free there"""

    shard: int | None = None
    """Partition of berth.pods in which its end is said; null: its key's"""


class MoreOfPod(Struct, frozen=True, kw_only=True):
    """How many more of a pod fit."""

    pod: str
    """The pod"""

    count: int
    """How many more of it, beside all that is planned; 10000 at most"""

    nodes: int
    """On how many nodes"""

    stopped_by: dict[str, int]
    """Nodes per reason code for the next one; {}: more fit"""

    why: str
    """The same in words"""


class NewKey(Struct, frozen=True, kw_only=True):
    """A key that was made."""

    name: str
    """Who holds it"""

    key: str
    """The key, which is shown this once"""


class NewSession(Struct, frozen=True, kw_only=True):
    """A session that was begun."""

    token: str
    """Show it as a key; it is shown this once"""

    until: str
    """Until when it lasts at most (RFC 3339, UTC); it ends with its key before"""


class Node(Struct, frozen=True, kw_only=True):
    """A node and how full it is."""

    name: str
    """Name of the node"""

    version: int | None
    """Counts the commits that changed the node; null: of the past it is not kept"""

    deleted: bool
    """Whether the node is gone"""

    ready: bool | None
    """What its Ready condition says; null where it says nothing"""

    unschedulable: bool
    """Whether the node takes no new pods (cordoned)"""

    labels: dict[str, str]
    """Labels of the node"""

    taints: list[Taint]
    """Taints of the node"""

    allocatable: dict[str, str]
    """What the node offers: Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"""

    requested: dict[str, str]
    """Sum of the requests of its pods, in the same units"""

    devices: list[int]
    """Thousandths taken of each device (GPU) that it offers, in order"""

    overcommitted: list[str]
    """Resources of which its pods hold more than it offers"""

    free: dict[str, str]
    """allocatable minus requested, at least 0; GPUs: those unused"""

    spec_changed_at: str
    """When the node last changed its spec (RFC 3339, UTC)"""

    spec_sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted. Null, too, for a key that has namespaces
    """


class NodeAction(Struct, frozen=True, kw_only=True):
    """What the agent of a node did there; several acts of one kind in a row are one, the last of them."""

    id: int
    """Of two, the later one has the higher id"""

    node: str
    """The node"""

    at: str
    """When it was done, as the agent says (RFC 3339, UTC)"""

    action: str
    """idle, weight, quota, memory-high, reclaim or evict"""

    quality: str
    """Quality of the box that was changed, or of the pod that was ended"""

    amount: str | None
    """What the box has from then on, or what was taken back; null: no bound, or none (Kubernetes
    quantities by resource name, such as cpu 500m or memory 16Gi)
    """

    times: int
    """Acts that this one stands for"""

    reason: str
    """Why"""

    policy: str | None
    """Policy that ordered it, as name@version; null: the defaults"""

    pod: str | None
    """The pod that was ended, as namespace/name; null: none was"""

    uid: str | None
    """Its unique id"""

    sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted. Null, too, for a key that has namespaces
    """


class NodeChange(Struct, frozen=True, kw_only=True):
    """A node as its producer said it: the fields of `/v1/nodes/{name}` that do not change with its pods."""

    name: str
    """Name of the node"""

    deleted: bool
    """Whether it was deleted"""

    ready: bool | None
    """What its Ready condition says; null where it says nothing"""

    unschedulable: bool
    """Whether it is cordoned"""

    labels: dict[str, str]
    """Its labels"""

    taints: list[Taint]
    """Its taints"""

    allocatable: dict[str, str]
    """What it offers: Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"""

    spec_changed_at: str
    """Log time of the batch that took it (RFC 3339, UTC)"""

    spec_sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """


class NodeDetail(Struct, frozen=True, kw_only=True):
    """A node with the pods on it, what was measured on it, and what its agent did."""

    name: str
    """Name of the node"""

    version: int | None
    """Counts the commits that changed the node; null: of the past it is not kept"""

    deleted: bool
    """Whether the node is gone"""

    ready: bool | None
    """What its Ready condition says; null where it says nothing"""

    unschedulable: bool
    """Whether the node takes no new pods (cordoned)"""

    labels: dict[str, str]
    """Labels of the node"""

    taints: list[Taint]
    """Taints of the node"""

    allocatable: dict[str, str]
    """What the node offers: Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"""

    requested: dict[str, str]
    """Sum of the requests of its pods, in the same units"""

    devices: list[int]
    """Thousandths taken of each device (GPU) that it offers, in order"""

    overcommitted: list[str]
    """Resources of which its pods hold more than it offers"""

    free: dict[str, str]
    """allocatable minus requested, at least 0; GPUs: those unused"""

    spec_changed_at: str
    """When the node last changed its spec (RFC 3339, UTC)"""

    spec_sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted. Null, too, for a key that has namespaces
    """

    actions: list[NodeAction]
    """What its agent did, the latest 10 first, see /v1/actions"""

    usage: Usage | None
    """Measured usage; null where nothing was measured"""

    policy: str | None = None
    """CoLocationPolicy that holds there, as name@version; null: the defaults"""

    heat: Heat | None = None
    """Whether it is hot; null: it was never measured by quality"""

    moves: list[NodeMove] = field(default_factory=list)
    """Pods that have to leave it as it is hot, by uid"""

    pods: list[Pod]
    """Pods that count on the node, by uid"""

    pods_next: str | None
    """There are more: `cursor` for /v1/pods with this node and phase=bound; null: no"""

    others: dict[str, str] | None
    """Sum of the requests of the pods that the key does not see, and how many they are, as `pods`; null:
    it sees all
    """


class NodeEvicted(Struct, frozen=True, kw_only=True):
    """A node that would take a pod once others have left it."""

    node: str
    """The node"""

    victims: list[str]
    """Pods that would have to leave, as namespace/name, of namespaces that the key sees"""

    victims_of_others: int
    """How many more, of namespaces that the key does not see"""

    violations: int | None
    """How many of them break a disruption budget; null: not for a key with namespaces"""

    highest_priority: int | None
    """The highest priority among them; null: likewise, or no pod has to leave"""


class NodeMove(Struct, frozen=True, kw_only=True):
    """A pod that has to leave a hot node and has not left it yet."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    uid: str
    """Unique id of the pod"""

    to: str
    """Where a dry run found room for it; nothing is kept free there"""

    since: str
    """When it was told to leave (RFC 3339, UTC, log time)"""

    expires: str
    """When it may stay if it has not left (RFC 3339, UTC, log time)"""


class NodePage(Struct, frozen=True, kw_only=True):
    """Live nodes, by name."""

    items: list[Node]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Nomination(Struct, frozen=True, kw_only=True):
    """A pod that waits for a node of its own: one that is nominated for it until others have left."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    uid: str
    """Unique id of the pod"""

    priority: int
    """Its priority"""

    node: str
    """The node for which it is nominated"""

    victims: list[str]
    """Pods that still have to leave it, as namespace/name, of the namespaces that the key sees"""

    since: str
    """Since when (RFC 3339, UTC, log time)"""

    expires: str
    """When the nomination ends if no pod leaves (RFC 3339, UTC, log time)"""

    shard: int
    """Shard that decides for the pod"""


class NominationPage(Struct, frozen=True, kw_only=True):
    """Pods that are nominated, by uid."""

    items: list[Nomination]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Offset(Struct, frozen=True, kw_only=True):
    """How far a shard has read a partition."""

    topic: str
    """Topic"""

    partition: int
    """Partition"""

    next_offset: int
    """Offset of the next record; all before it took effect"""


class Owner(Struct, frozen=True, kw_only=True):
    """A worker that owned a shard, from when to when."""

    shard: int
    """Number of the shard, from 0"""

    owner: str
    """Name of the worker"""

    epoch: int
    """Counts the owners of the shard"""

    from_: str = field(name="from")
    """When it took the shard (RFC 3339, UTC, the ledger's clock)"""

    to: str | None
    """When it gave it back, lost it, or its lease ran out (RFC 3339, UTC); null: it owns it"""


class OwnerPage(Struct, frozen=True, kw_only=True):
    """Owners of shards, the latest first."""

    items: list[Owner]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class PassedOverRecords(Struct, frozen=True, kw_only=True):
    """Records of a partition of berth.decisions that the ledger does not have, which were acknowledged."""

    shard: int
    """Number of the shard, and of the partition"""

    records: int
    """How many"""

    first_offset: int
    """Offset of the first one"""

    last_offset: int
    """Offset of the last one"""

    acknowledged_at: str | None
    """When (RFC 3339, UTC); null: not known"""


class PendingGroup(Struct, frozen=True, kw_only=True):
    """Equal pods that wait, and why."""

    signature: str
    """Hex signature of the equivalence group"""

    shard: int
    """Shard that decides for them"""

    count: int
    """Number of pods that wait"""

    reasons: dict[str, int]
    """Nodes per reason code at the last attempt"""

    unresolvable: bool
    """Whether no node would fit even if all other pods left"""

    since: str
    """Since when the oldest waits (RFC 3339, UTC, log time)"""

    tried_at: str | None
    """When they were last tried (RFC 3339, UTC, log time)"""

    cycle: str | None
    """Id of the last attempt's cycle"""

    requests: dict[str, str]
    """What each pod asks for: Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"""

    profile: str
    """Profile that the pods name"""

    priority: int
    """Priority of the pods"""

    examples: list[str]
    """The first few pods, as namespace/name"""

    waits_seconds: int
    """For how long the oldest waits: until now by the clock of the API, or until `at`"""

    attempts: int | None
    """Attempts that failed meanwhile, as far as they are kept; null: in /v1/pods, and for a key that does
    not see all namespaces
    """

    groups_before: int | None
    """Groups of the shard before it, by priority and oldest pod; null: in /v1/pods, and for a key that
    does not see all namespaces
    """

    pods_before: int | None
    """How many pods these have; null: in /v1/pods, and for a key that does not see all namespaces"""


class PendingPage(Struct, frozen=True, kw_only=True):
    """Groups of pending pods, largest first; one that grows or shrinks meanwhile may be missed."""

    items: list[PendingGroup]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Placement(Struct, frozen=True, kw_only=True):
    """A time span in which a pod counted on a node."""

    node: str
    """The node"""

    uid: str
    """Unique id of the pod"""

    adopted: bool
    """Whether the pod arrived already bound"""

    from_: str = field(name="from")
    """Start of the span (RFC 3339, UTC, log time)"""

    to: str | None
    """End of the span; null: still there"""

    decision: str
    """Id of the decision that opened it"""


class PlanAnswer(Struct, frozen=True, kw_only=True):
    """A plan: where pods would go, and why."""

    looked_at: str | None
    """The ledger as of then (RFC 3339, UTC, log time); null: before all"""

    nodes: int
    """Nodes that there are, those of the manifests included"""

    placed: int
    """How many pods find a node"""

    waiting: int
    """How many do not"""

    pods: list[PlannedPod]
    """The pods, in the order of decision"""

    attempts: list[PlannedAttempt]
    """What decided them"""

    more: list[MoreOfPod]
    """With how_many: of 5 different pods at most, in their order"""

    cures: list[CuresOfPod]
    """With cures: likewise, of pods that find no node"""

    evictions: list[EvictionsOfPod]
    """Likewise, of pods that would find a node if others left it"""

    notes: list[str]
    """What was passed over, and what has no say"""


class PlanToMake(Struct, frozen=True, kw_only=True):
    """What is to be planned."""

    manifests: str
    """Pods, workloads and what they need, as YAML or JSON: documents, lists or watch events"""

    at: str | None = None
    """Against this moment (log time), as `at` of other questions; null: now"""

    profile: str | None = None
    """A profile in force that places all pods; null: each its own"""

    replicas: int | None = None
    """So many copies of each pod, and pods of each workload; null: as they say"""

    how_many: bool = False
    """Whether to count how many more of each pod fit"""

    cures: bool = False
    """Whether to search what would cure the pods that find no node"""


class PlannedAttempt(Struct, frozen=True, kw_only=True):
    """An attempt of equal pods."""

    explained: ExplainedAttempt
    """What was looked at, and the best nodes"""

    reasons: dict[str, int]
    """Nodes per reason code for the first pod without a node"""


class PlannedPod(Struct, frozen=True, kw_only=True):
    """What would become of a pod."""

    pod: str
    """The pod, as namespace/name"""

    outcome: str
    """bound, unschedulable, unresolvable or gang-waiting"""

    node: str | None
    """Where it would go; null: nowhere"""

    score: float | None
    """Total score of that node"""

    why: str
    """Why it finds no node, in words; empty: it finds one"""

    attempt: int
    """Place in `attempts` of the attempt that decided it, from 0"""


class Pod(Struct, frozen=True, kw_only=True):
    """A pod and where it is."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    uid: str
    """Unique id of the pod; namespace/name when its events carry none"""

    resource_version: int | None
    """Version of the pod that was last folded"""

    phase: str
    """bound, orphaned (its node was deleted), pending or released (gone)"""

    node: str | None
    """Node that the pod counts on"""

    adopted: bool
    """Whether the pod arrived already bound"""

    since: str
    """Since when it is in this phase (RFC 3339, UTC, log time)"""

    requests: dict[str, str]
    """What it asks for, or held until its release, effectively: Kubernetes quantities by resource name,
    such as cpu 500m or memory 16Gi
    """

    devices: list[int]
    """Devices (GPUs) of its node that it has, from 0"""

    qos_class: str | None
    """QoS class: Guaranteed, Burstable or BestEffort; null: the pod is gone"""

    quality: str | None
    """What the pod was promised, by its QoS class: high (Guaranteed), mid (Burstable) or low
    (BestEffort); null: the pod is gone
    """

    priority: int | None
    """Priority of the pod; null: the pod is gone"""

    silent_containers: int | None
    """Containers that say neither request nor limit of cpu; null: the pod is gone"""

    labels: dict[str, str]
    """Labels of the pod"""

    signature: str
    """Hex signature of the equivalence group, see /v1/pending"""

    shard: int
    """Shard that decides for the pod"""

    decision: str | None
    """Id of the decision that placed it, or that said that it is gone"""


class PodAttempts(Struct, frozen=True, kw_only=True):
    """Why a pod was refused: the attempts of its group while it waited, oldest first."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    at: str | None
    """The moment that was asked for (RFC 3339, UTC); null: all of the time"""

    state: str
    """waiting, bound or gone at that moment (now, where none was asked for)"""

    node: str | None
    """Where it was then"""

    items: list[RefusedAttempts]
    """What is kept of them, oldest first"""

    summary: str
    """The same in words"""


class PodDetail(Struct, frozen=True, kw_only=True):
    """A pod with its history."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    uid: str
    """Unique id of the pod; namespace/name when its events carry none"""

    resource_version: int | None
    """Version of the pod that was last folded"""

    phase: str
    """bound, orphaned (its node was deleted), pending or released (gone)"""

    node: str | None
    """Node that the pod counts on"""

    adopted: bool
    """Whether the pod arrived already bound"""

    since: str
    """Since when it is in this phase (RFC 3339, UTC, log time)"""

    requests: dict[str, str]
    """What it asks for, or held until its release, effectively: Kubernetes quantities by resource name,
    such as cpu 500m or memory 16Gi
    """

    devices: list[int]
    """Devices (GPUs) of its node that it has, from 0"""

    qos_class: str | None
    """QoS class: Guaranteed, Burstable or BestEffort; null: the pod is gone"""

    quality: str | None
    """What the pod was promised, by its QoS class: high (Guaranteed), mid (Burstable) or low
    (BestEffort); null: the pod is gone
    """

    priority: int | None
    """Priority of the pod; null: the pod is gone"""

    silent_containers: int | None
    """Containers that say neither request nor limit of cpu; null: the pod is gone"""

    labels: dict[str, str]
    """Labels of the pod"""

    signature: str
    """Hex signature of the equivalence group, see /v1/pending"""

    shard: int
    """Shard that decides for the pod"""

    decision: str | None
    """Id of the decision that placed it, or that said that it is gone"""

    group: PendingGroup | None
    """While it waits: its equivalence group, and why"""

    gang: str | None
    """Its gang (namespace/name), see /v1/gangs; null: it has none, or is gone"""

    decisions: list[Decision]
    """Decisions about pods of this name, latest first"""

    placements: list[Placement]
    """Where pods of this name were, latest first"""


class PodPage(Struct, frozen=True, kw_only=True):
    """Live pods, by uid."""

    items: list[Pod]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class PodRef(Struct, frozen=True, kw_only=True):
    """Which pod a decision is about."""

    namespace: str
    """Namespace of the pod"""

    name: str
    """Name of the pod"""

    uid: str
    """Unique id of the pod"""

    resource_version: int | None
    """Version of the pod that was decided on"""


class Position(Struct, frozen=True, kw_only=True):
    """The last of some neighbouring records in the log."""

    topic: str
    """Topic"""

    partition: int
    """Partition"""

    offset: int
    """Offset of the record"""


class Preemption(Struct, frozen=True, kw_only=True):
    """Which pods have to leave, and for which. A key with namespaces does not see what names other pods."""

    victims: list[str] = field(default_factory=list)
    """nominated: uids of the pods that have to leave the node"""

    violations: int | None = None
    """nominated: how many disruption budgets that breaks"""

    expires_at: str | None = None
    """nominated: when the nomination ends (RFC 3339, UTC, log time)"""

    preemptor: str | None = None
    """evicted, spared: uid of the pod for which it has to leave"""

    priority: int | None = None
    """evicted, spared: the priority of that pod"""

    nominated: str | None = None
    """evicted, spared: id of that pod's decision"""

    shard: int | None = None
    """evicted, spared: partition of berth.pods in which its end is said; null: its key's"""


class Profile(Struct, frozen=True, kw_only=True):
    """What decides where a pod goes that names it."""

    revision: int
    """Counts the changes of the profile, from 1"""

    built_in: bool
    """Whether it came with berth and not by an event"""

    deleted: bool
    """Whether there was no such profile from then on"""

    since: str | None
    """When its event was folded (RFC 3339, UTC, log time); null: it is built in"""

    sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """

    name: str
    """Name of the profile: spec.schedulerName of a pod"""

    resource_version: int | None
    """Newest version of the profile that was seen"""

    spec: dict[str, Any] | None
    """Filters and scores, as in a SchedulingProfile"""


class ProfileDetail(Struct, frozen=True, kw_only=True):
    """A profile, or one revision of it, with its history."""

    revision: int
    """Counts the changes of the profile, from 1"""

    built_in: bool
    """Whether it came with berth and not by an event"""

    deleted: bool
    """Whether there was no such profile from then on"""

    since: str | None
    """When its event was folded (RFC 3339, UTC, log time); null: it is built in"""

    sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """

    name: str
    """Name of the profile: spec.schedulerName of a pod"""

    resource_version: int | None
    """Newest version of the profile that was seen"""

    spec: dict[str, Any] | None
    """Filters and scores, as in a SchedulingProfile"""

    in_force: bool
    """Whether pods are placed by this revision now"""

    revisions: list[ProfileRevision]
    """Its revisions, latest first"""


class ProfilePage(Struct, frozen=True, kw_only=True):
    """Profiles in force, by name."""

    items: list[Profile]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class ProfileRevision(Struct, frozen=True, kw_only=True):
    """What an accepted change made of a profile."""

    revision: int
    """Counts the changes of the profile, from 1"""

    built_in: bool
    """Whether it came with berth and not by an event"""

    deleted: bool
    """Whether there was no such profile from then on"""

    since: str | None
    """When its event was folded (RFC 3339, UTC, log time); null: it is built in"""

    sent_by: str | None
    """Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the
    log without it; unverified: with a name that no API of this ledger sealed; null: from before this
    was noted
    """


class RefusedAttempts(Struct, frozen=True, kw_only=True):
    """Attempts of a pod's group in a row that found no node, for the same reasons."""

    number: int
    """Counts within the group; a hole is what was not kept"""

    since: str
    """When the first of them was (RFC 3339, UTC, log time)"""

    last_at: str
    """When the last of them was that was noted"""

    until: str | None
    """When the next one differed, or the pod waited no more; null: it holds still"""

    times: int
    """How many were noted: where pods began to wait, or the reasons were new"""

    profile: str
    """Profile that was used"""

    profile_revision: int | None
    """Its revision; null: there is no such profile"""

    nodes: int
    """Nodes that were looked at: all of them"""

    reasons: dict[str, int]
    """Nodes per reason code"""

    unresolvable: bool
    """Whether no node would fit even if all other pods left"""

    cycle: str | None
    """Id of the cycle of the first of them, where a decision names it"""


class Replicas(Struct, frozen=True, kw_only=True):
    """How many replicas of a hosted workload there should be, as it was said last."""

    namespace: str
    """Namespace of the HostedReplicas"""

    name: str
    """Its name"""

    workload: HostedWorkload
    """The workload that it names"""

    min: int
    """The fewest that it allows"""

    max: int
    """The most that it allows"""

    wanted: int
    """How many pods there should be"""

    running: int
    """How many had a node"""

    waiting_since: str | None
    """Since when the pod waits that has waited longest (RFC 3339, UTC, log time); null: none waits"""

    load_percent: float | None
    """Use of the nodes that its pods may go to, relative to their capacity: of cpu or memory, whichever
    is larger; null: nothing recent was measured
    """

    reason: str
    """Why"""

    at: str
    """When this was said (RFC 3339, UTC, log time)"""

    seq: int
    """Number of the last change of `wanted`, as in berth.scales"""


class ReplicasPage(Struct, frozen=True, kw_only=True):
    """How many replicas of hosted workloads there should be, by namespace and name."""

    items: list[Replicas]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class RuleSeen(Struct, frozen=True, kw_only=True):
    """A rule over what other pods count by domain, and what it saw when it refused nodes."""

    reason: str
    """Reason code of the nodes that it refused"""

    text: str
    """The rule itself: topology key, bound, and which pods count"""

    count_max: int | None = None
    """Highest count of a domain that passes; null: at least one pod is needed"""

    count_min: int | None = None
    """Lowest count of all domains; null: the rule does not compare with it"""

    domains: dict[str, int] = field(default_factory=dict)
    """Some of the domains with more than that: value of the topology key -> count"""


class SessionEnded(Struct, frozen=True, kw_only=True):
    """A session that was ended."""

    ended: bool
    """Whether it is"""


class ShadowAnswer(Struct, frozen=True, kw_only=True):
    """A shadow profile: the sums over the workers that compare its newest revision, and each worker."""

    state: str
    """on, unknown (no profile has this name) or failed (given up after a fault; the worker goes on)"""

    revision: int
    """The revision of the profile that was compared; 0: unknown"""

    attempts: int
    """Attempts compared: a group of equal pods that had its turn, by its first pod"""

    pods: int
    """The pods of these attempts, but of those for which neither finds a node"""

    agreement: float | None
    """Share of attempts whose live node is among the best of this profile, where either finds one"""

    pods_agreement: float | None
    """The same share of pods"""

    regret: float | None
    """Mean of what the live node lacks under this profile, in points of 0..100 of its total"""

    live_regret: float | None
    """Mean of what this profile's node lacks under the live profile, likewise"""

    live_refused: int
    """Attempts whose live node this profile refuses"""

    shadow_refused: int
    """Attempts of which the live profile refuses this profile's node"""

    only_live: int
    """Attempts for which only the live profile finds a node"""

    only_shadow: int
    """Attempts for which only this profile finds a node"""

    neither: int
    """Attempts for which neither finds a node"""

    skipped: int
    """Attempts not compared, as that had taken its share of time"""

    skipped_lagging: int
    """Attempts not compared, as the worker was behind"""

    profile: str
    """Name of the profile"""

    workers: list[ShadowOfWorker]
    """The workers that are up and have this shadow profile"""


class ShadowOfWorker(Struct, frozen=True, kw_only=True):
    """The same of one worker."""

    state: str
    """on, unknown (no profile has this name) or failed (given up after a fault; the worker goes on)"""

    revision: int
    """The revision of the profile that was compared; 0: unknown"""

    attempts: int
    """Attempts compared: a group of equal pods that had its turn, by its first pod"""

    pods: int
    """The pods of these attempts, but of those for which neither finds a node"""

    agreement: float | None
    """Share of attempts whose live node is among the best of this profile, where either finds one"""

    pods_agreement: float | None
    """The same share of pods"""

    regret: float | None
    """Mean of what the live node lacks under this profile, in points of 0..100 of its total"""

    live_regret: float | None
    """Mean of what this profile's node lacks under the live profile, likewise"""

    live_refused: int
    """Attempts whose live node this profile refuses"""

    shadow_refused: int
    """Attempts of which the live profile refuses this profile's node"""

    only_live: int
    """Attempts for which only the live profile finds a node"""

    only_shadow: int
    """Attempts for which only this profile finds a node"""

    neither: int
    """Attempts for which neither finds a node"""

    skipped: int
    """Attempts not compared, as that had taken its share of time"""

    skipped_lagging: int
    """Attempts not compared, as the worker was behind"""

    name: str
    """Name of the worker, as in the leases"""

    incarnation: str
    """Made anew at each start of a process"""

    seen: str
    """Its last heartbeat (RFC 3339, UTC)"""


class ShadowPage(Struct, frozen=True, kw_only=True):
    """Shadow profiles, by name."""

    items: list[ShadowAnswer]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class Shard(Struct, frozen=True, kw_only=True):
    """A share of the pods, owned by one worker at a time."""

    shard: int
    """Number of the shard, from 0"""

    owner: str | None
    """Worker that holds the lease"""

    epoch: int
    """Counts the owners; older ones are refused"""

    owned_since: str | None
    """When the owner took it over (RFC 3339, UTC)"""

    lease_until: str | None
    """End of the lease if it is not renewed (RFC 3339, UTC)"""

    decisions: int
    """Decisions committed"""

    published: int
    """Decisions published to the decisions topic"""

    deadletters: int
    """Dead letters recorded"""

    relay: str | None
    """Relay that publishes the shard"""

    alarm: str | None
    """What is wrong with its topic of decisions; null: nothing"""

    ledger: str
    """The name of the ledger that its decisions carry from now on"""

    log_time: str | None
    """Time of the last event folded (RFC 3339, UTC)"""

    lag_records: int | None
    """Records appended and not yet folded; null: the log is away"""

    lag_seconds: float | None
    """Age of the oldest of them; 0: there are none"""

    journal_lag_seconds: float | None
    """By how much its owner is behind what other workers did; null: it did not say"""

    decisions_per_second: float | None
    """Of its owner, for all shards that this one holds"""

    moved: int | None
    """Pods that its owner placed although another worker had changed their node"""

    conflicts: int | None
    """Pods that it could not place, for this reason"""

    offsets: list[Offset]
    """How far the shard has read"""


class ShardChange(Struct, frozen=True, kw_only=True):
    """A worker took a shard."""

    shard: int
    """Number of the shard, from 0"""

    owner: str | None
    """Name of the worker; null: it is not kept any more"""

    epoch: int
    """Counts the owners of the shard"""

    first_batch_at: str
    """Log time of the first batch that it made with the shard (RFC 3339, UTC)"""


class ShardLag(Struct, frozen=True, kw_only=True):
    """How far a shard is behind the log."""

    shard: int
    """Number of the shard, from 0"""

    records: int
    """Records appended and not yet folded"""

    seconds: float
    """Age of the oldest of them; 0: there are none"""


class ShardPage(Struct, frozen=True, kw_only=True):
    """All shards, by number."""

    items: list[Shard]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""


class SumOfNode(Struct, frozen=True, kw_only=True):
    """What a node offers of a resource, and what the pods on it hold."""

    allocatable: str
    """What the node offers, as a quantity"""

    requested: str
    """What its pods request together, without the pod itself"""


class Taint(Struct, frozen=True, kw_only=True):
    """A mark by which a node repels pods."""

    key: str
    """Key of the taint"""

    value: str
    """Value of the taint"""

    effect: str
    """NoSchedule, PreferNoSchedule or NoExecute"""


class Totals(Struct, frozen=True, kw_only=True):
    """Sums over the cluster."""

    at: str | None
    """Log time of the moment that was asked for; null: now, or before all"""

    nodes: int
    """Nodes that there are"""

    allocatable: dict[str, str]
    """What they offer together: Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi
    """

    requested: dict[str, str]
    """What their pods ask for together, in the same units"""

    bound: int
    """Pods that were placed, of those that the key sees"""

    orphaned: int
    """Of `bound`, those that lost their node: it was deleted"""

    pending: int
    """Pods that wait, of those that the key sees"""

    groups: int
    """Groups of equal pods that wait, likewise"""


class Usage(Struct, frozen=True, kw_only=True):
    """What was measured on a node, as scores and filters read it."""

    at: str
    """When the latest measurement was taken (RFC 3339, UTC)"""

    resources: dict[str, Measured]
    """Figures by resource"""


class UsageItem(Struct, frozen=True, kw_only=True):
    """What was requested of, measured on and decided for a namespace, a node or the cluster in a step."""

    at: str
    """When the step begins (RFC 3339, UTC, log time)"""

    name: str
    """The namespace or the node; empty: the cluster"""

    samples: int
    """How many samples the means are of, one each 5 minutes of log time at most"""

    pods: int | None
    """Pods that had a node, mean of the samples; null: there is none"""

    pending_pods: int | None
    """Pods that waited, mean of the samples; null: there is none; null of a node"""

    requested_cpu_milli: int | None
    """What pods with a node requested of cpu, in thousandths of a core, mean of the samples; null: there
    is none
    """

    requested_memory_bytes: int | None
    """The same of memory, in bytes, mean of the samples; null: there is none"""

    allocatable_cpu_milli: int | None
    """What nodes offered of cpu, in thousandths of a core, mean of the samples; null: there is none; null
    of a namespace
    """

    allocatable_memory_bytes: int | None
    """The same of memory, in bytes, mean of the samples; null: there is none"""

    measured_cpu_milli: int | None
    """What was measured of cpu, in thousandths of a core, mean of the samples; null: there is none in
    which it was measured; null of a namespace
    """

    measured_memory_bytes: int | None
    """The same of memory, in bytes, mean of the samples; null: there is none"""

    decisions: dict[str, int]
    """Decisions by outcome; empty of a node for a key that is limited to namespaces"""

    evictions: int
    """How many of them were evictions"""


class UsagePage(Struct, frozen=True, kw_only=True):
    """Usage over time, by time and name."""

    items: list[UsageItem]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""

    by: str
    """What its items are of"""

    since: str
    """From when on (RFC 3339, UTC)"""

    until: str
    """Before when the last step begins (RFC 3339, UTC)"""

    step_minutes: int
    """How long each step is"""


class UsageThen(Struct, frozen=True, kw_only=True):
    """What was measured of a node when it was looked at."""

    at: str | None
    """Time of the latest measurement (RFC 3339, UTC); null: there was none"""

    resources: dict[str, Figures]
    """Figures by resource"""


class Why(Struct, frozen=True, kw_only=True):
    """Why pods wait, and what would cure them, as far as a search found out."""

    namespace: str
    """Namespace of the pod that was looked at"""

    name: str
    """Its name"""

    state: str
    """`fits`: a node has room now, and its turn is to come; `nominated`: one is set aside for it"""

    node: str | None
    """The node that would take it, is set aside, or has it; null: none"""

    summary: str
    """All of it in a few sentences"""

    reasons: dict[str, int]
    """Nodes per reason code of the first filter that refuses it"""

    unresolvable: bool
    """Whether no node would fit even if all other pods left"""

    held_by: list[str]
    """Reason codes for which no node is looked at"""

    group: PendingGroup | None
    """Its group, as /v1/pending has it; null: it waits no more"""

    cures: list[Cure]
    """Cures of all pods first, then the smallest first"""

    reached: bool
    """Whether the search came to its end; false: there may be smaller cures"""

    dry_runs: int
    """How many dry runs it took"""

    looked_at: str
    """The ledger as of then was searched (RFC 3339, UTC, log time)"""

    age_seconds: float
    """How long ago that was read"""


class WhyNow(Struct, frozen=True, kw_only=True):
    """What made room for a pod that had waited, as far as the ledger says."""

    decision: str
    """Id of the decision that placed it"""

    node: str
    """The node that it got"""

    refused_at: str | None
    """The last attempt before that failed (RFC 3339, UTC); null: none did"""

    reasons: dict[str, int]
    """Nodes per reason code at that attempt"""

    changed: list[HistoryEntry]
    """What happened on the node between the two, the oldest first; the first few"""

    summary: str
    """The same in sentences"""


class WorkerAnswer(Struct, frozen=True, kw_only=True):
    """A worker since its process began."""

    name: str
    """Its name, as in the leases"""

    incarnation: str
    """Made anew at each start of a process"""

    state: str
    """ready (to take shards), starting, silent (no heartbeat, as after a crash) or stopped"""

    shards: list[int]
    """The shards that it owns now"""

    build: str
    """Its version of berth"""

    started: str
    """When it began (RFC 3339, UTC, the ledger's clock)"""

    seen: str
    """Its last heartbeat (RFC 3339, UTC)"""

    stopped: str | None
    """When it stopped (RFC 3339, UTC); null: it runs, or was killed"""

    decisions_per_second: float | None
    """Committed before its last heartbeat"""

    moved: int | None
    """Pods that it placed although another worker had changed their node"""

    conflicts: int | None
    """Pods that it could not place, for this reason"""

    journal_lag_seconds: float | None
    """By how much it is behind what other workers did"""


class WorkerPage(Struct, frozen=True, kw_only=True):
    """Workers, by name, the latest start first."""

    items: list[WorkerAnswer]
    """What the list holds, in its order"""

    next: str | None = None
    """Pass as `cursor` to get the next page; null: this was the last"""
