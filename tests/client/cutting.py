"""A proxy on loopback that passes requests on whole, and answers sometimes only in part."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SECONDS_MAX = 30.0


def read_message(connection: socket.socket, begun: bytes = b"") -> bytes:
    """Return a request or an answer whole, by its length; nothing: the other side has closed."""
    text = begun
    while b"\r\n\r\n" not in text:
        part = connection.recv(1 << 16)
        if not part:
            return b""
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    missing = (int(length[1]) if length else 0) - len(body)
    while missing > 0:
        part = connection.recv(min(missing, 1 << 16))
        if not part:
            return b""
        text += part
        missing -= len(part)
    return text


class Cutting:
    """Cuts the connection in the middle of answers, once the API has given them whole.

    Parameters
    ----------
    url : str
        Where the API is.
    share : float
        How many of the answers to POST are cut, from 0 to 1.
    before_cut : callable, optional
        Is called between the API's answer and the cut.

    Attributes
    ----------
    cuts_count : int
        How many answers were cut.
    """

    def __init__(
        self, url: str, seed: int, share: float, before_cut: Callable[[], object] = lambda: None
    ) -> None:
        self._there = ("127.0.0.1", urlsplit(url).port or 0)
        self._rng, self._share, self._before_cut = random.Random(seed), share, before_cut
        self.cuts_count = 0
        self._threads: list[threading.Thread] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def accept(self) -> None:
        """Serve each connection in a thread of its own, until it is closed."""
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=[connection]))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_SECONDS_MAX)
        with (
            connection,
            socket.create_connection(self._there, _SECONDS_MAX) as there,
            contextlib.suppress(OSError),
        ):
            while request := read_message(connection):
                there.sendall(request)
                answer = read_message(there)
                if request.startswith(b"POST") and self._rng.random() < self._share:
                    self.cuts_count += 1
                    self._before_cut()
                    connection.sendall(answer[: self._rng.randrange(len(answer))])
                    return
                connection.sendall(answer)

    def close(self) -> None:
        """Listen no more, and wait for the connections to end."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in self._threads:
            each.join()


@contextlib.contextmanager
def cutting(
    url: str, *, seed: int, share: float, before_cut: Callable[[], object] = lambda: None
) -> Iterator[Cutting]:
    """Serve a proxy that cuts."""
    proxy = Cutting(url, seed, share, before_cut)
    thread = threading.Thread(target=proxy.accept)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
