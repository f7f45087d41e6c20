"""What can go wrong: one exception for each thing that a caller would do something else about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from berth.client import models
    from berth.client.kafka.checkpoint import Checkpoint


NOT_YET = "not-yet"
"""Code of the error that says that the ledger has not yet what a question was to wait for."""


class BerthError(Exception):
    """Something went wrong; the text says what, and what to do.

    Attributes
    ----------
    code : str
        Stable name of the error, for programs.
    message : str
        What was wrong and what to do, for people.
    path : str or None
        Path of the field that is wrong, as ``events[3].object.spec.containers``; None: it is of no field.
    status : int or None
        Status of the API's answer; None: there was none.
    details : Sequence[ErrorDetail]
        All that is wrong, where it is several: position of the object, path and message of each.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "client",
        path: str | None = None,
        status: int | None = None,
        details: Sequence[models.ErrorDetail] = (),
    ) -> None:
        super().__init__(message)
        self.message, self.code, self.path, self.status = message, code, path, status
        self.details = tuple(details)

    @property
    def field(self) -> str | None:
        """Another name of ``path``."""
        return self.path

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path and self.path not in self.message else self.message


class NotConfigured(BerthError):
    """The client does not know where the API is, or which key to show."""


class NoAnswer(BerthError):
    """The API does not answer, or broke off in the middle of an answer."""


class NotTrusted(NoAnswer):
    """The API's certificate is not one that is trusted here, or what listens there is not the API."""


class BadAnswer(BerthError):
    """What answered is no API of berth, or a much older or newer one."""


class Timeout(BerthError):
    """What was waited for did not happen in time; ``missing`` names the pods of which it did not."""

    def __init__(self, message: str, missing: Sequence[str] = ()) -> None:
        super().__init__(message, code="timeout")
        self.missing = tuple(missing)


class Refused(BerthError):
    """The API refuses a request as it is; asking again would not help."""


class InvalidRequest(Refused):
    """Something in the request makes no sense; ``path`` and ``details`` say which fields.

    Of events ``sent_count`` says how many went into the log before the request that was refused; the
    positions in ``details`` count from the first object that was given.
    """

    sent_count = 0


class NotAllowed(Refused):
    """There is no key, or it may not do this."""


class NotFound(Refused):
    """There is no such thing."""


class NoLongerKept(Refused):
    """What was asked for is no longer kept, or of another ledger: read the state, and begin anew.

    ``last_id`` is the last id of a stream that a reader came to; ``begin_at`` the one to begin anew behind.
    """

    last_id: str | None = None

    @property
    def begin_at(self) -> str | None:
        """The id behind which a stream can begin once the state was read."""
        return next((each.message for each in self.details if each.path == "id"), None)


class Unavailable(BerthError):
    """The API cannot answer now: it is busy, its database is away, or this key asks too much."""


class LostRecords(BerthError):
    """Decisions are gone from their topic that were not read; ``checkpoint`` goes on behind them."""

    checkpoint: Checkpoint | None = None


UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading an answer raises where it is no JSON, or another one than was asked for."""

_BY_STATUS: dict[int, type[BerthError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    410: NoLongerKept,
    429: Unavailable,
    501: Refused,
}


def error_of(status: int, body: bytes) -> BerthError:
    """Return the error that an answer is."""
    from berth.client import models  # which takes a moment: a program that only begins does not wait for it

    if 300 <= status < 400:
        text = f"the answer sends elsewhere (status {status}); name the address of the API itself"
        return BadAnswer(text, code="bad-answer", status=status)
    try:
        found = msgspec.json.decode(body, type=models.Error).error
    except UNREADABLE:
        text = f"the answer (status {status}) is not an error as the API tells it; is this a berth API?"
        unread = Unavailable if status in (502, 503, 504) else BadAnswer
        return unread(text, code="bad-answer", status=status)
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else InvalidRequest)
    return kind(found.message, code=found.code, path=found.path, status=status, details=found.details or ())


def decoded(body: bytes, answer: Any) -> Any:
    """Return an answer as a struct, or as text where that is asked for."""
    try:
        return body.decode() if answer is str else msgspec.json.decode(body, type=answer)
    except UNREADABLE as error:
        raise unreadable(error) from None


def unreadable(error: Exception) -> BadAnswer:
    """Return the error that an answer is which cannot be read."""
    return BadAnswer(
        f"the answer is not as this client knows it ({error}); is the API of another version?",
        code="bad-answer",
    )
