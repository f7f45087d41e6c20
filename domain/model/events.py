"""What can happen to the cluster: the only things that ``ClusterState.apply`` accepts."""

from __future__ import annotations

import msgspec

from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec


class NodeUpserted(msgspec.Struct, frozen=True, gc=False):
    """A node was added or modified."""

    node: NodeSpec


class NodeDeleted(msgspec.Struct, frozen=True, gc=False):
    """A node went away; an empty ``uid`` (a tombstone of the compacted topic) means whichever is known."""

    name: str
    uid: str = ""
    resource_version: int | None = None


class PodUpserted(msgspec.Struct, frozen=True, gc=False):
    """A pod was added or modified."""

    pod: PodSpec


class PodDeleted(msgspec.Struct, frozen=True, gc=False):
    """A pod went away; an empty ``uid`` (a tombstone of the compacted topic) means whichever is known."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: int | None = None


Event = NodeUpserted | NodeDeleted | PodUpserted | PodDeleted
