"""Serves an HTTP application on sockets; no client can hold it up by being many, slow or silent.

A connection that sends no whole head in time, or whose client neither sends its body nor takes its answer at
a least pace, is cut. Where all places are taken, the one that has waited longest without a request makes
room, so that half-open connections shut no client out. A client that sends requests ahead of the answers may
send a few.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import h11
import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.background import begin, endless
from services.listening import network_of, remote_of
from services.log_limit import LogLimit

_log = logging.getLogger("berth.http")
for _name in ("berth.http", "berth.api", "uvicorn.error"):
    logging.getLogger(_name).addFilter(LogLimit())

_FILES_MAX = 65_536
_FILES_KEPT = 200
"""File descriptors that connections leave to the database, the log and the rest of the process."""

_ACCEPT_PAUSE_SECONDS = 0.2
_BACKLOG = 2048
_HEAD_END = b"\r\n\r\n"
_NO_LINGER = struct.pack("ii", 1, 0)


class Limits(NamedTuple):
    """What a server allows its clients."""

    connections_max: int = 1_000
    connections_per_address_max: int = 200
    """By one address (of IPv6: one network of 64 bits), except this machine's own."""
    head_seconds_max: float = 10.0
    """For the whole head of a request, since the connection was made or the answer before was sent."""
    idle_seconds_max: int = 5
    pace_seconds: float = 10.0
    """The span in which a body must come, and an answer be taken, at the least pace."""
    pace_bytes_per_second_min: int = 1_000
    requests_ahead_max: int = 4
    """Requests that a connection may send before it has its answer; with more, that answer is its last."""
    ahead_bytes_max: int = 16 << 10
    """The same in bytes."""


_USUAL = Limits()


class Admitted:
    """A connection from when it is accepted until it is closed."""

    def __init__(self, address: str | None, cut: Callable[[], object]) -> None:
        self.address, self.cut = address, cut


class Admission:
    """Counts the connections, and cuts one without a request where a new one finds no room."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._open: set[Admitted] = set()
        self._by_address: Counter[str] = Counter()
        self._idle: dict[Admitted, float] = {}
        """The connections without a request and since when, longest first."""

    def admit(self, address: str | None, cut: Callable[[], object]) -> Admitted | None:
        """Admit a connection; where there is no room, cut an idle one, or return None."""
        idle: Iterable[Admitted] | None = None
        if address is not None and self._by_address[address] >= self.limits.connections_per_address_max:
            idle = (each for each in self._idle if each.address == address)
        elif len(self._open) >= self.limits.connections_max:
            idle = self._idle
        if idle is not None and not self._make_room(idle):
            return None
        admitted = Admitted(address, cut)
        self._open.add(admitted)
        if address is not None:
            self._by_address[address] += 1
        self.note_idle(admitted)
        return admitted

    def _make_room(self, idle: Iterable[Admitted]) -> bool:
        longest = next(iter(idle), None)
        if longest is None:
            _log.warning("a connection was refused: all places are taken")
            return False
        _log.warning("all places are taken: a connection without a request was cut")
        self.release(longest)
        longest.cut()
        return True

    def note_idle(self, admitted: Admitted) -> None:
        """Note that a connection has no request under way."""
        if admitted in self._open:
            self._idle.setdefault(admitted, time.monotonic())

    def note_busy(self, admitted: Admitted) -> None:
        """Note that a connection has sent the head of a request."""
        self._idle.pop(admitted, None)

    def release(self, admitted: Admitted) -> None:
        """Forget a connection that is closed."""
        if admitted not in self._open:
            return
        self._open.remove(admitted)
        self._idle.pop(admitted, None)
        if admitted.address is not None:
            self._by_address[admitted.address] -= 1
            if not self._by_address[admitted.address]:
                del self._by_address[admitted.address]

    def cut_late(self, now: float) -> None:
        """Cut the connections that had a request to send for too long."""
        late = []
        for admitted, since in self._idle.items():
            if now - since < self.limits.head_seconds_max:
                break
            late.append(admitted)
        for admitted in late:
            _log.info("a connection was cut: its request did not come in time")
            self.release(admitted)
            admitted.cut()


class Connection(H11Protocol):
    """An HTTP connection that knows whether its client keeps pace."""

    def __init__(self, server: Server, admitted: Admitted) -> None:
        super().__init__(server.config, server.server_state, {})
        self._admission, self._admitted = server.admission, admitted
        self._received_bytes = self._drained_count = 0
        self._is_last = False  # whether the connection ends with the answer under way
        self._mark: tuple[object, int, float] = (None, 0, 0.0)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        self._admitted.cut = self.cut
        super().connection_made(transport)
        # Whatever the client has not taken pauses the answer, so that one with bytes left is one to watch.
        # With TLS some bytes wait already, so this pauses at once: what is paused has to be there.
        transport.set_write_buffer_limits(high=1, low=0)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room."""
        self._admission.release(self._admitted)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        self._received_bytes += len(data)
        if self._is_last:
            return  # it is read, and thrown away: a reset would take the answer with it
        super().data_received(data)
        self._limit_ahead()
        self._note()

    def _limit_ahead(self) -> None:
        """Let a connection end with the answer under way where too much was sent ahead of it."""
        if self.conn.their_state is not h11.DONE or self.cycle is None:
            return
        ahead, limits = self.conn.trailing_data[0], self._admission.limits
        if len(ahead) > limits.ahead_bytes_max or ahead.count(_HEAD_END) > limits.requests_ahead_max:
            self._is_last, self.cycle.keep_alive = True, False

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._note()

    def resume_writing(self) -> None:
        """Go on: the client has taken all that was written."""
        self._drained_count += 1
        super().resume_writing()
        self._note()

    def cut(self) -> None:
        """Close at once. What the client has not taken is thrown away, by the kernel too."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _note(self) -> None:
        # A client that still sends the body of an answered request waits, too; not one that takes the answer.
        if self.conn.our_state in (h11.IDLE, h11.DONE) and not self.transport.get_write_buffer_size():
            self._admission.note_idle(self._admitted)
        else:
            self._admission.note_busy(self._admitted)

    def send_400_response(self, msg: str) -> None:
        """Say in the one shape of errors that this is no HTTP."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # whatever the application still says goes nowhere
            self.cycle.message_event.set()
        body = msgspec.json.encode({"error": {"code": "not-http", "message": msg}})
        headers = [("content-type", "application/json"), ("connection", "close")]
        events = (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage())
        with contextlib.suppress(h11.LocalProtocolError):  # an answer may be under way already
            for event in events:
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def lags(self, now: float, limits: Limits) -> bool:
        """Return whether the client moved less than it must since it was last asked."""
        what, moved_bytes = self._under_way()
        marked, moved_before, since = self._mark
        if what != marked:
            self._mark = what, moved_bytes, now
            return False
        if what is None or now - since < limits.pace_seconds:
            return False
        self._mark = what, moved_bytes, now
        return moved_bytes - moved_before < limits.pace_bytes_per_second_min * (now - since)

    def _under_way(self) -> tuple[object, int]:
        """Return what is under way that the client has to move on, and a number that grows with it."""
        unsent_bytes = self.transport.get_write_buffer_size()
        if unsent_bytes:
            return ("answer", self.cycle, self._drained_count), -unsent_bytes
        if self.conn.their_state is h11.SEND_BODY and not self.flow.read_paused:
            return ("body", self.cycle), self._received_bytes
        return None, 0


class Server(uvicorn.Server):
    """Accepts connections as the limits allow and gives each a protocol that watches its client."""

    def __init__(
        self,
        app: Any,
        limits: Limits,
        tls: ssl.SSLContext | None,
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        self._ending = ending
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=limits.idle_seconds_max,
                timeout_graceful_shutdown=2,
            )
        )
        self.admission = Admission(limits)
        self._tls = tls
        self._accepting: list[asyncio.Task[NoReturn]] = []
        self._opening: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone: they stop the whole process in order."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await self.lifespan.startup()
        self.servers = []
        for listening in sockets or []:
            listening.setblocking(False)
            listening.listen(_BACKLOG)
            self._accepting.append(endless("accepting connections", partial(self._accept, listening)))
        self.started = True

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    _log.warning("no connection can be accepted: %s", error)
                    await asyncio.sleep(_ACCEPT_PAUSE_SECONDS)
                continue
            admitted = self.admission.admit(_address_of(peer), accepted.close)
            if admitted is None:
                accepted.close()
            else:
                opening = begin("opening a connection", self._open(accepted, admitted))
                self._opening.add(opening)
                opening.add_done_callback(self._opening.discard)
            await asyncio.sleep(0)  # accepting never waits while clients come: let the others work

    async def _open(self, accepted: socket.socket, admitted: Admitted) -> None:
        """Make a connection of what was accepted; with TLS, the client has to agree on it first."""
        task = asyncio.current_task()
        assert task is not None
        admitted.cut = task.cancel
        loop = asyncio.get_running_loop()
        if accepted.fileno() < 0:
            return  # it had to make room at once
        tls = None if accepted.family == socket.AF_UNIX else self._tls
        if accepted.family != socket.AF_UNIX:
            # asyncio does so only for sockets it made; else the end of an answer waits 40 ms for the client.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await loop.connect_accepted_socket(lambda: Connection(self, admitted), accepted, ssl=tls)
        except OSError as error:
            _log.info("no TLS with a client: %s", error)
            self.admission.release(admitted)
        except BaseException:
            self.admission.release(admitted)
            raise

    async def on_tick(self, counter: int) -> bool:
        """Look once a second for those who hold things up."""
        if counter % 10 == 0:
            now = time.monotonic()
            self.admission.cut_late(now)
            for connection in list(self.server_state.connections):
                if isinstance(connection, Connection) and connection.lags(now, self.admission.limits):
                    _log.info("a connection was cut: its client was too slow")
                    connection.cut()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, finish what is under way, and cut the rest."""
        for task in (*self._accepting, *self._opening):
            task.cancel()
        await asyncio.gather(*self._accepting, *self._opening, return_exceptions=True)
        self._ending()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.cut()
        await asyncio.sleep(0)


def _address_of(peer: Any) -> str | None:
    """Return whose place a connection takes; None: this machine's own, which has no limit."""
    found = remote_of(str(peer[0])) if peer else None
    return None if found is None or found.is_loopback else network_of(found)


def _within_files(limits: Limits) -> Limits:
    """Let this process open all the files that it may, and keep the connections below."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, _FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    allowed = _FILES_MAX if soft == resource.RLIM_INFINITY else soft
    return limits._replace(connections_max=max(8, min(limits.connections_max, allowed - _FILES_KEPT)))


async def serve_http(
    app: Any,
    listening: Sequence[socket.socket],
    limits: Limits = _USUAL,
    tls: ssl.SSLContext | None = None,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until cancelled; requests under way are finished.

    ``ending`` is called once no connection is accepted any more, for answers that do not end by themselves.
    """
    server = Server(app, _within_files(limits), tls, ending)
    serving = asyncio.create_task(server.serve(list(listening)))
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        await serving


def serve_in_thread(app: Any, listening: socket.socket) -> Callable[[], None]:
    """Answer requests from a thread with an event loop of its own; return what ends it."""
    server = Server(app, _within_files(Limits(connections_max=100)), None)

    def run() -> None:
        try:
            asyncio.run(server.serve([listening]))
        except Exception:
            _log.exception("the server on %s failed", listening.getsockname())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join()

    return stop
