"""What a consumer of ``berth.decisions`` takes that keeps to the documented rule (docs/events.md)."""

from __future__ import annotations


class Consumer:
    """Follows one partition, from its first record or from where a consumer certainly was.

    Attributes
    ----------
    taken : int
        The last seq that it took.
    name : bytes, optional
        The name of the ledger under which it took that; None while no record had one.
    """

    def __init__(self, taken: int = 0) -> None:
        self.taken = taken
        self.name: bytes | None = None
        self._earlier: set[bytes] = set()

    def has_passed(self, name: bytes) -> bool:
        """Return whether it drops all that comes under this name, as another name came behind it."""
        return name in self._earlier

    def take(self, seq: int, name: bytes | None, after: int | None = None) -> int | None:
        """Take the next record, or pass over it.

        Parameters
        ----------
        seq : int
            Of the decision.
        name : bytes, optional
            Of the ledger.
        after : int, optional
            The decision that was kept before it, where those between were pruned.

        Returns
        -------
        int or None
            The seq that it has before this one: what it took behind that is void. None: it passes over.
        """
        if name != self.name:
            if name is None or name in self._earlier:  # another client; a relay that was late
                return None
            if self.name is not None:
                self._earlier.add(self.name)
                self.taken = min(self.taken, seq - 1)
            self.name = name
        before = self.taken
        if not (seq - 1 if after is None else after) <= before < seq:
            return None
        self.taken = seq
        return before
