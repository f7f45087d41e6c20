"""The co-location policies in force, and which of them holds on a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from domain.model.colocation import DEFAULT_POLICY, OF_ALL_NODES, CoLocationPolicy
from domain.model.config import ConfigObject


class PolicyInForce(NamedTuple):
    """What holds on a node: a policy, with what the policy of all nodes says of all of them.

    ``name`` and ``resource_version`` are those of the object, "" and None where there is none.
    """

    name: str
    resource_version: int | None
    policy: CoLocationPolicy

    @property
    def reference(self) -> str:
        """``name@version``, with version 0 where the producer said none; "" of the defaults."""
        return f"{self.name}@{self.resource_version or 0}" if self.name else ""


NO_POLICY = PolicyInForce("", None, DEFAULT_POLICY)
"""What holds where no object does: the defaults."""


class Policies:
    """The policies that were sent and are not gone.

    Attributes
    ----------
    of_all : PolicyInForce
        The one without a selector, of several the first by name: what it says of estimates, replicas and
        prices holds on all nodes.
    version : int
        Moves with each change: what was asked before is to be asked again.
    reads_requests : bool
        Whether what any of them lends follows from requests, too, and not from measured use alone.
    """

    def __init__(self) -> None:
        self.of_all = NO_POLICY
        self.version = 0
        self.reads_requests = False
        self._known: dict[str, ConfigObject] = {}
        self._ordered: list[PolicyInForce] = []  # the first that matches a node holds there

    def put(self, thing: ConfigObject) -> None:
        """Let a policy be in force, or no longer. Cost: O(policies in force)."""
        self._known.pop(thing.name, None)
        if thing.content is not None:
            self._known[thing.name] = thing
        found = [_in_force(self._known[name]) for name in sorted(self._known)]
        self.of_all = next((each for each in found if not each.policy.node_selector), NO_POLICY)
        shared = {name: getattr(self.of_all.policy, name) for name in OF_ALL_NODES}
        self._ordered = sorted(
            (each._replace(policy=msgspec.structs.replace(each.policy, **shared)) for each in found),
            key=lambda each: -len(each.policy.node_selector),  # stable: of equals the first by name
        )
        self.reads_requests = any(each.policy.view.reads_requests for each in found)
        self.version += 1

    def of(self, labels: Mapping[str, str]) -> PolicyInForce:
        """Return what holds on a node with these labels.

        Among the policies whose selector matches it is the one with the most labels, of equals the first by
        name. Cost: O(policies in force).
        """
        for each in self._ordered:
            if each.policy.node_selector.items() <= labels.items():
                return each
        return NO_POLICY


def _in_force(thing: ConfigObject) -> PolicyInForce:
    assert isinstance(thing.content, CoLocationPolicy)
    return PolicyInForce(thing.name, thing.resource_version, thing.content)
