"""Matchers: the sets of pods that rules count by domain, as workers tell each other which are in use.

The version of a node guards what is on the node. A rule over a zone reads what is on many nodes, so two
workers could each place a pod that is right by itself and wrong beside the other one. So each set of pods
that such rules count has a version of its own in the ledger. A worker that places a pod that reads it, or
that counts in it, names the version that it saw and raises it. A set that is new is announced first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import chain, takewhile

import msgspec

from domain.counting.counted import Counted
from domain.model.anchors import EVERY, anchors_of_pod
from domain.model.pods import PodSpec
from domain.plugins.spread_constraints import HOSTNAME
from domain.plugins.weighers import Match, NamespaceLabels

EVERYWHERE = EVERY
"""The key of what is announced to all namespaces, as a matcher looks at namespaces by their labels."""


class Matcher(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods that some rule counts; ``spans``: in domains of many nodes, which no version of a node guards."""

    match: Match
    spans: bool

    @property
    def key(self) -> str:
        """The same text for the same matcher, whichever worker made it."""
        return msgspec.json.encode(self).decode()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The keys of where its pods may be."""
        return self.match.namespaces if self.match.namespace_selector is None else (EVERYWHERE,)


_decode = msgspec.json.Decoder(Matcher).decode


def matchers_of(counted: Counted) -> tuple[Matcher, ...]:
    """Return the matchers of a group's own rules. Rules by other pods' terms have none of their own."""
    found: dict[Matcher, None] = {}
    for rule in counted.placed:
        key = rule.counter.topology_key
        if key:
            spans = key != HOSTNAME and not rule.counter.by_row
            for all_of, _ in rule.counter.weigher.matches:
                found.update((Matcher(match, spans), None) for match in all_of)
    return tuple(found)


class Needs:
    """What a batch reads and raises, and on which nodes it placed the pods for which it does.

    Attributes
    ----------
    reads, raises, announces : dict
        Key -> names of nodes: namespaces in which no unknown matcher may be in use; matchers that a pod reads
        or counts in, and budgets of victims; new matchers.
    """

    def __init__(self) -> None:
        self.reads: dict[str, set[str]] = {}
        self.raises: dict[str, set[str]] = {}
        self.announces: dict[str, set[str]] = {}


class KnownMatchers:
    """The matchers that are announced, and the versions of all keys as far as this worker has followed.

    Attributes
    ----------
    now_ms : int
        Log time.
    """

    def __init__(self, versions: Mapping[str, int], now_ms: int = 0) -> None:
        self.versions: dict[str, int] = {}
        self.now_ms = now_ms
        self._used_ms: dict[str, int] = {}  # matcher -> when it came or was raised last, in this order
        self._anchored: dict[Hashable, list[tuple[str, Matcher]]] = {}
        for key, version in sorted(versions.items()):
            self._know(key)
            self.versions[key] = version

    def raised(self, keys: Iterable[str]) -> None:
        """Take note that a batch raised these keys, or dropped those behind a minus."""
        for key in keys:
            if key.startswith("-"):
                self._drop(key[1:])
                continue
            self._know(key)
            self.versions[key] = self.versions.get(key, 0) + 1

    def idle(self, before_ms: int) -> Iterator[str]:
        """Yield the matchers that no worker has used since then, the longest ago first."""
        return takewhile(lambda key: self._used_ms[key] < before_ms, self._used_ms)

    def _drop(self, key: str) -> None:
        if self.versions.pop(key, None) is None:
            return
        self._used_ms.pop(key, None)
        for anchor in chain.from_iterable(_anchors(_decode(key))):
            if anchor in self._anchored:
                left = [each for each in self._anchored[anchor] if each[0] != key]
                self._anchored[anchor] = left
                if not left:
                    del self._anchored[anchor]

    def _know(self, key: str) -> None:
        if not key.startswith("{"):
            return
        self._used_ms.pop(key, None)
        self._used_ms[key] = self.now_ms
        if key not in self.versions:
            matcher = _decode(key)
            # Each rollout may bring a matcher that differs by one label from those before: the least crowded
            # of its anchors finds it.
            for anchor in min(_anchors(matcher), key=self._crowd):
                self._anchored.setdefault(anchor, []).append((key, matcher))

    def _crowd(self, anchors: Iterable[Hashable]) -> int:
        return sum(len(self._anchored.get(anchor, ())) for anchor in anchors)

    def need(
        self, needs: Needs, pod: PodSpec, node: str, own: Iterable[Matcher], labels: NamespaceLabels
    ) -> bool:
        """Add what placing a pod on a node needs; say whether a pod on the same node may shun it.

        ``labels`` are those of namespaces. Cost: O(labels of the pod), and matchers that share its anchors.
        """
        for namespace in (pod.namespace, EVERYWHERE):
            needs.reads.setdefault(namespace, set()).add(node)
        spanning, shuns = {matcher.key for matcher in own if matcher.spans}, False
        for key, matcher in self.near(pod):
            if matcher.match.matches(pod, labels):
                if matcher.spans:
                    spanning.add(key)
                else:
                    shuns = True
        for key in spanning:
            if key in self.versions:
                needs.raises.setdefault(key, set()).add(node)
        for matcher in own:
            if matcher.key not in self.versions:
                needs.announces.setdefault(matcher.key, set()).add(node)
        return shuns

    def near(self, pod: PodSpec) -> Iterator[tuple[str, Matcher]]:
        """Yield matchers that share an anchor with a pod."""
        for anchor in anchors_of_pod(pod.namespace, pod.labels):
            yield from self._anchored.get(anchor, ())


def _anchors(matcher: Matcher) -> Iterator[tuple[Hashable, ...]]:
    """Yield sets of anchors; of each, every pod of the matcher has one."""
    yield tuple((namespace, "", "") for namespace in matcher.namespaces)
    for each in matcher.match.selector.requirements:
        if each.operator == "In":
            yield tuple((at, each.key, value) for at in matcher.namespaces for value in each.values)


def announced_to(key: str) -> tuple[str, ...]:
    """Return the keys of the namespaces in which the pods of a matcher may be."""
    return _decode(key).namespaces
