"""The API's answers about the past: one history of a pod, a node, a shard or a profile."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct

from services.api.answers import NodeAction, Page
from services.api.answers_decisions import INSTANT, Decision, RefusedAttempts, about
from services.api.answers_live import NodeChange


class HistoryEntry(Struct, kw_only=True):
    """One thing that happened. The field of its kind has all of it, as the other answers show it."""

    at: Annotated[str, about(f"Log time ({INSTANT}); of owners and log faults the database's")]
    recorded_at: Annotated[str | None, about(f"When it became durable ({INSTANT}); null: it is not kept")]
    kind: Annotated[
        str, about("decision, attempt, action, spec, owner, log-fault or revision: what happened")
    ]
    id: Annotated[str | None, about("Its id, or its number, where it has one")]
    says: Annotated[str, about("What happened, in a sentence")]
    links: Annotated[dict[str, str], about("Where the API shows what it names: by what that is to it")] = {}
    decision: Annotated[Decision | None, about("Of a decision")] = None
    attempt: Annotated[RefusedAttempts | None, about("Of attempts that refused the pod alike")] = None
    action: Annotated[NodeAction | None, about("Of what an agent did")] = None
    spec: Annotated[NodeChange | None, about("Of a node that its producer changed")] = None
    facts: Annotated[dict[str, Any], about("Of the other kinds: what the ledger keeps of it")] = {}


class WhyNow(Struct, kw_only=True):
    """What made room for a pod that had waited, as far as the ledger says."""

    decision: Annotated[str, about("Id of the decision that placed it")]
    node: Annotated[str, about("The node that it got")]
    refused_at: Annotated[
        str | None, about(f"The last attempt before that failed ({INSTANT}); null: none did")
    ]
    reasons: Annotated[dict[str, int], about("Nodes per reason code at that attempt")]
    changed: Annotated[
        list[HistoryEntry],
        about("What happened on the node between the two, the oldest first; the first few"),
    ]
    summary: Annotated[str, about("The same in sentences")]


class JournalSpan(Struct, kw_only=True):
    """What is kept of a shard's journal."""

    first: Annotated[int, about("Number of the first batch that is kept")]
    last: Annotated[int, about("Number of the last batch")]
    missing: Annotated[int, about("Batches between them that are not kept")]


class HistoryPage(Page[HistoryEntry]):
    """A part of a history: by log time, of one moment by when it was recorded."""

    of: Annotated[str, about("What it is the history of")]
    why_now: Annotated[WhyNow | None, about("Of a pod that is placed, on the first page")] = None
    journal: Annotated[JournalSpan | None, about("Of a shard: what is kept of what its owners did")] = None
