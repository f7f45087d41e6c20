"""Questions to the API as values: what is asked, and as what the answer is read."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

PAGE = 1000
"""Items of a page, as many as the API gives."""

Moment = str | datetime.datetime | datetime.timedelta
"""A time as the API reads it (RFC 3339, `03:17`, `1h` ago), an aware datetime, or so long ago."""

_AGE = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_Answer_co = TypeVar("_Answer_co", covariant=True)
_Item_co = TypeVar("_Item_co", covariant=True)


class Page(Protocol[_Item_co]):
    """A page of a list."""

    @property
    def items(self) -> Sequence[_Item_co]:
        """What it holds, in order."""

    @property
    def next(self) -> str | None:
        """Where the next page begins; None: this was the last."""


class Request(Struct, Generic[_Answer_co], frozen=True):
    """A question.

    ``has_past``: it can be asked of a moment. ``may_wait``: it can wait until the ledger has what its caller
    wrote. ``accepts`` are statuses above 400 that are an answer all the same. ``only_asks``: nothing is
    written, though the method is POST.
    """

    method: str
    path: str
    answer: type[_Answer_co]
    params: Mapping[str, object] = {}
    body: object = None
    has_past: bool = False
    may_wait: bool = False
    accepts: tuple[int, ...] = ()
    only_asks: bool = False

    @property
    def is_repeatable(self) -> bool:
        """Whether an answer that was lost may be asked for again."""
        return self.only_asks or self.method in ("GET", "DELETE")

    @property
    def target(self) -> str:
        """Path and parameters; those that are None are left out."""
        return target(self.path, self.params)

    @property
    def content(self) -> bytes | None:
        """The body as it is sent."""
        return None if self.body is None else msgspec.json.encode(self.body)

    def asking(self, **params: object) -> Request[_Answer_co]:
        """Return the question with further parameters."""
        return msgspec.structs.replace(self, params={**self.params, **params})


def path(*parts: str | int) -> str:
    """Return a path: the first part as it is, names quoted."""
    first, *names = parts
    return "/".join((str(first), *(quote(str(name), safe="") for name in names)))


def target(where: str, params: Mapping[str, object]) -> str:
    """Return a path with the parameters that are not None."""
    query = urlencode({name: _text(value) for name, value in params.items() if value is not None})
    return f"{where}?{query}" if query else where


def page_size(limit: int | None) -> int:
    """Return how many items a page has where so many are wanted in all."""
    return PAGE if limit is None else max(1, min(PAGE, limit))


def _text(value: object) -> object:
    if isinstance(value, datetime.datetime | datetime.timedelta):
        return moment_text(value)
    return str(value).lower() if isinstance(value, bool) else value


def moment_text(moment: Moment) -> str:
    """Return a time as the API reads it.

    Raises
    ------
    ValueError
        A datetime does not say its offset, so that it could be any of 24 hours.
    """
    if isinstance(moment, datetime.timedelta):
        moment = datetime.datetime.now(datetime.UTC) - moment
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise ValueError(f"{moment!r} says no offset; give it a tzinfo, as datetime.UTC")
        return moment.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
    return moment


def fixed(moment: Moment) -> str:
    """Return a time as the API reads it, of which an age is one moment from now on: `1h` becomes a time."""
    if isinstance(moment, str) and moment and (found := _AGE.fullmatch(moment)):
        days, hours, minutes, seconds = (int(each or 0) for each in found.groups())
        moment = datetime.timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return moment_text(moment)


def pod_names(pod: str) -> tuple[str, str]:
    """Return namespace and name of `namespace/name`; a bare name is of the namespace `default`."""
    namespace, slash, name = pod.partition("/")
    return (namespace, name) if slash else ("default", pod)
