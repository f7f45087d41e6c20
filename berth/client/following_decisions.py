"""What a reader of `berth.decisions` takes and what is void, by the rule of docs/events.md; a pure rule."""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """What a record comes to.

    Attributes
    ----------
    before : int
        The last seq that the reader has before this record, once what is void is gone.
    void_to : int
        Decisions ``before + 1`` to this one never happened; equal to ``before`` where none is void.
    is_taken : bool
        The record is the next decision.
    is_ahead : bool
        It is not, as decisions before it are missing: they are lost, or still come.
    """

    before: int
    void_to: int
    is_taken: bool
    is_ahead: bool


class Follower:
    """Follows one partition, from its first record or from where a reader certainly was.

    Attributes
    ----------
    seq : int
        The last seq that it took, 0 at first.
    names : list of bytes
        The names of the ledger that it has had; the last one is the present one.
    """

    def __init__(self, seq: int = 0, names: tuple[bytes, ...] = ()) -> None:
        self.seq = seq
        self.names = list(names)

    @property
    def name(self) -> bytes | None:
        """The present name of the ledger; None while no record had one."""
        return self.names[-1] if self.names else None

    def has_passed(self, name: bytes) -> bool:
        """Return whether it passes over all that comes under this name, as another name came behind it."""
        return name in self.names[:-1]

    def take_record(self, seq: int, name: bytes | None, after: int | None = None) -> Step:
        """Take the next record, or pass over it.

        Parameters
        ----------
        seq : int
            Of the decision, from 1.
        name : bytes, optional
            Of the ledger. A record without one counts while none had one.
        after : int, optional
            The decision that was kept before it, where those between were pruned.
        """
        had = self.seq
        if name != self.name:
            if name is None or self.has_passed(name):  # another client; a relay that was late
                return Step(had, had, is_taken=False, is_ahead=False)
            if self.names:
                self.seq = min(had, seq - 1)
            self.names.append(name)
        before = self.seq
        is_next = (seq - 1 if after is None else after) <= before
        is_taken = is_next and before < seq
        if is_taken:
            self.seq = seq
        return Step(before, had, is_taken, is_ahead=not is_next)
