"""The API's answers about decisions: what was decided, the cycle behind it, and what that was made of."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from domain.model.decisions import Outcome

INSTANT = "RFC 3339, UTC"
QUANTITIES = "Kubernetes quantities by resource name, such as cpu 500m or memory 16Gi"
QUALITY = (
    "What the pod was promised, by its QoS class: high (Guaranteed), mid (Burstable) or low (BestEffort)"
)

SENT_BY = (
    "Who sent the event: key:<name>, anonymous or local:<user> through the API; direct: written to the log "
    "without it; unverified: with a name that no API of this ledger sealed; null: from before this was noted"
)


def about(text: str) -> Meta:
    """Describe a field."""
    return Meta(description=text)


class PodRef(Struct, kw_only=True):
    """Which pod a decision is about."""

    namespace: Annotated[str, about("Namespace of the pod")]
    name: Annotated[str, about("Name of the pod")]
    uid: Annotated[str, about("Unique id of the pod")]
    resource_version: Annotated[int | None, about("Version of the pod that was decided on")]


class Preemption(Struct, kw_only=True):
    """Which pods have to leave, and for which. A key with namespaces does not see what names other pods."""

    victims: Annotated[list[str], about("nominated: uids of the pods that have to leave the node")] = []
    violations: Annotated[int | None, about("nominated: how many disruption budgets that breaks")] = None
    expires_at: Annotated[str | None, about(f"nominated: when the nomination ends ({INSTANT}, log time)")] = (
        None
    )
    preemptor: Annotated[str | None, about("evicted, spared: uid of the pod for which it has to leave")] = (
        None
    )
    priority: Annotated[int | None, about("evicted, spared: the priority of that pod")] = None
    nominated: Annotated[str | None, about("evicted, spared: id of that pod's decision")] = None
    shard: Annotated[
        int | None,
        about("evicted, spared: partition of berth.pods in which its end is said; null: its key's"),
    ] = None


class Migration(Struct, kw_only=True):
    """Why a pod has to leave a hot node, and where another one like it would go."""

    source: Annotated[str, about("The hot node")] = field(name="from")
    why: Annotated[list[str], about("By what it is hot, in plain words")]
    relief: Annotated[
        dict[str, int],
        about("What the pod is expected to use: cpu in thousandths of a core, memory in bytes"),
    ]
    to: Annotated[str, about("Where a dry run found room for it; nothing is kept free there")]
    shard: Annotated[
        int | None, about("Partition of berth.pods in which its end is said; null: its key's")
    ] = None


class Decision(Struct, kw_only=True):
    """The immutable outcome for one pod: the record of berth.decisions, and where it is explained."""

    id: Annotated[str, about("<shard>-<seq>")]
    shard: Annotated[int, about("Shard that decided")]
    seq: Annotated[int, about("Number of the decision in its shard, from 1 without a hole")]
    epoch: Annotated[int, about("Ownership of the shard under which it was decided")]
    pod: Annotated[PodRef, about("The pod")]
    outcome: Annotated[Outcome, about("; ".join(f"{each}: {each.says}" for each in Outcome))]
    node: Annotated[str | None, about("The node, where there is one")]
    devices: Annotated[list[int], about("Devices (GPUs) of the node that the pod has, or had, from 0")] = []
    node_version: Annotated[int | None, about("Change counter of the node after this decision")] = None
    decided_at: Annotated[str, about(f"Log time of the decision ({INSTANT})")]
    event_at: Annotated[str | None, about("When the pod's event happened, as its `at` claims")] = None
    sent_by: Annotated[str | None, about(SENT_BY)] = None
    recorded_at: Annotated[str | None, about(f"When it became durable ({INSTANT}, the database's clock)")] = (
        None
    )
    profile: Annotated[str, about("Profile that the pod names")]
    profile_revision: Annotated[int | None, about("Its revision then, where a profile was asked")]
    reason: Annotated[str, about("Reason, where the outcome has one")]
    reasons: Annotated[dict[str, int], about("Nodes per reason code, where no node was found")] = {}
    warnings: Annotated[list[str], about("What of the pod had no say in it, as ignored:<code>")] = []
    score: Annotated[float | None, about("Total score of the node when it was chosen")]
    preemption: Annotated[
        Preemption | None, about("Which pods have to leave, and for which pod; null: none has to")
    ] = None
    migration: Annotated[Migration | None, about("evicted: from a hot node; null: from no such")] = None
    requests: Annotated[
        dict[str, str], about(f"What the pod asked for, or held until it was released: {QUANTITIES}")
    ] = {}
    signature: Annotated[str, about("Hex signature of the equivalence group")] = ""
    cycle: Annotated[str | None, about("Id of the cycle that explains it")] = None


class SumOfNode(Struct, kw_only=True):
    """What a node offers of a resource, and what the pods on it hold."""

    allocatable: Annotated[str, about("What the node offers, as a quantity")]
    requested: Annotated[str, about("What its pods request together, without the pod itself")]


class Figures(Struct, kw_only=True):
    """What was measured of one resource of a node, in percent of what the node has; null: not measured."""

    avg: Annotated[float | None, about("Average over the window")]
    std: Annotated[float | None, about("Standard deviation over the window (of the population)")]
    latest: Annotated[float | None, about("Latest value in the window")]
    peak_yesterday: Annotated[float | None, about("Highest value of the UTC day before the latest one")]


class UsageThen(Struct, kw_only=True):
    """What was measured of a node when it was looked at."""

    at: Annotated[str | None, about(f"Time of the latest measurement ({INSTANT}); null: there was none")]
    resources: Annotated[dict[str, Figures], about("Figures by resource")]


class CandidateInputs(Struct, kw_only=True):
    """What a candidate was scored from."""

    node_version: Annotated[
        int | None, about("The node's version just before; kept where the profile reads measured usage")
    ]
    resource_version: Annotated[
        int | None, about("Version of the node's spec that its producer gave; kept where usage is")
    ]
    sums: Annotated[
        dict[str, SumOfNode],
        about("What filters and scores read as sums; names with ~ are explained in docs/explanations.md"),
    ]
    usage: Annotated[
        UsageThen | None,
        about("What was measured, as the profile's plugins read it; null where they do not"),
    ]


class Extremes(Struct, kw_only=True):
    """What the raw values of a score were normalised with."""

    low: Annotated[float | None, about("Lowest raw score of the feasible nodes; null: none was a number")]
    high: Annotated[float | None, about("Highest raw score of the feasible nodes; null: as for low")]
    nodes: Annotated[int, about("Of a variance: nodes that count in it")]
    metrics_sum: Annotated[int, about("Of a variance: the sum of their metrics, in units of 2^-20")]
    further: Annotated[
        list[tuple[int, int]],
        about("Of variances in sum: nodes and sum of metrics of each resource but the first"),
    ]


class Candidate(Struct, kw_only=True):
    """A node that could have been chosen."""

    node: Annotated[str, about("The node")]
    score: Annotated[float, about("Its total score: the sum of its parts, each times its weight")]
    parts: Annotated[dict[str, float], about("Its score per plugin, 0 to 100, before the weight")]
    inputs: Annotated[
        CandidateInputs | None,
        about(
            "What it was scored from: of all candidates where the profile reads measured usage, else of the "
            "first two"
        ),
    ]


class RuleSeen(Struct, kw_only=True):
    """A rule over what other pods count by domain, and what it saw when it refused nodes."""

    reason: Annotated[str, about("Reason code of the nodes that it refused")]
    text: Annotated[str, about("The rule itself: topology key, bound, and which pods count")]
    count_max: Annotated[
        int | None, about("Highest count of a domain that passes; null: at least one pod is needed")
    ] = None
    count_min: Annotated[
        int | None, about("Lowest count of all domains; null: the rule does not compare with it")
    ] = None
    domains: Annotated[
        dict[str, int], about("Some of the domains with more than that: value of the topology key -> count")
    ] = {}


class ExplainedAttempt(Struct, kw_only=True):
    """One scheduling attempt of one equivalence group."""

    id: Annotated[str, about("<shard>-<seq of its first decision>")]
    profile: Annotated[str, about("Profile that was used")]
    profile_revision: Annotated[int, about("Revision of the profile")]
    weights: Annotated[dict[str, float], about("Weight of each score of the profile, by the name in `parts`")]
    seed: Annotated[int, about("Seed of tie-breaking")]
    generation: Annotated[int, about("Generation of the snapshot that was looked at")]
    looked_at: Annotated[str | None, about(f"When it was looked at ({INSTANT}, log time)")]
    repeated_at_generation: Annotated[
        int | None,
        about(
            "Generation at which the verdict was only repeated, for further pods of a parked group; null: it "
            "is no repetition"
        ),
    ]
    nodes: Annotated[int, about("Nodes that were there")]
    nodes_home: Annotated[
        int | None,
        about(
            "Nodes that were looked at, where these were the home nodes alone and all pods of the attempt "
            "found one; null: all nodes were"
        ),
    ]
    feasible: Annotated[int, about("Nodes that passed all filters")]
    unresolvable: Annotated[int, about("Nodes that would not fit even if all their pods left")]
    reasons: Annotated[
        dict[str, int],
        about("Nodes per reason code of the first filter that failed, for the first pod"),
    ]
    rules: Annotated[
        list[RuleSeen],
        about(
            "Rules over other pods that refused nodes, for the first pod without a node, or else the first"
        ),
    ]
    candidates: Annotated[list[Candidate], about("Best nodes, best first, as the first pod saw them")]
    extremes: Annotated[dict[str, Extremes], about("What scores were normalised with, by score")]
    pods: Annotated[int, about("Pods of the group in this attempt")]
    bound: Annotated[int, about("Pods that got a node")]
    duration_us: Annotated[
        int,
        about("Microseconds in which the worker placed all pods of the batch, this attempt's among them"),
    ]


class RefusedAttempts(Struct, kw_only=True):
    """Attempts of a pod's group in a row that found no node, for the same reasons."""

    number: Annotated[int, about("Counts within the group; a hole is what was not kept")]
    since: Annotated[str, about(f"When the first of them was ({INSTANT}, log time)")]
    last_at: Annotated[str, about("When the last of them was that was noted")]
    until: Annotated[
        str | None, about("When the next one differed, or the pod waited no more; null: it holds still")
    ]
    times: Annotated[int, about("How many were noted: where pods began to wait, or the reasons were new")]
    profile: Annotated[str, about("Profile that was used")]
    profile_revision: Annotated[int | None, about("Its revision; null: there is no such profile")]
    nodes: Annotated[int, about("Nodes that were looked at: all of them")]
    reasons: Annotated[dict[str, int], about("Nodes per reason code")]
    unresolvable: Annotated[bool, about("Whether no node would fit even if all other pods left")]
    cycle: Annotated[str | None, about("Id of the cycle of the first of them, where a decision names it")]


class PodAttempts(Struct, kw_only=True):
    """Why a pod was refused: the attempts of its group while it waited, oldest first."""

    namespace: Annotated[str, about("Namespace of the pod")]
    name: Annotated[str, about("Name of the pod")]
    at: Annotated[str | None, about(f"The moment that was asked for ({INSTANT}); null: all of the time")]
    state: Annotated[str, about("waiting, bound or gone at that moment (now, where none was asked for)")]
    node: Annotated[str | None, about("Where it was then")]
    items: Annotated[list[RefusedAttempts], about("What is kept of them, oldest first")]
    summary: Annotated[str, about("The same in words")]


class Explanation(Struct, kw_only=True):
    """Why a decision was what it was."""

    decision: Annotated[Decision, about("The decision")]
    requests: Annotated[dict[str, str], about(f"What the pod asks for: {QUANTITIES}")]
    template: Annotated[
        dict[str, Any],
        about("All of the pod that mattered for placing it, in canonical units; empty fields left out"),
    ]
    quality: Annotated[str | None, about(f"{QUALITY}; null: its template is not kept any more")] = None
    reasons: Annotated[
        dict[str, int],
        about(
            "Nodes per reason code, as the summary counts them: of a pod that waits, all nodes when its turn "
            "came; of a placed one, those that could not take the first pod of its group"
        ),
    ]
    cycle: Annotated[ExplainedAttempt | None, about("The attempt behind it; null where none was needed")]
    profile: Annotated[str | None, about("Where this API shows the revision of the profile that was used")]
    summary: Annotated[str, about("The same in words")]
