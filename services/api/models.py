"""The shapes of the API's answers: every field described, which is what ``/openapi.json`` shows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

INSTANT = "RFC 3339, UTC"
QUANTITIES = "Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"


class Shape(BaseModel):
    """A documented JSON object; unknown fields are refused so that tests see undocumented ones."""

    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Shape):
    """One thing that is wrong."""

    index: int | None = Field(None, description="Position of the bad event in the request, from 0")
    path: str = Field("", description="Path of the field inside the event or the request")
    message: str = Field(description="What is wrong and what is allowed")


class ErrorBody(Shape):
    """What went wrong."""

    code: str = Field(description="Stable name of the error, for programs")
    message: str = Field(description="What was wrong and what to do, for people")
    path: str | None = Field(None, description="Path of the field that is wrong, where there is one")
    details: list[ErrorDetail] | None = Field(None, description="All that is wrong, where it is several")


class Error(Shape):
    """The one shape of all errors."""

    error: ErrorBody = Field(description="What went wrong")


class Event(BaseModel):
    """A watch event: what happened to one object. Unknown fields are ignored."""

    type: str = Field(description="ADDED, MODIFIED or DELETED")
    object: dict[str, Any] = Field(
        description="v1 Node or v1 Pod, as in Kubernetes, or berth/v1 SchedulingProfile or NodeUsage"
    )
    at: str | None = Field(None, description=f"When it happened ({INSTANT}); absent: when it arrived")
    id: str | None = Field(None, description="Unique id; an event whose id was accepted is not sent again")


class EventList(BaseModel):
    """Events to append to the log; a bare list is accepted as well, and a single event."""

    events: list[Event] = Field(description="The events, in order")


class Ingested(Shape):
    """What became of the events of a request."""

    accepted: int = Field(description="Events appended to the log by this request")
    duplicates: int = Field(description="Events skipped because their id was accepted before")
    invalid: int = Field(description="Events refused; above 0 only with partial=true")
    errors: list[ErrorDetail] = Field(description="Why events were refused")


class Taint(Shape):
    """A mark by which a node repels pods."""

    key: str = Field(description="Key of the taint")
    value: str = Field(description="Value of the taint")
    effect: str = Field(description="NoSchedule, PreferNoSchedule or NoExecute")


class Node(Shape):
    """A node and how full it is."""

    name: str = Field(description="Name of the node")
    version: int = Field(description="Counts the commits that changed the node")
    deleted: bool = Field(description="Whether the node is gone")
    unschedulable: bool = Field(description="Whether the node takes no new pods (cordoned)")
    labels: dict[str, str] = Field(description="Labels of the node")
    taints: list[Taint] = Field(description="Taints of the node")
    allocatable: dict[str, str] = Field(description=f"What the node offers: {QUANTITIES}")
    requested: dict[str, str] = Field(description="Sum of the requests of its pods, in the same units")
    free: dict[str, str] = Field(description="allocatable minus requested, never below 0")
    spec_changed_at: str | None = Field(description=f"When the node last changed its spec ({INSTANT})")


class PodState(Shape):
    """A pod and where it is."""

    namespace: str = Field(description="Namespace of the pod")
    name: str = Field(description="Name of the pod")
    uid: str = Field(description="Unique id of the pod; namespace/name when its events carry none")
    resource_version: int | None = Field(description="Version of the pod that was last folded")
    phase: str = Field(description="bound, pending or released (gone)")
    node: str | None = Field(description="Node that the pod counts on")
    adopted: bool = Field(description="Whether the pod arrived already bound")
    since: str | None = Field(description=f"Since when it is in this phase ({INSTANT}, log time)")
    requests: dict[str, str] = Field(description=f"Effective requests: {QUANTITIES}")
    labels: dict[str, str] = Field(description="Labels of the pod")
    signature: str = Field(description="Hex signature of the equivalence group, see /v1/pending")
    shard: int = Field(description="Shard that decides for the pod")
    decision: str | None = Field(description="Id of the decision that placed it")


class MeasuredUsage(Shape):
    """What was measured of one resource of a node, in percent of what the node has."""

    avg: float | None = Field(description="Average over the window")
    std: float | None = Field(description="Standard deviation over the window (of the population)")
    latest: float | None = Field(description="Latest value in the window")
    peak_yesterday: float | None = Field(description="Highest value of the UTC day before the latest one")
    samples: int = Field(description="Samples that are kept of the window")


class NodeUsage(Shape):
    """What was measured on a node, as scores and filters read it."""

    at: str | None = Field(description=f"When the latest measurement was taken ({INSTANT})")
    resources: dict[str, MeasuredUsage] = Field(description="Figures by resource")


class NodeDetail(Node):
    """A node with the pods on it, and what was measured on it."""

    usage: NodeUsage | None = Field(description="Measured usage; null where nothing was measured")
    pods: list[PodState] = Field(description="Pods that count on the node")


class PodRef(Shape):
    """Which pod a decision is about."""

    namespace: str = Field(description="Namespace of the pod")
    name: str = Field(description="Name of the pod")
    uid: str = Field(description="Unique id of the pod")
    resource_version: int | None = Field(description="Version of the pod that was decided on")


class Decision(Shape):
    """The immutable outcome for one pod."""

    id: str = Field(description="<shard>-<seq>")
    shard: int = Field(description="Shard that decided")
    seq: int = Field(description="Number of the decision in its shard, from 1 without a hole")
    epoch: int = Field(description="Ownership of the shard under which it was decided")
    pod: PodRef = Field(description="The pod")
    outcome: str = Field(
        description="bound, adopted, unschedulable, unresolvable, nominated, released, evicted or migrated"
    )
    node: str | None = Field(description="The node, where there is one")
    node_version: int | None = Field(description="Change counter of the node after this decision")
    decided_at: str | None = Field(description=f"Log time of the decision ({INSTANT})")
    event_at: str | None = Field(description="When the pod's event happened, as its `at` claims")
    recorded_at: str | None = Field(description=f"When it became durable ({INSTANT}, the database's clock)")
    profile: str = Field(description="Profile that the pod names")
    profile_revision: int | None = Field(description="Its revision then, where a profile was asked")
    reason: str = Field(description="Reason, where the outcome has one")
    reasons: dict[str, int] = Field(description="Nodes per reason code, where no node was found")
    warnings: list[str] = Field(description="What of the pod had no say in it, as ignored:<code>")
    score: float | None = Field(description="Total score of the node when it was chosen")
    signature: str = Field(description="Hex signature of the equivalence group")
    cycle: str | None = Field(description="Id of the cycle that explains it")


class Placement(Shape):
    """A time span in which a pod counted on a node."""

    node: str = Field(description="The node")
    uid: str = Field(description="Unique id of the pod")
    adopted: bool = Field(description="Whether the pod arrived already bound")
    started: str | None = Field(alias="from", description=f"Start of the span ({INSTANT}, log time)")
    ended: str | None = Field(alias="to", description="End of the span; null: still there")
    decision: str = Field(description="Id of the decision that opened it")


class PendingGroup(Shape):
    """Equal pods that wait, and why."""

    signature: str = Field(description="Hex signature of the equivalence group")
    shard: int = Field(description="Shard that decides for them")
    count: int = Field(description="Number of pods that wait")
    reasons: dict[str, int] = Field(description="Nodes per reason code at the last attempt")
    unresolvable: bool = Field(description="Whether no node would fit even if all other pods left")
    since: str | None = Field(description=f"Since when the oldest waits ({INSTANT}, log time)")
    tried_at: str | None = Field(description=f"When they were last tried ({INSTANT}, log time)")
    cycle: str | None = Field(description="Id of the last attempt's cycle")
    requests: dict[str, str] = Field(description=f"What each pod asks for: {QUANTITIES}")
    profile: str = Field(description="Profile that the pods name")
    priority: int = Field(description="Priority of the pods")
    examples: list[str] = Field(description="The first few pods, as namespace/name")


class PodDetail(PodState):
    """A pod with its history."""

    group: PendingGroup | None = Field(description="While it waits: its equivalence group, and why")
    decisions: list[Decision] = Field(description="Decisions about pods of this name, latest first")
    placements: list[Placement] = Field(description="Where pods of this name were, latest first")


class Offset(Shape):
    """How far a shard has read a partition."""

    topic: str = Field(description="Topic")
    partition: int = Field(description="Partition")
    next_offset: int = Field(description="Offset of the next record; all before it took effect")


class ProfileRevision(Shape):
    """What an accepted change made of a profile."""

    revision: int = Field(description="Counts the changes of the profile, from 1")
    built_in: bool = Field(description="Whether it came with berth and not by an event")
    deleted: bool = Field(description="Whether there was no such profile from then on")
    since: str | None = Field(description=f"When its event was folded ({INSTANT}, log time)")


class Profile(ProfileRevision):
    """What decides where a pod goes that names it."""

    name: str = Field(description="Name of the profile: spec.schedulerName of a pod")
    resource_version: int | None = Field(description="Newest version of the profile that was seen")
    spec: dict[str, Any] | None = Field(description="Filters and scores, as in a SchedulingProfile")


class ProfileDetail(Profile):
    """A profile, or one revision of it, with its history."""

    in_force: bool = Field(description="Whether pods are placed by this revision now")
    revisions: list[ProfileRevision] = Field(description="Its revisions, latest first")


class Shard(Shape):
    """A share of the pods, owned by one worker at a time."""

    shard: int = Field(description="Number of the shard, from 0")
    owner: str | None = Field(description="Worker that holds the lease")
    epoch: int = Field(description="Counts the owners; older ones are refused")
    lease_until: str | None = Field(description=f"End of the lease if it is not renewed ({INSTANT})")
    decisions: int = Field(description="Decisions committed")
    published: int = Field(description="Decisions published to the decisions topic")
    deadletters: int = Field(description="Dead letters recorded")
    relay: str | None = Field(description="Relay that publishes the shard")
    log_time: str | None = Field(description=f"Time of the last event folded ({INSTANT})")
    offsets: list[Offset] = Field(description="How far the shard has read")


class DeadLetter(Shape):
    """A record that could not be accepted."""

    id: str = Field(description="<shard>-<seq>")
    topic: str = Field(description="Topic that it was read from")
    partition: int = Field(description="Partition that it was read from")
    offset: int = Field(description="Offset that it was read at")
    key: str | None = Field(description="Key of the record, where it is text")
    code: str = Field(description="Stable name of the reason")
    path: str = Field(description="Path of the field that is wrong")
    message: str = Field(description="What is wrong and what is allowed")
    at: str | None = Field(description=f"When the record was appended ({INSTANT})")
    raw_base64: str = Field(description="The record's bytes")
    raw_text: str | None = Field(description="The record's bytes as text, where they are UTF-8")


NEXT = "Pass as `cursor` to get the next page; null: this was the last"


class NodePage(Shape):
    """A page of nodes."""

    items: list[Node] = Field(description="Nodes by name")
    next: str | None = Field(description=NEXT)


class PodPage(Shape):
    """A page of pods."""

    items: list[PodState] = Field(description="Pods by uid")
    next: str | None = Field(description=NEXT)


class DecisionPage(Shape):
    """A page of decisions."""

    items: list[Decision] = Field(description="Decisions in commit order of their shard")
    next: str | None = Field(description=NEXT)


class PendingPage(Shape):
    """All groups of pending pods."""

    items: list[PendingGroup] = Field(description="Groups, largest first")
    next: str | None = Field(description=NEXT)


class ProfilePage(Shape):
    """A page of profiles."""

    items: list[Profile] = Field(description="Profiles in force, by name")
    next: str | None = Field(description=NEXT)


class ShardPage(Shape):
    """All shards."""

    items: list[Shard] = Field(description="Shards by number")
    next: str | None = Field(description=NEXT)


class DeadLetterPage(Shape):
    """A page of dead letters."""

    items: list[DeadLetter] = Field(description="Dead letters, latest first")
    next: str | None = Field(description=NEXT)


class Health(Shape):
    """Whether the process can serve."""

    status: str = Field(description="ok or not-ready")
    checks: dict[str, str] = Field(description="Per part: ok, or what is wrong and what to do")
