"""The stream of events as it comes: bytes in, frames out, without input or output of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Frame(Struct, frozen=True):
    """What came: an event, or (without a kind) how far the stream is by now."""

    id: str
    kind: str
    data: bytes


class Frames:
    """Cuts what comes into frames, as the standard of server-sent events says it.

    A frame without an id has the last one. A frame that is only a comment is one, too: something came.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []  # the pieces of the line that is not whole yet
        self._ended_in_return = False
        self._id = self._kind = ""
        self._data: list[bytes] = []
        self._is_begun = False

    def feed(self, part: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole by now."""
        for line in self._lines(part):
            if line:
                self._take(line)
            elif self._is_begun:
                yield Frame(self._id, self._kind, b"\n".join(self._data))
                self._kind, self._data, self._is_begun = "", [], False

    def _lines(self, part: bytes) -> Iterator[bytes]:
        """Yield the lines that are whole by now; a line may end in two signs, of which one came before."""
        if not part:
            return
        if self._ended_in_return:
            part = part.removeprefix(b"\n")
        self._ended_in_return = part.endswith(b"\r")
        first, *others = _LINE_END.split(part)
        self._line.append(first)
        for each in others:
            whole = b"".join(self._line)
            self._line = [each]
            yield whole

    def _take(self, line: bytes) -> None:
        self._is_begun = True
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"id":
                self._id = value.decode(errors="replace")
            case b"event":
                self._kind = value.decode(errors="replace")
            case b"data":
                self._data.append(value)
