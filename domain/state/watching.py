"""Which label keys tell pods apart: those that live selectors mention, by namespace."""

from __future__ import annotations

from collections.abc import Iterable

from domain.model.anchors import EVERY


class Watching:
    """Label keys by namespace. What is mentioned holds from ``settle`` on, and for ever.

    Attributes
    ----------
    has_any : bool
        Whether any namespace is watched.
    """

    def __init__(self) -> None:
        self.has_any = False
        self._keys: dict[str, set[str]] = {}
        self._new: dict[str, set[str]] = {}
        self._sorted: dict[str, tuple[str, ...]] = {}  # with those of all namespaces

    @property
    def is_settled(self) -> bool:
        """Whether all that was mentioned holds."""
        return not self._new

    def mention(self, namespace: str, keys: Iterable[str]) -> None:
        """Watch label keys of the pods of a namespace; ``EVERY``: of all pods.

        Without any key its pods are told apart from those of other namespaces only.
        """
        known = self._keys.get(namespace)
        new = set(keys) if known is None else set(keys) - known
        if new or known is None:
            self._new.setdefault(namespace, set()).update(new)

    def keys_of(self, namespace: str) -> tuple[str, ...] | None:
        """Return the keys that count in a namespace, sorted; None where it is not watched at all."""
        found = self._sorted.get(namespace)
        if found is None:
            own, every = self._keys.get(namespace), self._keys.get(EVERY)
            if own is None and every is None:
                return None
            found = self._sorted[namespace] = tuple(sorted((own or set()) | (every or set())))
        return found

    def settle(self, namespaces: Iterable[str]) -> dict[str, set[str] | None]:
        """Let all that was mentioned hold, and return what that changes for some namespaces, in their order.

        It is the keys by which pods may differ now; None: the namespace was not watched before.
        """
        new, self._new = self._new, {}
        every = new.get(EVERY)
        was_everywhere = EVERY in self._keys
        changed: dict[str, set[str] | None] = {}
        for namespace in sorted(namespaces if every is not None else new.keys() - {EVERY}):
            was_watched = was_everywhere or namespace in self._keys
            changed[namespace] = new.get(namespace, set()) | (every or set()) if was_watched else None
        for namespace, keys in new.items():
            self._keys.setdefault(namespace, set()).update(keys)
        self._sorted.clear()
        self.has_any = bool(self._keys)
        return changed
