"""The API's answers about what is there: structs that serialise and that describe themselves."""

from __future__ import annotations

from typing import Annotated, Any, Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from services.api.answers_decisions import INSTANT, QUALITY, QUANTITIES, SENT_BY, Decision, Figures, about

Item = TypeVar("Item")


class Page(Struct, Generic[Item], kw_only=True):
    """A page of a list."""

    items: Annotated[list[Item], about("What the list holds, in its order")]
    next: Annotated[str | None, about("Pass as `cursor` to get the next page; null: this was the last")] = (
        None
    )


# ------------------------------------------------------------------------------------- errors and events


class ErrorDetail(Struct, kw_only=True):
    """One thing that is wrong."""

    index: Annotated[
        int | UnsetType, about("Position of the bad event in the request, from 0; absent: it is no event")
    ] = UNSET
    path: Annotated[str, about("Path of the field inside the event or the request")]
    message: Annotated[str, about("What is wrong and what is allowed")]


class ErrorBody(Struct, kw_only=True):
    """What went wrong."""

    code: Annotated[str, about("Stable name of the error, for programs")]
    message: Annotated[str, about("What was wrong and what to do, for people")]
    path: Annotated[str | UnsetType, about("Path of the field that is wrong, where there is one")] = UNSET
    details: Annotated[list[ErrorDetail] | UnsetType, about("All that is wrong, where it is several")] = UNSET


class Error(Struct, kw_only=True):
    """The one shape of all errors."""

    error: Annotated[ErrorBody, about("What went wrong")]


class Event(Struct, kw_only=True):
    """A watch event: what happened to one object. Unknown fields are ignored."""

    type: Annotated[str, about("ADDED, MODIFIED or DELETED; of a pod also BIND_FAILED")]
    object: Annotated[
        dict[str, Any],
        about("v1 Node or v1 Pod as in Kubernetes, or berth/v1 SchedulingProfile or NodeUsage"),
    ]
    at: Annotated[str | None, about(f"When it happened ({INSTANT}); absent: when it arrived")] = None
    id: Annotated[
        str | None,
        about("Unique id: what was accepted is not sent again; another event with it is an error"),
    ] = None


class EventList(Struct, kw_only=True):
    """Events to append to the log; a bare list is accepted as well, and a single event."""

    events: Annotated[list[Event], about("The events, in order")]


class DeadLetter(Struct, kw_only=True):
    """A record that could not be accepted."""

    id: Annotated[str, about("<shard>-<seq>")]
    topic: Annotated[str, about("Topic that it was read from")]
    partition: Annotated[int, about("Partition that it was read from")]
    offset: Annotated[int, about("Offset that it was read at")]
    key: Annotated[str | None, about("Key of the record, where it is text")]
    code: Annotated[str, about("Stable name of the reason")]
    path: Annotated[str, about("Path of the field that is wrong")]
    message: Annotated[str, about("What is wrong and what is allowed")]
    at: Annotated[str, about(f"When the record was appended ({INSTANT})")]
    sent_by: Annotated[str | None, about(SENT_BY)]
    raw_bytes: Annotated[int, about("How many bytes are kept of the record, see docs/events.md")]
    raw_base64: Annotated[
        str, about("These bytes; in a list the first ones, and /v1/deadletters/{id} has all")
    ]
    raw_text: Annotated[str | None, about("The same bytes as text, where they are UTF-8")]


class Position(Struct, kw_only=True):
    """The last of some neighbouring records in the log."""

    topic: Annotated[str, about("Topic")]
    partition: Annotated[int, about("Partition")]
    offset: Annotated[int, about("Offset of the record")]


class Ingested(Struct, kw_only=True):
    """What became of the events of a request."""

    accepted: Annotated[int, about("Events appended to the log by this request")]
    duplicates: Annotated[int, about("Events skipped because they were accepted before, by their id")]
    invalid: Annotated[int, about("Events refused; above 0 only with partial=true")]
    errors: Annotated[list[ErrorDetail], about("Why events were refused")]
    positions: Annotated[list[Position], about("Where the log has the accepted events: the last of each run")]
    folded: Annotated[bool | UnsetType, about("With wait: whether all took effect within the time")] = UNSET
    deadletters: Annotated[
        list[DeadLetter] | UnsetType, about("Folded: the events that a worker refused")
    ] = UNSET
    older: Annotated[
        list[str] | UnsetType, about("Folded: pods of the request of which a higher resourceVersion stands")
    ] = UNSET
    decisions: Annotated[
        list[Decision] | UnsetType, about("With until=decided, once folded: the last decision of each pod")
    ] = UNSET


class ShardLag(Struct, kw_only=True):
    """How far a shard is behind the log."""

    shard: Annotated[int, about("Number of the shard, from 0")]
    records: Annotated[int, about("Records appended and not yet folded")]
    seconds: Annotated[float, about("Age of the oldest of them; 0: there are none")]


class Health(Struct, kw_only=True):
    """Whether this process lives (`/healthz`), or the deployment can decide (`/readyz`)."""

    status: Annotated[str, about("ok or not-ready")]
    checks: Annotated[dict[str, str], about("Per part: ok, or what is wrong and what to do")]
    lag: Annotated[list[ShardLag], about("Per shard, where ledger and log answer")] = []
    alarms: Annotated[list[str], about("What is amiss though pods are placed; docs/operations.md")] = []


# ------------------------------------------------------------------------------------------ nodes and pods


class Taint(Struct, kw_only=True):
    """A mark by which a node repels pods."""

    key: Annotated[str, about("Key of the taint")]
    value: Annotated[str, about("Value of the taint")]
    effect: Annotated[str, about("NoSchedule, PreferNoSchedule or NoExecute")]


class Node(Struct, kw_only=True):
    """A node and how full it is."""

    name: Annotated[str, about("Name of the node")]
    version: Annotated[
        int | None, about("Counts the commits that changed the node; null: of the past it is not kept")
    ]
    deleted: Annotated[bool, about("Whether the node is gone")]
    ready: Annotated[bool | None, about("What its Ready condition says; null where it says nothing")]
    unschedulable: Annotated[bool, about("Whether the node takes no new pods (cordoned)")]
    labels: Annotated[dict[str, str], about("Labels of the node")]
    taints: Annotated[list[Taint], about("Taints of the node")]
    allocatable: Annotated[dict[str, str], about(f"What the node offers: {QUANTITIES}")]
    requested: Annotated[dict[str, str], about("Sum of the requests of its pods, in the same units")]
    devices: Annotated[list[int], about("Thousandths taken of each device (GPU) that it offers, in order")]
    overcommitted: Annotated[list[str], about("Resources of which its pods hold more than it offers")]
    free: Annotated[dict[str, str], about("allocatable minus requested, at least 0; GPUs: those unused")]
    spec_changed_at: Annotated[str, about(f"When the node last changed its spec ({INSTANT})")]
    spec_sent_by: Annotated[str | None, about(f"{SENT_BY}. Null, too, for a key that has namespaces")]


class Pod(Struct, kw_only=True):
    """A pod and where it is."""

    namespace: Annotated[str, about("Namespace of the pod")]
    name: Annotated[str, about("Name of the pod")]
    uid: Annotated[str, about("Unique id of the pod; namespace/name when its events carry none")]
    resource_version: Annotated[int | None, about("Version of the pod that was last folded")]
    phase: Annotated[str, about("bound, orphaned (its node was deleted), pending or released (gone)")]
    node: Annotated[str | None, about("Node that the pod counts on")]
    adopted: Annotated[bool, about("Whether the pod arrived already bound")]
    since: Annotated[str, about(f"Since when it is in this phase ({INSTANT}, log time)")]
    requests: Annotated[
        dict[str, str], about(f"What it asks for, or held until its release, effectively: {QUANTITIES}")
    ]
    devices: Annotated[list[int], about("Devices (GPUs) of its node that it has, from 0")]
    qos_class: Annotated[
        str | None, about("QoS class: Guaranteed, Burstable or BestEffort; null: the pod is gone")
    ]
    quality: Annotated[str | None, about(f"{QUALITY}; null: the pod is gone")]
    priority: Annotated[int | None, about("Priority of the pod; null: the pod is gone")]
    silent_containers: Annotated[
        int | None, about("Containers that say neither request nor limit of cpu; null: the pod is gone")
    ]
    labels: Annotated[dict[str, str], about("Labels of the pod")]
    signature: Annotated[str, about("Hex signature of the equivalence group, see /v1/pending")]
    shard: Annotated[int, about("Shard that decides for the pod")]
    decision: Annotated[str | None, about("Id of the decision that placed it, or that said that it is gone")]


class Measured(Figures, kw_only=True):
    """Figures of one resource of a node, and how many samples they rest on."""

    samples: Annotated[int, about("Samples that are kept of the window")]


class Usage(Struct, kw_only=True):
    """What was measured on a node, as scores and filters read it."""

    at: Annotated[str, about(f"When the latest measurement was taken ({INSTANT})")]
    resources: Annotated[dict[str, Measured], about("Figures by resource")]


class NodeAction(Struct, kw_only=True):
    """What the agent of a node did there; several acts of one kind in a row are one, the last of them."""

    id: Annotated[int, about("Of two, the later one has the higher id")]
    node: Annotated[str, about("The node")]
    at: Annotated[str, about(f"When it was done, as the agent says ({INSTANT})")]
    action: Annotated[str, about("idle, weight, quota, memory-high, reclaim or evict")]
    quality: Annotated[str, about("Quality of the box that was changed, or of the pod that was ended")]
    amount: Annotated[
        str | None,
        about(
            f"What the box has from then on, or what was taken back; null: no bound, or none ({QUANTITIES})"
        ),
    ]
    times: Annotated[int, about("Acts that this one stands for")]
    reason: Annotated[str, about("Why")]
    policy: Annotated[str | None, about("Policy that ordered it, as name@version; null: the defaults")]
    pod: Annotated[str | None, about("The pod that was ended, as namespace/name; null: none was")]
    uid: Annotated[str | None, about("Its unique id")]
    sent_by: Annotated[str | None, about(f"{SENT_BY}. Null, too, for a key that has namespaces")]


class Heat(Struct, kw_only=True):
    """Whether a node is hot: too busy for long, so that it takes no mid or low pods."""

    hot: Annotated[bool, about("Whether it is")]
    why: Annotated[list[str], about("Signs of its latest bad sample, in plain words; empty: it is not hot")]


class NodeMove(Struct, kw_only=True):
    """A pod that has to leave a hot node and has not left it yet."""

    namespace: Annotated[str, about("Namespace of the pod")]
    name: Annotated[str, about("Name of the pod")]
    uid: Annotated[str, about("Unique id of the pod")]
    to: Annotated[str, about("Where a dry run found room for it; nothing is kept free there")]
    since: Annotated[str, about(f"When it was told to leave ({INSTANT}, log time)")]
    expires: Annotated[str, about(f"When it may stay if it has not left ({INSTANT}, log time)")]


class NodeDetail(Node, kw_only=True):
    """A node with the pods on it, what was measured on it, and what its agent did."""

    actions: Annotated[list[NodeAction], about("What its agent did, the latest 10 first, see /v1/actions")]
    usage: Annotated[Usage | None, about("Measured usage; null where nothing was measured")]
    policy: Annotated[
        str | None, about("CoLocationPolicy that holds there, as name@version; null: the defaults")
    ] = None
    heat: Annotated[Heat | None, about("Whether it is hot; null: it was never measured by quality")] = None
    moves: Annotated[list[NodeMove], about("Pods that have to leave it as it is hot, by uid")] = []
    pods: Annotated[list[Pod], about("Pods that count on the node, by uid")]
    pods_next: Annotated[
        str | None, about("There are more: `cursor` for /v1/pods with this node and phase=bound; null: no")
    ]
    others: Annotated[
        dict[str, str] | None,
        about(
            "Sum of the requests of the pods that the key does not see, and how many they are, as `pods`; "
            "null: it sees all"
        ),
    ]


class Placement(Struct, kw_only=True):
    """A time span in which a pod counted on a node."""

    node: Annotated[str, about("The node")]
    uid: Annotated[str, about("Unique id of the pod")]
    adopted: Annotated[bool, about("Whether the pod arrived already bound")]
    started: Annotated[str, about(f"Start of the span ({INSTANT}, log time)")] = field(name="from")
    ended: Annotated[str | None, about("End of the span; null: still there")] = field(name="to")
    decision: Annotated[str, about("Id of the decision that opened it")]


_ALL = "null: in /v1/pods, and for a key that does not see all namespaces"


class PendingGroup(Struct, kw_only=True):
    """Equal pods that wait, and why."""

    signature: Annotated[str, about("Hex signature of the equivalence group")]
    shard: Annotated[int, about("Shard that decides for them")]
    count: Annotated[int, about("Number of pods that wait")]
    reasons: Annotated[dict[str, int], about("Nodes per reason code at the last attempt")]
    unresolvable: Annotated[bool, about("Whether no node would fit even if all other pods left")]
    since: Annotated[str, about(f"Since when the oldest waits ({INSTANT}, log time)")]
    tried_at: Annotated[str | None, about(f"When they were last tried ({INSTANT}, log time)")]
    cycle: Annotated[str | None, about("Id of the last attempt's cycle")]
    requests: Annotated[dict[str, str], about(f"What each pod asks for: {QUANTITIES}")]
    profile: Annotated[str, about("Profile that the pods name")]
    priority: Annotated[int, about("Priority of the pods")]
    examples: Annotated[list[str], about("The first few pods, as namespace/name")]
    waits_seconds: Annotated[
        int, about("For how long the oldest waits: until now by the clock of the API, or until `at`")
    ]
    attempts: Annotated[int | None, about(f"Attempts that failed meanwhile, as far as they are kept; {_ALL}")]
    groups_before: Annotated[
        int | None, about(f"Groups of the shard before it, by priority and oldest pod; {_ALL}")
    ]
    pods_before: Annotated[int | None, about(f"How many pods these have; {_ALL}")]


class PodDetail(Pod, kw_only=True):
    """A pod with its history."""

    group: Annotated[PendingGroup | None, about("While it waits: its equivalence group, and why")]
    gang: Annotated[
        str | None, about("Its gang (namespace/name), see /v1/gangs; null: it has none, or is gone")
    ]
    decisions: Annotated[list[Decision], about("Decisions about pods of this name, latest first")]
    placements: Annotated[list[Placement], about("Where pods of this name were, latest first")]


# --------------------------------------------------------------------- profiles, shards and dead letters


class ProfileRevision(Struct, kw_only=True):
    """What an accepted change made of a profile."""

    revision: Annotated[int, about("Counts the changes of the profile, from 1")]
    built_in: Annotated[bool, about("Whether it came with berth and not by an event")]
    deleted: Annotated[bool, about("Whether there was no such profile from then on")]
    since: Annotated[
        str | None, about(f"When its event was folded ({INSTANT}, log time); null: it is built in")
    ]
    sent_by: Annotated[str | None, about(SENT_BY)]


class Profile(ProfileRevision, kw_only=True):
    """What decides where a pod goes that names it."""

    name: Annotated[str, about("Name of the profile: spec.schedulerName of a pod")]
    resource_version: Annotated[int | None, about("Newest version of the profile that was seen")]
    spec: Annotated[dict[str, Any] | None, about("Filters and scores, as in a SchedulingProfile")]


class ProfileDetail(Profile, kw_only=True):
    """A profile, or one revision of it, with its history."""

    in_force: Annotated[bool, about("Whether pods are placed by this revision now")]
    revisions: Annotated[list[ProfileRevision], about("Its revisions, latest first")]


class HostedWorkload(Struct, kw_only=True):
    """What controls the pods that are scaled."""

    kind: Annotated[str, about("Its kind, such as ReplicaSet")]
    name: Annotated[str, about("Its name; its namespace is that of the object")]


class Replicas(Struct, kw_only=True):
    """How many replicas of a hosted workload there should be, as it was said last."""

    namespace: Annotated[str, about("Namespace of the HostedReplicas")]
    name: Annotated[str, about("Its name")]
    workload: Annotated[HostedWorkload, about("The workload that it names")]
    min: Annotated[int, about("The fewest that it allows")]
    max: Annotated[int, about("The most that it allows")]
    wanted: Annotated[int, about("How many pods there should be")]
    running: Annotated[int, about("How many had a node")]
    waiting_since: Annotated[
        str | None,
        about(f"Since when the pod waits that has waited longest ({INSTANT}, log time); null: none waits"),
    ]
    load_percent: Annotated[
        float | None,
        about(
            "Use of the nodes that its pods may go to, relative to their capacity: of cpu or memory, "
            "whichever is larger; null: nothing recent was measured"
        ),
    ]
    reason: Annotated[str, about("Why")]
    at: Annotated[str, about(f"When this was said ({INSTANT}, log time)")]
    seq: Annotated[int, about("Number of the last change of `wanted`, as in berth.scales")]


class ConfigObject(Struct, kw_only=True):
    """The latest of an object by which pods are selected, counted or ranked, or of a policy of nodes."""

    kind: Annotated[str, about("Its kind, such as Service")]
    namespace: Annotated[str | None, about("Its namespace; null: the kind has none")]
    name: Annotated[str, about("Its name")]
    object: Annotated[
        dict[str, Any],
        about(
            "What berth keeps of it: labels, a selector, or what it sets; of a CoLocationPolicy its whole "
            "`spec`, with what it leaves out"
        ),
    ]
    resource_version: Annotated[int | None, about("Newest version of the object that was seen")]
    since: Annotated[str, about(f"When its last event was folded ({INSTANT}, log time)")]
    sent_by: Annotated[str | None, about(SENT_BY)]


class Offset(Struct, kw_only=True):
    """How far a shard has read a partition."""

    topic: Annotated[str, about("Topic")]
    partition: Annotated[int, about("Partition")]
    next_offset: Annotated[int, about("Offset of the next record; all before it took effect")]


class Shard(Struct, kw_only=True):
    """A share of the pods, owned by one worker at a time."""

    shard: Annotated[int, about("Number of the shard, from 0")]
    owner: Annotated[str | None, about("Worker that holds the lease")]
    epoch: Annotated[int, about("Counts the owners; older ones are refused")]
    owned_since: Annotated[str | None, about(f"When the owner took it over ({INSTANT})")]
    lease_until: Annotated[str | None, about(f"End of the lease if it is not renewed ({INSTANT})")]
    decisions: Annotated[int, about("Decisions committed")]
    published: Annotated[int, about("Decisions published to the decisions topic")]
    deadletters: Annotated[int, about("Dead letters recorded")]
    relay: Annotated[str | None, about("Relay that publishes the shard")]
    alarm: Annotated[str | None, about("What is wrong with its topic of decisions; null: nothing")]
    ledger: Annotated[str, about("The name of the ledger that its decisions carry from now on")]
    log_time: Annotated[str | None, about(f"Time of the last event folded ({INSTANT})")]
    lag_records: Annotated[int | None, about("Records appended and not yet folded; null: the log is away")]
    lag_seconds: Annotated[float | None, about("Age of the oldest of them; 0: there are none")]
    journal_lag_seconds: Annotated[
        float | None, about("By how much its owner is behind what other workers did; null: it did not say")
    ]
    decisions_per_second: Annotated[float | None, about("Of its owner, for all shards that this one holds")]
    moved: Annotated[
        int | None, about("Pods that its owner placed although another worker had changed their node")
    ]
    conflicts: Annotated[int | None, about("Pods that it could not place, for this reason")]
    offsets: Annotated[list[Offset], about("How far the shard has read")]


class NodePage(Page[Node]):
    """Live nodes, by name."""


class PodPage(Page[Pod]):
    """Live pods, by uid."""


class DecisionPage(Page[Decision]):
    """Decisions, in commit order of their shard."""


class PendingPage(Page[PendingGroup]):
    """Groups of pending pods, largest first; one that grows or shrinks meanwhile may be missed."""


class ProfilePage(Page[Profile]):
    """Profiles in force, by name."""


class ConfigPage(Page[ConfigObject]):
    """Configuration objects, by kind, namespace and name."""


class ReplicasPage(Page[Replicas]):
    """How many replicas of hosted workloads there should be, by namespace and name."""


class ActionPage(Page[NodeAction]):
    """What agents did, the latest first."""


class ShardPage(Page[Shard]):
    """All shards, by number."""


class KeyToMake(Struct, kw_only=True, forbid_unknown_fields=True):
    """What a key is to allow; docs/keys.md says what each role may do."""

    name: Annotated[str, about("Who holds it; several keys may share a name")]
    roles: Annotated[list[str], about("Of producer, operator, auditor, agent and admin")]
    namespaces: Annotated[list[str] | None, about("Only these namespaces; null: all")] = None
    kinds: Annotated[list[str] | None, about("What it sends; null: what its roles send")] = None
    events_per_second: Annotated[int | None, about("Events that the name may send; null: any number")] = None
    bytes_per_second: Annotated[int | None, about("Bytes that the name may send; null: any number")] = None
    requests_at_once: Annotated[int | None, about("Requests under way; null: as the API is set")] = None
    priority_max: Annotated[
        int | None,
        about("Highest priority of its pods; null: 0 with namespaces or priority_classes, else 1000000000"),
    ] = None
    priority_classes: Annotated[
        list[str] | None,
        about(
            "Priority classes that its pods may name; null: none with namespaces or priority_max, "
            "else all but the system's"
        ),
    ] = None
    node: Annotated[str | None, about("Of the role agent: the one node that it is for")] = None


class Key(KeyToMake, kw_only=True):
    """What a key allows; the key itself is not kept. ``priority_max`` is the one that holds; null: any."""

    created_at: Annotated[str, about(f"When it was made ({INSTANT})")]
    revoked_at: Annotated[str | None, about(f"When it was revoked ({INSTANT}); null: it is good")]


class NewKey(Struct, kw_only=True):
    """A key that was made."""

    name: Annotated[str, about("Who holds it")]
    key: Annotated[str, about("The key, which is shown this once")]


class KeyRevoked(Struct, kw_only=True):
    """What was revoked."""

    name: Annotated[str, about("Whose keys")]
    revoked: Annotated[int, about("How many there were")]


class KeyPage(Page[Key]):
    """All keys, oldest first."""


class DeadLetterPage(Page[DeadLetter]):
    """Dead letters, latest first."""
