"""Which labels tell pods apart: those keys and values that live selectors mention, by namespace.

A value that no selector mentions is the same as any other one: ``ANOTHER`` stands for it. So a selector that
only asks whether a job's index is there does not tell a million jobs apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from domain.model.anchors import EVERY
from domain.model.limits import label_keys_idle_max
from domain.model.pods import PodSpec
from domain.model.selectors import LabelSelector
from domain.state.pods import PodEntry

ANOTHER = "*"
"""A value that no selector mentions; no label has it."""

_ANY_POD = ""
"""The key that stands for the namespace alone: all of its pods have it."""

_KEYS_FEW = 8  # that are looked up in a pod's labels one by one

_Mentions = Counter[str]
"""How many selectors mention a value."""


class _Key(NamedTuple):
    """A key that tells the pods of a namespace apart: who mentions which value, and the pods by value."""

    name: str
    own: _Mentions
    every: _Mentions
    pods: dict[str, dict[str, None]]


class Watching:
    """Counts who mentions which values of which keys, and knows the pods that have such labels.

    What begins to be mentioned counts at once for pods that come; ``settle`` says which others it concerns,
    and which are concerned by what is mentioned no more. A key stays for a while after its last selector,
    as the next one may come soon; it then tells apart only who has it.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[str, _Mentions]] = {}  # by namespace and key
        self._users: Counter[tuple[str, str]] = Counter()  # of a key in a namespace
        self._idle: dict[tuple[str, str], None] = {}  # keys without users
        self._new: dict[tuple[str, str], None] = {}  # keys whose pods are not known yet
        self._moved: dict[tuple[str, str, str], None] = {}  # values that are mentioned now, or no more
        self._pods: dict[tuple[str, str], dict[str, dict[str, None]]] = {}  # keys of pods, by value
        self._keys: dict[str, dict[str, _Key]] = {}  # of a namespace, sorted

    @property
    def has_any(self) -> bool:
        """Whether any namespace is watched."""
        return bool(self._values)

    @property
    def is_settled(self) -> bool:
        """Whether ``settle`` has nothing to say."""
        return not (self._new or self._moved or len(self._idle) > label_keys_idle_max)

    def mention(self, namespace: str, selector: LabelSelector, change: int = 1) -> None:
        """Watch what a selector mentions, in a namespace (``EVERY``: in all), once more or once less."""
        keys = self._values.setdefault(namespace, {})
        for key in (_ANY_POD, *(each.key for each in selector.requirements)):
            place = namespace, key
            if key not in keys:
                keys[key] = Counter()
                self._new[place] = None
                self._keys.clear()
            self._users[place] += change
            if self._users[place]:
                self._idle.pop(place, None)
            else:
                del self._users[place]
                self._idle[place] = None
        for each in selector.requirements:
            counts = keys[each.key]
            for value in each.values:
                counts[value] += change
                if counts[value] == max(change, 0):
                    self._moved[namespace, each.key, value] = None
                    if change < 0:
                        del counts[value]

    def labels_of(self, namespace: str, labels: Mapping[str, str]) -> dict[str, str] | None:
        """Return what tells a pod apart, sorted; None where its namespace is not watched at all."""
        found = {}
        for name, own, every, _ in self._among(namespace, labels):
            value = labels.get(name)
            if value is not None:
                found[name] = value if value in own or value in every else ANOTHER
        return found if self._keys[namespace] else None

    def enter(self, key: str, pod: PodSpec) -> dict[str, str] | None:
        """Know a pod by its labels, and return what tells it apart; ``key`` is its own."""
        found, labels = {}, pod.labels
        for name, own, every, pods in self._among(pod.namespace, labels):
            value = labels.get(name)
            if value is not None:
                found[name] = value if value in own or value in every else ANOTHER
                if value in pods:
                    pods[value][key] = None
                else:
                    pods[value] = {key: None}
        return found if self._keys[pod.namespace] else None

    def leave(self, key: str, pod: PodSpec) -> None:
        """Forget a pod, or the labels that it had."""
        labels = pod.labels
        for name, _, _, pods in self._among(pod.namespace, labels):
            value = labels.get(name)
            if value is not None and value in pods:
                of_value = pods[value]
                of_value.pop(key, None)
                if not of_value:
                    del pods[value]

    def vacate(self, namespace: str) -> None:
        """Forget a namespace whose last pod went."""
        for key in self._keys.pop(namespace, ()):
            self._pods.pop((namespace, key), None)

    def _among(self, namespace: str, labels: Mapping[str, str]) -> Iterable[_Key]:
        """Return the keys that are watched in a namespace, sorted; of very many, those of some labels."""
        keys = self._keys.get(namespace)
        if keys is None:
            own, every = self._values.get(namespace, {}), self._values.get(EVERY, {})
            keys = self._keys[namespace] = {
                key: _Key(
                    key,
                    own.get(key, _NO_MENTIONS),
                    every.get(key, _NO_MENTIONS),
                    self._pods.setdefault((namespace, key), {}),
                )
                for key in sorted(own.keys() | every.keys())
            }
        if len(keys) <= _KEYS_FEW:
            return keys.values()
        return [keys[key] for key in sorted(keys.keys() & labels.keys())]

    def settle(self, namespaces: Mapping[str, Collection[str]], pods: Mapping[str, PodEntry]) -> list[str]:
        """Return the keys of the pods that may be told apart otherwise now, sorted by namespace.

        ``namespaces`` has the keys of the pods of each, ``pods`` all of them by key. Cost: O(pods of the
        namespaces) where selectors mention keys that none mentioned before, otherwise O(pods concerned).
        """
        found: dict[str, set[str]] = {}
        for place in self._new:
            for namespace in _those(place[0], namespaces):
                found.setdefault(namespace, set()).update(self._learn(namespace, place[1], pods, namespaces))
        for namespace, key, value in self._moved:
            for each in _those(namespace, namespaces):
                found.setdefault(each, set()).update(self._pods.get((each, key), {}).get(value, ()))
        self._new.clear()
        self._moved.clear()
        if len(self._idle) > label_keys_idle_max:
            for namespace, keys in self._forget(namespaces):
                found.setdefault(namespace, set()).update(keys)
        return [key for namespace in sorted(found) for key in sorted(found[namespace])]

    def _learn(
        self,
        namespace: str,
        key: str,
        pods: Mapping[str, PodEntry],
        namespaces: Mapping[str, Collection[str]],
    ) -> Collection[str]:
        """Return the pods of a namespace that have a key, known by its value from now on."""
        if key == _ANY_POD:
            return namespaces[namespace]
        with_key = [each for each in namespaces[namespace] if key in pods[each].spec.labels]
        by_value = self._pods.setdefault((namespace, key), {})
        for each in with_key:
            by_value.setdefault(pods[each].spec.labels[key], {})[each] = None
        return with_key

    def _forget(self, namespaces: Mapping[str, Collection[str]]) -> list[tuple[str, Collection[str]]]:
        """Stop watching the keys that nobody uses, and return the pods that had them."""
        found: list[tuple[str, Collection[str]]] = []
        for namespace, key in self._idle:
            del self._values[namespace][key]
            if not self._values[namespace]:
                del self._values[namespace]
        for namespace, key in self._idle:
            for each in _those(namespace, namespaces):
                if key in self._values.get(each, ()) or key in self._values.get(EVERY, ()):
                    continue
                with_key = self._pods.pop((each, key), {})
                concerned = namespaces[each] if key == _ANY_POD else {p for v in with_key.values() for p in v}
                found.append((each, concerned))
        self._idle.clear()
        self._keys.clear()
        return found


_NO_MENTIONS: _Mentions = Counter()


def _those(namespace: str, namespaces: Mapping[str, Collection[str]]) -> Collection[str]:
    """Return the namespaces that have pods, of one, or of all by ``EVERY``."""
    return namespaces if namespace == EVERY else [namespace] if namespace in namespaces else []
