"""Answers about what would cure pods that wait."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Struct

from services.api.answers import PendingGroup, Taint
from services.api.answers_decisions import INSTANT, QUANTITIES, about

Kind = Literal[
    "repair-node", "lift-gates", "smaller-gang", "tolerate", "drop-selector", "drop-requirement", "drop-port",
    "relax-spread", "drop-term", "more-room", "leave", "raise-priority", "more-nodes",
]  # fmt: skip


State = Literal["waiting", "fits", "nominated", "bound"]


class Change(Struct, kw_only=True, omit_defaults=True):
    """One thing to change. Of the fields those are there that its kind has."""

    kind: Annotated[Kind, about("What is changed; docs/why.md has a line for each kind")]
    does: Annotated[str, about("The change in words")]
    node: Annotated[str | None, about("The node that it is about")] = None
    zone: Annotated[str | None, about("The zone of that node")] = None
    amounts: Annotated[
        dict[str, str] | None, about(f"more-room: what the node lacks for one pod: {QUANTITIES}")
    ] = None
    uncordon: Annotated[bool | None, about("repair-node: whether it is cordoned now")] = None
    taints: Annotated[
        list[Taint] | None, about("tolerate: what to tolerate; repair-node: what goes when it is well")
    ] = None
    gates: Annotated[list[str] | None, about("lift-gates: the gates")] = None
    key: Annotated[str | None, about("drop-selector, drop-requirement: label, or field, of nodes")] = None
    values: Annotated[list[str] | None, about("drop-selector, drop-requirement: what it may be now")] = None
    operator: Annotated[str | None, about("drop-requirement: In, NotIn, Exists, DoesNotExist, Gt, Lt")] = None
    excludes: Annotated[int | None, about("drop-selector, drop-requirement: nodes without it")] = None
    at: Annotated[
        int | None, about("drop-requirement, relax-spread, drop-term: its place in the list, from 0")
    ] = None
    topology_key: Annotated[str | None, about("relax-spread, drop-term: the label it is over")] = None
    max_skew: Annotated[
        int | None, about("relax-spread: the smallest that does; absent: ScheduleAnyway is needed")
    ] = None
    anti: Annotated[bool | None, about("drop-term: whether the term is one of anti-affinity")] = None
    port: Annotated[int | None, about("drop-port: the port of the node")] = None
    pods: Annotated[
        list[str] | None, about("leave: the pods, as namespace/name, of namespaces that the key sees")
    ] = None
    pods_of_others: Annotated[
        int | None, about("leave: how many more leave, of namespaces that the key does not see")
    ] = None
    below: Annotated[int | None, about("leave: all of them have a priority below this one")] = None
    budgets: Annotated[
        list[str] | None, about("leave: disruption budgets that do not let all of them go; seen ones alone")
    ] = None
    budgets_of_others: Annotated[
        bool | None, about("leave: whether a budget of a namespace that the key does not see does not, too")
    ] = None
    priority: Annotated[int | None, about("raise-priority: the lowest that does")] = None
    victims: Annotated[
        int | None, about("raise-priority: how many pods would be evicted for all that it cures")
    ] = None
    gang: Annotated[str | None, about("smaller-gang: the gang, as namespace/name")] = None
    min_member: Annotated[int | None, about("smaller-gang: the largest that does")] = None
    like: Annotated[str | None, about("more-nodes: the node that a new one is like")] = None
    count: Annotated[int | None, about("more-nodes: how many of them")] = None


class Cure(Struct, kw_only=True):
    """One or two changes with which a dry run of the engine placed pods of the group."""

    does: Annotated[str, about("All of it in words")]
    changes: Annotated[list[Change], about("What to change: one thing, or two together")]
    pods: Annotated[int, about("How many pods were placed")]
    tried: Annotated[int, about("Of how many: those that wait and that the key sees, 1000 at most")]
    all: Annotated[bool, about("Whether that is every pod that was tried")]


class Why(Struct, kw_only=True):
    """Why pods wait, and what would cure them, as far as a search found out."""

    namespace: Annotated[str, about("Namespace of the pod that was looked at")]
    name: Annotated[str, about("Its name")]
    state: Annotated[
        State,
        about("`fits`: a node has room now, and its turn is to come; `nominated`: one is set aside for it"),
    ]
    node: Annotated[str | None, about("The node that would take it, is set aside, or has it; null: none")]
    summary: Annotated[str, about("All of it in a few sentences")]
    reasons: Annotated[dict[str, int], about("Nodes per reason code of the first filter that refuses it")]
    unresolvable: Annotated[bool, about("Whether no node would fit even if all other pods left")]
    held_by: Annotated[list[str], about("Reason codes for which no node is looked at")]
    group: Annotated[PendingGroup | None, about("Its group, as /v1/pending has it; null: it waits no more")]
    cures: Annotated[list[Cure], about("Cures of all pods first, then the smallest first")]
    reached: Annotated[
        bool,
        about("Whether the search came to its end; false: there may be smaller cures"),
    ]
    dry_runs: Annotated[int, about("How many dry runs it took")]
    looked_at: Annotated[str, about(f"The ledger as of then was searched ({INSTANT}, log time)")]
    age_seconds: Annotated[float, about("How long ago that was read")]
