"""Nodes in the ledger, and what a batch adds to them."""

from __future__ import annotations

import msgspec

from domain.model.nodes import NodeSpec


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node in the ledger: ``id`` is its order of arrival, kept for ever.

    A deleted node keeps its row. ``spec`` is then its last spec, with the resource version of the deletion.
    ``version`` counts changes (of the spec, and pods that come and go), so that each decision can name the
    version that it led to; ``spec_count`` counts those of the spec.
    """

    id: int
    name: str
    version: int
    spec: NodeSpec | None
    requested: dict[str, int]
    spec_count: int = 1
    deleted: bool = False


class NodeUpdate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a batch adds to a node: ``changes`` to its version, ``delta`` to what is requested of it.

    ``delta`` is resource -> ±, ``pods`` included, without zeros. ``version_seen`` is the version that the
    worker knew before.
    """

    id: int
    name: str
    version_seen: int
    changes: int
    delta: dict[str, int]


class NodeFact(NodeUpdate, frozen=True, kw_only=True):
    """What events say of a node and of the pods on it. It holds whatever others did.

    With ``version_seen`` 0 the node is new. ``spec`` is None where only pods came and went. With a spec,
    ``deleted`` says whether the node is gone, and ``spec_count`` counts the changes of its spec, this one
    included; ``sent_by`` sent the event that changed it last. ``was_gone``: the node is there, and was not
    for a while within the batch, so nothing that was measured of it before holds.
    """

    spec: NodeSpec | None = None
    deleted: bool = False
    spec_count: int = 0
    sent_by: str | None = None
    was_gone: bool = False


class NodeClaim(NodeUpdate, frozen=True, kw_only=True, gc=False):
    """What pods that a cycle placed would take of a node, if no other worker was faster.

    It is granted where the spec and the version are as seen: ``version_seen`` is that after the facts of the
    same batch. Where only the version moved, it is granted if nothing but room decided (``resource_only``)
    and there is room yet. ``is_doubtful``: the version seen counts pods that lost, so it says nothing.
    """

    spec_count_seen: int
    resource_only: bool = False
    is_doubtful: bool = False
