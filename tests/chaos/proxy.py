"""A TCP proxy on loopback between one process and one server, which can keep the two apart."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK_BYTES = 1 << 16


class Proxy:
    """Passes bytes on to a port of 127.0.0.1, or does not.

    Parameters
    ----------
    port : int
        Where it listens.
    target : int
        Where the server listens. It may change: new connections go to the new port.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.target = target
        self.cuts_count = 0
        self._refuses = False
        self._passes = asyncio.Event()
        self._passes.set()
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def aclose(self) -> None:
        """End all connections, and listen no more."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def reset(self) -> None:
        """Break all connections, as the end of a server does."""
        for end in list(self._ends):
            end.transport.abort()

    async def cut(self, seconds: float, *, silent: bool) -> None:
        """Keep process and server apart for a while.

        ``silent``: nothing is refused, the bytes of both sides arrive afterwards, as after a network that
        lost packets. Otherwise connections break, and new ones are closed at once.
        """
        self.cuts_count += 1
        if silent:
            self._passes.clear()
        else:
            self._refuses = True
            self.reset()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._refuses = False
            self._passes.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            if self._refuses:
                return
            there_reads, there = await asyncio.open_connection("127.0.0.1", self.target)
            ends.append(there)
            self._ends.update(ends)
            await asyncio.gather(self._pass(reader, there), self._pass(there_reads, writer))
        except OSError:
            pass  # the server is away, or one of the two sides is
        finally:
            for end in ends:
                self._ends.discard(end)
                end.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._passes.wait()
            writer.write(data)
            await writer.drain()
        await self._passes.wait()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()
