"""How far a reader of decisions is, as a small value that it keeps beside what it made of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from berth.client.errors import InvalidRequest


class ShardCheckpoint(Struct, frozen=True, omit_defaults=True):
    """How far a reader is in a shard's partition.

    Attributes
    ----------
    seq : int
        The last decision that it took, 0 at first.
    names : tuple of str
        The names of the ledger that it has had; the last one is the present one.
    offset : int or None
        Where it read last: a hint, believed only where the topic has the same record there. None: nowhere.
    digest : str
        Of that record, 16 hex digits.
    """

    seq: int = 0
    names: tuple[str, ...] = ()
    offset: int | None = None
    digest: str = ""


class Checkpoint(Struct, frozen=True):
    """How far a reader of decisions is, by shard. Store it in one transaction with what was read.

    >>> Checkpoint.from_json(checkpoint.to_json()) == checkpoint
    True
    """

    shards: Mapping[int, ShardCheckpoint] = {}

    def to_json(self) -> str:
        """Return it as a text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes | None) -> Checkpoint:
        """Return what a text says; None is a reader that has read nothing.

        Raises
        ------
        InvalidRequest
            The text is no checkpoint.
        """
        if text is None:
            return cls()
        try:
            return msgspec.json.decode(text, type=cls)
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"this is no checkpoint of a reader: {error}", code="checkpoint") from None
