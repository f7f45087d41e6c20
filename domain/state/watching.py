"""Which labels tell pods apart: those keys and values that live selectors mention, by namespace.

A value that no selector mentions is the same as any other one: ``ANOTHER`` stands for it. So a selector that
only asks whether a job's index is there does not tell a million jobs apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from domain.model.anchors import EVERY
from domain.model.limits import label_keys_idle_max
from domain.model.pods import PodSpec
from domain.model.selectors import LabelSelector
from domain.state.members import discard
from domain.state.pods import PodEntry

ANOTHER = "*"
"""A value that no selector mentions; no label has it."""

_ANY_POD = ""
"""The key that stands for the namespace alone: all of its pods have it."""

_Mentions = Counter[str]
"""How many selectors mention a value."""


class Watching:
    """Counts the selectors that mention which values of which keys, and knows the pods that have such labels.

    What begins to be mentioned counts at once for pods that come; ``take_moved`` says which others it
    concerns, and which are concerned by what is mentioned no more. A key stays for a while after its last
    selector, as the next one may come soon; it then tells apart only pods that have it.
    """

    def __init__(self) -> None:
        self.watched: dict[str, dict[str, _Mentions]] = {}  # what is mentioned, by namespace and key
        self._users: Counter[tuple[str, str]] = Counter()  # of a key in a namespace
        self._idle: dict[tuple[str, str], None] = {}  # keys without users
        self._new: dict[str, set[str]] = {}  # keys by namespace; the pods that have them are not known yet
        self._moved: dict[tuple[str, str], set[str]] = {}  # values that are mentioned now, or no more
        self._pods: dict[tuple[str, str], dict[str, dict[str, None]]] = {}  # by namespace and key, by value

    @property
    def is_settled(self) -> bool:
        """Whether ``take_moved`` has nothing to say."""
        return not (self._new or self._moved or len(self._idle) > label_keys_idle_max)

    def mention(self, namespace: str, selector: LabelSelector, change: int = 1) -> None:
        """Watch what a selector mentions, in a namespace (``EVERY``: in all), once more or once less."""
        keys = self.watched.setdefault(namespace, {})
        for key in (_ANY_POD, *(each.key for each in selector.requirements)):
            place = namespace, key
            if key not in keys:
                keys[key] = Counter()
                self._new.setdefault(namespace, set()).add(key)
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
                    self._moved.setdefault((namespace, each.key), set()).add(value)
                    if change < 0:
                        del counts[value]

    def labels_of(self, namespace: str, labels: Mapping[str, str]) -> dict[str, str] | None:
        """Return what tells a pod apart, sorted; None where its namespace is not watched at all."""
        own, every = self.watched.get(namespace, _NOTHING), self.watched.get(EVERY, _NOTHING)
        if not own and not every:
            return None
        found = {}
        for key, value in labels.items():
            mine, all_of = own.get(key), every.get(key)
            if mine is not None or all_of is not None:
                is_mentioned = (mine and value in mine) or (all_of and value in all_of)
                found[key] = value if is_mentioned else ANOTHER
        return dict(sorted(found.items())) if len(found) > 1 else found

    def add_pod(self, key: str, pod: PodSpec) -> dict[str, str] | None:
        """Know a pod by its labels, and return what tells it apart; ``key`` is its own."""
        found = self.labels_of(pod.namespace, pod.labels)
        for name in found or ():
            self._know(pod.namespace, name, pod.labels[name], key)
        return found

    def _know(self, namespace: str, name: str, value: str, key: str) -> None:
        place = namespace, name
        by_value = self._pods.get(place)
        if by_value is None:
            by_value = self._pods[place] = {}
        if value in by_value:
            by_value[value][key] = None
        else:
            by_value[value] = {key: None}

    def forget_pod(self, key: str, pod: PodSpec) -> None:
        """Forget a pod, or the labels that it had."""
        for name, value in pod.labels.items():
            place = pod.namespace, name
            by_value = self._pods.get(place)
            if by_value is not None and key in by_value.get(value, ()):
                discard(by_value, value, key)
                if not by_value:
                    del self._pods[place]

    def take_moved(
        self, namespaces: Mapping[str, Collection[str]], pods: Mapping[str, PodEntry]
    ) -> list[str]:
        """Return the keys of the pods that may be told apart otherwise now, sorted by namespace.

        ``namespaces`` has the keys of the pods of each, ``pods`` all of them by key. Cost: O(pods of the
        namespaces), each once, where selectors mention keys that none mentioned before, or keys are
        forgotten; otherwise O(values that began or ceased to be mentioned, and the pods that have them).
        """
        found: dict[str, set[str]] = {}
        every = self._new.pop(EVERY, set())
        for namespace in namespaces if every else self._new.keys() & namespaces.keys():
            new = self._new.get(namespace, _NONE)
            concerned = found.setdefault(namespace, set())
            if _ANY_POD in new or _ANY_POD in every:
                concerned.update(namespaces[namespace])
            for key in namespaces[namespace]:
                for name, value in pods[key].spec.labels.items():
                    if name in new or name in every:
                        self._know(namespace, name, value, key)
                        concerned.add(key)
        for place, values in self._moved.items():
            if place[0] != EVERY and place in self._pods:
                found.setdefault(place[0], set()).update(_with(self._pods[place], values))
        if any(where == EVERY for where, _ in self._moved):
            for (namespace, name), by_value in self._pods.items():
                values = self._moved.get((EVERY, name), set())
                found.setdefault(namespace, set()).update(_with(by_value, values))
        self._new.clear()
        self._moved.clear()
        if len(self._idle) > label_keys_idle_max:
            for namespace, keys in self._forget(namespaces):
                found.setdefault(namespace, set()).update(keys)
        return [key for namespace in sorted(found) for key in sorted(found[namespace])]

    def _forget(self, namespaces: Mapping[str, Collection[str]]) -> Iterator[tuple[str, Collection[str]]]:
        """Stop watching the keys that no selector uses, and yield the pods that had them, by namespace."""
        for namespace, key in self._idle:
            del self.watched[namespace][key]
            if not self.watched[namespace]:
                del self.watched[namespace]
        everywhere = self.watched.get(EVERY, _NOTHING)
        for place in [each for each in self._pods if each[1] not in everywhere]:
            namespace, key = place
            if key not in self.watched.get(namespace, _NOTHING):
                yield namespace, {pod for of_value in self._pods.pop(place).values() for pod in of_value}
        if _ANY_POD not in everywhere:
            for namespace in namespaces:
                if namespace not in self.watched:
                    yield namespace, namespaces[namespace]
        self._idle.clear()


_NOTHING: dict[str, _Mentions] = {}
_NONE: frozenset[str] = frozenset()


def _with(by_value: Mapping[str, Collection[str]], values: set[str]) -> Iterator[str]:
    """Yield the pods that have one of some values."""
    return (pod for value in by_value.keys() & values for pod in by_value[value])
