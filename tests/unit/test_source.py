"""Does the client find the API: that of this machine, that which the user names, that in its process?"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from services.address import CHALLENGE_PATH, Instance, write_address
from services.cli import source as sources
from services.cli.export import written
from services.cli.options import CommandError
from services.cli.source import Source, fetch, in_process, running_instance
from services.cli.streaming import follow


class Healthy(BaseHTTPRequestHandler):
    """Answers everything with what it was asked, and proves to be an instance if it is one."""

    instance: Instance | None = None

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        path, _, challenge = self.path.partition("?challenge=")
        if path == CHALLENGE_PATH and self.instance is not None:
            self.wfile.write(b'{"answer":"%s"}' % self.instance.answer(challenge).encode())
        else:
            self.wfile.write(b'{"path": "%s"}' % self.path.encode())

    def log_message(self, format: str, *args: Any) -> None:
        return None


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Healthy)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    serving.join()
    server.server_close()


async def test_the_instance_of_this_machine_is_found_past_any_proxy(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    Healthy.instance = write_address(tmp_path, address)
    assert await running_instance(tmp_path) == Healthy.instance


async def test_an_address_that_the_user_names_is_asked_through_the_proxy(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", address)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    source = Source("http://berth.invalid", proxied=True)
    assert await fetch(source, "/v1/nodes") == {"path": "http://berth.invalid/v1/nodes"}
    await source.aclose()


async def test_names_reach_the_api_as_they_are_and_below_its_prefix(address: str) -> None:
    source = Source(f"{address}/prefix")
    found = await fetch(source, sources.target("/v1/pods", "a b", "c/d", limit=1, cursor=None))
    assert found == {"path": "/prefix/v1/pods/a%20b/c%2Fd?limit=1"}
    await source.aclose()


async def test_an_answer_that_is_not_json_is_said_to_be_none() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 502, "headers": []})
        await send({"type": "http.response.body", "body": b"<html>"})

    with pytest.raises(CommandError, match=r"the answer \(status 502\) is not JSON"):
        await fetch(in_process(app), "/v1/nodes")


async def test_a_server_that_takes_the_connection_and_says_nothing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sources, "_SILENT_SECONDS", 0.05)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    source = Source(address)
    async with server, contextlib.aclosing(source):
        assert await source.request("GET", "/v1/events?wait=1s") == (200, b"{}")
        assert capsys.readouterr().err == "", "it was told to wait"
        assert await source.request("GET", "/v1/nodes") == (200, b"{}")
    assert f"the API at {address} has not answered yet" in " ".join(capsys.readouterr().err.split())


async def test_a_client_waits_when_it_asks_too_much() -> None:
    statuses = [429, 429, 200]

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"retry-after", b"0")]
        await send({"type": "http.response.start", "status": statuses.pop(0), "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    source = in_process(busy)
    assert await source.request("GET", "/") == (200, b"{}")
    statuses += [429] * 11
    assert (await source.request("GET", "/"))[0] == 429, "not for ever"
    assert len(statuses) == 1
    await source.aclose()


async def _cut_server(answer: bytes) -> tuple[asyncio.Server, str]:
    """Serve an answer whose end never comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_answer_that_breaks_off_is_never_taken_for_the_whole(tmp_path: Path) -> None:
    """A file that was there stays as it was, and nothing else is left."""
    to = tmp_path / "rows.csv"
    to.write_text("before")
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na,b\n\r\n"
    server, url = await _cut_server(begun)

    async def copy(source: Source) -> None:
        with written(to) as write:
            async with source.stream("/v1/export/nodes") as pieces:
                async for piece in pieces:
                    assert write(piece) == 4

    async with server, contextlib.aclosing(Source(url)) as source:
        with pytest.raises(CommandError, match=r"broke off: .* is not whole"):
            await copy(source)
    assert to.read_text() == "before"
    assert os.listdir(tmp_path) == ["rows.csv"]


async def test_a_stream_that_cannot_begin_says_why() -> None:
    source = Source("http://127.0.0.1:9")
    with pytest.raises(CommandError, match=r"the API does not answer \(.*(attempts failed|refused)"):
        await anext(follow(source))
    await source.aclose()


async def test_a_refusal_is_said_and_not_written() -> None:
    refusal = b'{"error": {"code": "busy", "message": "2 exports are read"}}'
    head = b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n" % len(refusal)
    server, url = await _cut_server(head + refusal)
    async with server, contextlib.aclosing(Source(url)) as source:
        with pytest.raises(CommandError, match="2 exports are read"):
            async with source.stream("/v1/export/nodes"):
                raise AssertionError("it was refused")


async def test_an_answer_in_this_process_comes_piece_by_piece() -> None:
    """The next piece is made when the one before it was taken; a client that leaves ends the work."""
    made, ended = [], asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for number in range(100):
                made.append(number)
                await send({"type": "http.response.body", "body": b"x", "more_body": True})
        finally:
            ended.set()

    async with contextlib.aclosing(in_process(app)) as source:
        async with source.stream("/v1/export/nodes") as pieces:
            async for _ in pieces:
                await asyncio.sleep(0.01)
                break
        async with asyncio.timeout(5):
            await ended.wait()
    assert len(made) <= 4
