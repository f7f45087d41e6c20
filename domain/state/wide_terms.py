"""Wide terms: those that look at all pods of other namespaces. Of each namespace so many hold at once."""

from __future__ import annotations

from domain.model.limits import wide_terms_per_namespace_max
from domain.model.marks import TermMark


class WideTerms:
    """The distinct wide terms that pods of one namespace carry, each with how many classes carry it.

    Every one is compared with every group of pods, of any namespace. So only ``admitted`` ones hold, the
    oldest; the pods that carry one of the others, ``waiting``, are held until there is room.
    """

    def __init__(self) -> None:
        self.admitted: dict[TermMark, int] = {}
        self.waiting: dict[TermMark, int] = {}

    def add_class(self, mark: TermMark) -> bool:
        """Count one more class that carries a term, and say whether the term holds."""
        is_in = mark in self.admitted or (
            mark not in self.waiting and len(self.admitted) < wide_terms_per_namespace_max
        )
        counts = self.admitted if is_in else self.waiting
        counts[mark] = counts.get(mark, 0) + 1
        return is_in

    def remove_class(self, mark: TermMark) -> tuple[bool, TermMark | None]:
        """Count one class less; return whether the term held, and which one now holds in its place."""
        is_in = mark in self.admitted
        counts = self.admitted if is_in else self.waiting
        counts[mark] -= 1
        if counts[mark]:
            return is_in, None
        del counts[mark]
        if not is_in or not self.waiting:
            return is_in, None
        follows = next(iter(self.waiting))
        self.admitted[follows] = self.waiting.pop(follows)
        return True, follows
