"""Guards: what a batch must be sure of beyond the nodes on which it places pods.

These are matchers (``domain/counting/matchers.py``), and disruption budgets: two workers could each evict a
pod that a budget lets go, from a node of its own, where it lets one of them go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec


class Guard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A key, and the nodes whose pods must wait again where it is not as it was seen.

    Attributes
    ----------
    key : str
        A namespace, ``*``, a matcher, or a disruption budget (``budget_key``).
    version_seen : int
        As far as the worker has followed; 0: no batch announced or raised the key, -1: surely not as it is.
    raises : bool
        The pods read the matcher, or count in it, or have victims that the budget counts: its version goes up
        with them.
    announces_to : tuple of str
        The matcher is new: its pods wait again at once, and the keys of these namespaces go up. A worker
        that has not followed that far places no pod in them.
    drops : bool
        No worker has used the matcher for long: it goes, unless one uses it now. One that needs it again
        announces it again.
    nodes : frozenset of int
        Ids of the nodes on which the batch places these pods.
    """

    key: str
    version_seen: int
    raises: bool = False
    announces_to: tuple[str, ...] = ()
    drops: bool = False
    nodes: frozenset[int] = frozenset()


class GuardRow(NamedTuple):
    """A key in the ledger. ``batches`` are the last ones, by shard, until the key came."""

    version: int
    batches: Mapping[int, int]


def refused_nodes(
    guards: Iterable[Guard], found: Mapping[str, GuardRow], followed: Mapping[int, int], own: Collection[int]
) -> set[int]:
    """Return the ids of nodes whose claims are not granted, by what the ledger holds of the keys.

    Parameters
    ----------
    guards : iterable of Guard
        Of a batch.
    found : mapping of str to GuardRow
        Keys of the guards, as they are. A key that another batch is about to raise is missing; one that
        no batch raised before is there (``first_keys``).
    followed : mapping of int to int
        Shard -> the last batch of another worker that this worker had followed. A reader of a matcher
        must have followed all that could not know of it.
    own : collection of int
        The shards of this worker: it has followed the journal of each to the end.
    """
    refused: set[int] = set()
    for guard in guards:
        row = found.get(guard.key, GuardRow(0, {}))
        is_behind = guard.raises and any(
            at not in own and followed.get(at, 0) < batch for at, batch in row.batches.items()
        )
        is_held = guard.raises and guard.key not in found
        if guard.announces_to or row.version != guard.version_seen or is_behind or is_held:
            refused |= guard.nodes
    return refused


def budget_key(name: str) -> str:
    """Return the key of a disruption budget, named with its namespace. No namespace has a colon."""
    return f"budget:{name}"


def first_keys(guards: Iterable[Guard]) -> list[str]:
    """Return the keys that a batch is to raise and none has, so that two batches do not both come first."""
    return sorted(guard.key for guard in guards if guard.raises and not guard.version_seen)


def raised_keys(guards: Iterable[Guard], lost_nodes: Set[int]) -> list[str]:
    """Return the matchers and budgets that go up with what a batch does after all."""
    return sorted(guard.key for guard in guards if guard.raises and not guard.nodes <= lost_nodes)


def dropped_keys(guards: Iterable[Guard], found: Mapping[str, GuardRow]) -> list[str]:
    """Return the matchers that go, as the journal tells it among the keys that go up: behind a minus."""
    return sorted(
        f"-{guard.key}"
        for guard in guards
        if guard.drops and guard.key in found and found[guard.key].version == guard.version_seen
    )


def announced_keys(guards: Sequence[Guard], found: Mapping[str, GuardRow]) -> list[str]:
    """Return the new matchers that were not announced meanwhile, and the namespaces that are told of them."""
    new = [guard for guard in guards if guard.announces_to and guard.key not in found]
    return sorted({guard.key for guard in new} | {key for guard in new for key in guard.announces_to})
