"""Events: what happens to the cluster (``ClusterState.apply`` takes these) and to the profiles."""

from __future__ import annotations

import msgspec

from domain.model.actions import NodeAction
from domain.model.config import Content
from domain.model.nodes import NodeSpec
from domain.model.pods import PodSpec
from domain.model.profiles import Profile
from domain.model.usage import NodeUsage


class NodeUpserted(msgspec.Struct, frozen=True, gc=False):
    """A node was added or modified."""

    node: NodeSpec


class NodeDeleted(msgspec.Struct, frozen=True, gc=False):
    """A node was deleted.

    An empty ``uid``, a tombstone of the compacted topic, means any node of the name.
    """

    name: str
    uid: str = ""
    resource_version: int | None = None


class PodUpserted(msgspec.Struct, frozen=True, gc=False):
    """A pod was added or modified.

    ``priority_class`` names the class by which it has its priority, "" for the default one; None where the
    pod says its priority itself.
    """

    pod: PodSpec
    priority_class: str | None = None


class BindFailed(msgspec.Struct, frozen=True, gc=False):
    """The binder could not bind a pod to ``node``, where berth had placed it. ``pod``: as it is."""

    pod: PodUpserted
    node: str


class PodDeleted(msgspec.Struct, frozen=True, gc=False):
    """A pod was deleted. An empty ``uid``, a tombstone of the compacted topic, means any pod of the name."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: int | None = None


class NodeUsed(msgspec.Struct, frozen=True, gc=False):
    """The usage of a node was measured."""

    usage: NodeUsage


class NodeActed(msgspec.Struct, frozen=True, gc=False):
    """The agent of a node did something there. It changes nothing that anything is decided by."""

    action: NodeAction


class ConfigUpserted(msgspec.Struct, frozen=True, gc=False):
    """A configuration object other than a profile was added or modified."""

    kind: str
    namespace: str
    name: str
    content: Content
    resource_version: int | None = None


class ConfigDeleted(msgspec.Struct, frozen=True, gc=False):
    """A configuration object other than a profile went away."""

    kind: str
    namespace: str
    name: str
    resource_version: int | None = None


class ProfileUpserted(msgspec.Struct, frozen=True, gc=False):
    """A profile was added or modified. The fold numbers its revision."""

    profile: Profile
    resource_version: int | None = None


class ProfileDeleted(msgspec.Struct, frozen=True, gc=False):
    """A profile was deleted. A built-in one of that name is in force again."""

    name: str
    resource_version: int | None = None


ConfigEvent = ConfigUpserted | ConfigDeleted
PodEvent = PodUpserted | BindFailed | PodDeleted
Event = NodeUpserted | NodeDeleted | NodeUsed | NodeActed | PodEvent | ConfigEvent
ProfileEvent = ProfileUpserted | ProfileDeleted
