"""Can many, slow or silent clients keep the API from those who only want an answer?"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.log_limit import LogLimit
from services.serving import Admission, Limits, _address_of
from tests.security.running import BIG_BYTES, QUICK, api, laid_down, served


async def asked(at: tuple[str, int], path: str = "/") -> int:
    """Return the status of an ordinary request."""
    async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
        return (await client.get(f"http://{at[0]}:{at[1]}{path}")).status_code


async def closed_within(reader: asyncio.StreamReader, seconds: float) -> bool:
    """Return whether the server ends a connection in time."""
    try:
        async with asyncio.timeout(seconds):
            with contextlib.suppress(ConnectionError):
                while await reader.read(1 << 20):
                    pass
    except TimeoutError:
        return False
    return True


async def test_a_head_that_never_ends_is_cut() -> None:
    """One byte now and then has kept a connection for ever."""
    async with served() as at:
        silent, _writer = await asyncio.open_connection(*at)
        slow, drip = await asyncio.open_connection(*at)
        drip.write(b"GET / HTTP/1.1\r\nHost: x\r\n")

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    drip.write(b"X-A: b\r\n")
                    await drip.drain()
                    await asyncio.sleep(0.1)

        dripping = asyncio.create_task(trickle())
        assert await closed_within(silent, 4)
        assert await closed_within(slow, 4)
        dripping.cancel()
        assert await asked(at) == 200
        for writer in (_writer, drip):
            writer.close()


@pytest.mark.parametrize("path", ["/", "/early"])
async def test_a_body_that_never_ends_is_cut(path: str) -> None:
    async with served() as at:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n".encode())

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.1)

        dripping = asyncio.create_task(trickle())
        assert await closed_within(reader, 5)
        dripping.cancel()
        writer.close()


@pytest.mark.parametrize("reads_bytes", [0, 100])
async def test_an_answer_that_nobody_takes_is_cut(reads_bytes: int) -> None:
    async with served() as at:
        with socket.create_connection(at) as client:
            client.setblocking(False)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            taken = 0
            for _ in range(35):  # long enough to be cut
                if reads_bytes:
                    taken += len(await loop.sock_recv(client, reads_bytes))
                await asyncio.sleep(0.1)
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(5):
                    while got := len(await loop.sock_recv(client, 1 << 20)):
                        taken += got
            assert taken < BIG_BYTES, "the answer was cut short"


async def test_whoever_keeps_pace_may_take_longer_than_any_limit() -> None:
    async with served() as at:
        assert await asked(at, "/wait") == 200
        reader, writer = await asyncio.open_connection(*at)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n")
        for _ in range(15):
            writer.write(b"x" * 2000)
            await asyncio.sleep(0.15)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
        async with httpx.AsyncClient(trust_env=False, timeout=20) as client:
            url, got = f"http://{at[0]}:{at[1]}", 0
            async with client.stream("GET", f"{url}/big") as answer:
                async for chunk in answer.aiter_raw(1 << 20):
                    got += len(chunk)
                    await asyncio.sleep(0.03)  # two seconds in all
            assert got == BIG_BYTES
            for _ in range(15):  # one connection, busy for longer than a head may take
                assert (await client.get(url)).status_code == 200
                await asyncio.sleep(0.1)


async def test_a_crowd_of_half_open_connections_shuts_nobody_out() -> None:
    """Whoever has waited longest without a request makes room; a request under way is never cut for it."""
    async with served(QUICK._replace(head_seconds_max=60.0)) as at:
        working = asyncio.create_task(asked(at, "/wait"))
        await asyncio.sleep(0.2)
        crowd = [await asyncio.open_connection(*at) for _ in range(100)]
        for _ in range(5):
            assert await asked(at) == 200
        assert await working == 200
        for _, writer in crowd:
            writer.close()


def test_one_address_gets_its_share_alone() -> None:
    cut: list[int] = []
    admission = Admission(Limits(connections_max=5, connections_per_address_max=2))
    assert admission.admit("a", lambda: cut.append(1))
    second = admission.admit("a", lambda: cut.append(2))
    assert second
    admission.note_busy(second)
    assert admission.admit("a", lambda: cut.append(3))
    assert cut == [1], "the one that waits"
    assert admission.admit("b", lambda: cut.append(4))
    third = admission.admit(None, lambda: cut.append(5))
    assert third
    admission.note_busy(third)
    assert admission.admit(None, lambda: cut.append(6))
    assert admission.admit(None, lambda: cut.append(7))
    assert cut == [1, 3], "all places are taken: the longest waiting one of all"
    crowded = Admission(Limits(connections_max=1))
    only = crowded.admit(None, lambda: None)
    assert only
    crowded.note_busy(only)
    assert crowded.admit(None, lambda: None) is None
    crowded.release(only)
    assert crowded.admit(None, lambda: None)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        (("127.0.0.1", 1), None),
        (("::1", 1, 0, 0), None),
        ("", None),
        (("203.0.113.7", 1), "203.0.113.7"),
        (("::ffff:203.0.113.7", 1, 0, 0), "203.0.113.7"),
        (("::ffff:127.0.0.1", 1, 0, 0), None),
        (("2001:db8:1:2:3::4", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
    ],
)
def test_whose_place_a_connection_takes(peer: Any, address: str | None) -> None:
    assert _address_of(peer) == address


async def test_what_is_no_http_gets_an_error_of_the_one_shape(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as at:
        for _ in range(50):
            reader, writer = await asyncio.open_connection(*at)
            writer.write(b"\x16\x03\x01\x02\x00nonsense\r\n\r\n")
            answer = await reader.read()
            writer.close()
        assert answer.startswith(b"HTTP/1.1 400")
        assert b'{"error":{"code":"not-http"' in answer
        # A body that turns out to be no HTTP after the answer has begun.
        reader, writer = await asyncio.open_connection(*at)
        writer.write(b"POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n")
        await reader.read()
        writer.close()
    lines = [each for each in caplog.records if "Invalid HTTP" in each.getMessage()]
    assert len(lines) <= 6, "a flood of like lines is held back"
    assert not [each for each in caplog.records if each.exc_info]


def test_the_log_says_how_much_it_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("services.log_limit.time.monotonic", lambda: now)
    limit, written = LogLimit(), []
    for _ in range(3):
        for number in range(100):
            record = logging.makeLogRecord({"msg": "no %d", "args": (number,)})
            if limit.filter(record):
                written.append(record.getMessage())
        now += 11
    assert len(written) == 15
    assert written[4:6] == ["no 4", "no 0 (and 95 more like it before)"]


async def test_an_api_with_few_files_answers_through_a_thousand_half_open_connections(
    embedded_dsn: str, tmp_path: Path
) -> None:
    """The usual limit of open files is 1,024. 1,100 connections ended the API."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def fewer() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 1_024))

    if soft < 2_000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2_000), hard))
    crowd: list[socket.socket] = []
    try:
        async with laid_down(embedded_dsn) as dsn:
            with api(dsn, tmp_path, before=fewer) as url:
                host, port = url.removeprefix("http://").split(":")
                for number in range(1_100):
                    crowd.append(socket.create_connection((host, int(port)), timeout=5))
                    if number % 2:
                        crowd[-1].sendall(b"GET / HT")
                for _ in range(3):
                    assert await asked((host, int(port)), "/v1/pods") == 200
                assert len((tmp_path / "api.log").read_text().splitlines()) < 30
    finally:
        for each in crowd:
            each.close()
