"""Faults of berth: each has a stable code and says whether trying again can help."""

from __future__ import annotations


class BerthError(Exception):
    """A fault, not an expected outcome.

    Attributes
    ----------
    code : str
        Stable, unique, kebab-case; what clients and alerts match on.
    retriable : bool
        Whether the same call may succeed later without any change.
    """

    code: str = "internal"
    retriable: bool = False


class FieldError(BerthError):
    """Input that cannot be accepted: names the field, what is wrong and what is allowed.

    Parameters
    ----------
    path : str
        Path of the field inside the record, as ``object.spec.containers[0].resources.requests.cpu``.
    message : str
        What is wrong and what is allowed, without the path.
    """

    code = "invalid-field"

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class Unavailable(BerthError):
    """The log or the ledger does not answer at the moment; the effect of the last call is unknown."""

    code = "unavailable"
    retriable = True


class Overdue(Unavailable):
    """The ledger ended a statement that took it too long: less at once may pass."""

    code = "overdue"


class LogRefused(BerthError):
    """The log knows us not, or does not allow what was asked; trying again would not help."""

    code = "log-refused"


class Fenced(BerthError):
    """Another owner has taken the shard over with a higher epoch: nothing was written."""

    code = "fenced"


class RefoldNeeded(BerthError):
    """The ledger was written by an earlier version, which kept too little of its pods."""

    code = "refold-needed"


class LedgerMismatch(BerthError):
    """A batch contradicts the ledger although its fences held: the state it was made from is wrong."""

    code = "ledger-mismatch"


class LogTruncated(BerthError):
    """The log does not hold the offset that a shard would read next: records are gone."""

    code = "log-truncated"


class LogReplaced(LogTruncated):
    """A topic was deleted and made anew: offsets of before say nothing about it."""

    code = "log-replaced"


class TopicMismatch(BerthError):
    """A topic has another number of partitions than berth reads."""

    code = "topic-mismatch"
