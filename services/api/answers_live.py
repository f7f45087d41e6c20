"""The API's answers of the stream of events: what happened to a node, and to a shard."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from services.api.answers import Taint
from services.api.answers_decisions import INSTANT, QUANTITIES, SENT_BY, about


class NodeChange(Struct, kw_only=True):
    """A node as its producer said it: the fields of `/v1/nodes/{name}` that do not change with its pods."""

    name: Annotated[str, about("Name of the node")]
    deleted: Annotated[bool, about("Whether it was deleted")]
    ready: Annotated[bool | None, about("What its Ready condition says; null where it says nothing")]
    unschedulable: Annotated[bool, about("Whether it is cordoned")]
    labels: Annotated[dict[str, str], about("Its labels")]
    taints: Annotated[list[Taint], about("Its taints")]
    allocatable: Annotated[dict[str, str], about(f"What it offers: {QUANTITIES}")]
    spec_changed_at: Annotated[str, about(f"Log time of the batch that took it ({INSTANT})")]
    spec_sent_by: Annotated[str | None, about(SENT_BY)]


class ShardChange(Struct, kw_only=True):
    """A worker took a shard."""

    shard: Annotated[int, about("Number of the shard, from 0")]
    owner: Annotated[str | None, about("Name of the worker; null: it is not kept any more")]
    epoch: Annotated[int, about("Counts the owners of the shard")]
    first_batch_at: Annotated[
        str, about(f"Log time of the first batch that it made with the shard ({INSTANT})")
    ]
