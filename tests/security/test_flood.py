"""Can somebody without a key shut others out, or cost the worker its shards, by asking a lot?

The attack talks to loopback only, and ends by itself. What is measured is work: processor time, and who is
answered before whom; never how long a busy machine takes.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from services.processes import in_own_thread
from services.rate_limit import RateLimit, Rates
from tests.integration.commands import BERTH, environment, listed, url_of
from tests.security.keyed import keyed_house
from tests.security.running import QUICK, served

CONNECTIONS, REQUESTS = 200, 20
ATTACK_SECONDS = 10.0
TARGETS = ("/openapi.json", "/healthz")
LEASE = {"BERTH_LEASE_SECONDS": "2", "BERTH_LEASE_RENEWAL_SECONDS": "0.5"}


@contextlib.contextmanager
def up(directory: Path, **told: str) -> Iterator[tuple[str, psutil.Process]]:
    """Run ``berth up``; return its address and its process. What it says is in ``up.log``."""
    log = directory / "up.log"
    with log.open("w") as errors:
        env = environment(directory) | told
        process = subprocess.Popen([*BERTH, "up", "--port", "0"], env=env, stderr=errors)
        try:
            deadline = time.monotonic() + 120
            while "berth is up: " not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield url_of(directory), psutil.Process(process.pid)
        finally:
            process.terminate()
            assert process.wait(timeout=60) == 0, log.read_text()


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def pipeline(url: str, target: str, until: float) -> int:
    """Send requests one after another without waiting, again whenever the connection ends; count answers."""
    host, port = url.removeprefix("http://").split(":")
    request = f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    answers = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(until):
            while True:
                with contextlib.suppress(OSError):
                    reader, writer = await asyncio.open_connection(host, int(port))
                    try:
                        writer.write(request * REQUESTS)
                        while chunk := await reader.read(1 << 16):
                            answers += chunk.count(b"HTTP/1.1 ")
                    finally:
                        writer.close()
                await asyncio.sleep(0.1)
    return answers


@contextlib.asynccontextmanager
async def flooded(url: str, target: str) -> AsyncIterator[None]:
    """Attack from many connections, until the time is up or the block ends."""
    until = asyncio.get_running_loop().time() + ATTACK_SECONDS
    tasks = [asyncio.create_task(pipeline(url, target, until)) for _ in range(CONNECTIONS)]
    await asyncio.sleep(0.5)
    try:
        yield
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.deep
@pytest.mark.parametrize("target", TARGETS)
async def test_a_flood_without_a_key_costs_neither_others_their_answer_nor_the_worker_its_shards(
    server_dir: Path, target: str
) -> None:
    """4,000 requests for the contract shut the API out for 40 s, and the leases ran out meanwhile."""
    with up(server_dir, **LEASE) as (url, process):
        before = listed(server_dir, "shards")[0]["epoch"]
        used, answered = cpu_seconds(process), 0
        async with (
            flooded(url, target),
            httpx.AsyncClient(base_url=url, trust_env=False, timeout=30) as client,
        ):
            ends = time.monotonic() + ATTACK_SECONDS - 2
            while time.monotonic() < ends:
                answer = await client.get("/v1/shards")
                assert answer.status_code == 200
                answered += 1
                await asyncio.sleep(0.05)
        used = cpu_seconds(process) - used
        assert listed(server_dir, "shards")[0]["epoch"] == before, "the worker lost its shard"
        assert answered >= 10
        assert used < 0.4 * ATTACK_SECONDS, "what the attack may take of the interpreter is bounded"


# -------------------------------------------------------------------------------------- requests sent ahead


async def answers_to(count: int, at: tuple[str, int]) -> tuple[int, bool]:
    """Send requests at once on one connection; return the count of answers, and whether it ended then."""
    reader, writer = await asyncio.open_connection(*at)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * count)
    answered = b""
    try:
        async with asyncio.timeout(0.7):  # less than an idle connection is kept
            while chunk := await reader.read(1 << 16):
                answered += chunk
    except ConnectionResetError:
        pass  # more was on its way
    except TimeoutError:
        return answered.count(b"HTTP/1.1 200"), False
    finally:
        writer.close()
    return answered.count(b"HTTP/1.1 200"), True


async def test_a_connection_may_send_a_few_requests_ahead_of_the_answers() -> None:
    async with served(QUICK._replace(idle_seconds_max=5)) as at:
        assert await answers_to(1, at) == (1, False)
        assert await answers_to(5, at) == (5, False)
        assert await answers_to(6, at) == (1, True)
        assert await answers_to(20_000, at) == (1, True)


async def test_what_is_sent_while_an_answer_is_awaited_is_not_kept() -> None:
    """Each question asked for the next chunk, so that the requests ahead grew without any bound."""
    async with served(QUICK._replace(pace_seconds=5.0)) as at:
        reader, writer = await asyncio.open_connection(*at)
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(50):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000)
            await asyncio.sleep(0.01)
        assert (await reader.read()).count(b"HTTP/1.1 200") == 1
        writer.close()


# --------------------------------------------------------------------------------------------- rate limit


class Limited:
    """A limited application; requests of ``/known`` need not wait."""

    def __init__(self, **rates: float) -> None:
        self.answered: list[str] = []
        self.app = RateLimit(self._answer, lambda scope: scope["path"] == "/known", Rates(**rates))

    async def _answer(self, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        self.answered.append(scope["path"])

    async def ask(self, path: str, address: str = "203.0.113.7") -> int:
        """Return the status of a request; 200 where it passed."""
        said: list[Any] = []

        async def send(message: Any) -> None:
            said.append(message)

        await self.app({"type": "http", "path": path, "client": (address, 1)}, None, send)
        return int(said[0]["status"]) if said else 200


async def test_an_address_has_its_share_and_takes_no_other_one() -> None:
    limited = Limited(per_address=20.0, burst_seconds=0.5)
    began = time.monotonic()
    waiting = [asyncio.create_task(limited.ask(f"/{n}")) for n in range(20)]
    await asyncio.sleep(0)
    await limited.ask("/known")
    await limited.ask("/other", "203.0.113.8")
    assert len(limited.answered) <= 14, "others pass those who wait"
    assert limited.answered[-2:] == ["/known", "/other"]
    assert await asyncio.gather(*waiting) == [200] * 20
    assert time.monotonic() - began >= 0.4
    first_come = [path for path in limited.answered if path[1:].isdecimal()]
    assert first_come == [f"/{n}" for n in range(20)]


async def test_all_addresses_together_have_a_share_too() -> None:
    limited = Limited(of_all=20.0, burst_seconds=0.5)
    began = time.monotonic()
    assert await asyncio.gather(*(limited.ask("/", f"203.0.113.{n}") for n in range(20))) == [200] * 20
    assert time.monotonic() - began >= 0.4


async def test_who_would_wait_too_long_is_refused_and_not_at_once() -> None:
    limited = Limited(per_address=10.0, burst_seconds=0.0, wait_seconds_max=0.35)
    began = time.monotonic()
    found = await asyncio.gather(*(limited.ask("/") for _ in range(10)))
    assert (found.count(200), found.count(429)) == (4, 6)
    assert time.monotonic() - began >= 0.3
    assert await limited.ask("/") in (200, 429)


async def test_strangers_wait_and_a_key_that_was_good_does_not() -> None:
    async with keyed_house() as house:
        await house.key("good", ["auditor"])
        assert (await house.ask("good", "GET", "/v1/nodes")).status_code == 200
        targets = ["/healthz", "/openapi.json", "/v1/nodes", "/none"] * 120
        strangers = [asyncio.create_task(house.ask(None, "GET", target)) for target in targets]
        await asyncio.sleep(0)
        for _ in range(3):
            assert (await house.ask("good", "GET", "/v1/nodes")).status_code == 200
        assert not all(each.done() for each in strangers)
        assert {each.status_code for each in await asyncio.gather(*strangers)} == {200, 401, 404}


# ------------------------------------------------------------------------------------------- own event loop


async def test_a_process_in_a_thread_of_its_own_keeps_nobody_else_waiting() -> None:
    ended = threading.Event()

    async def busy() -> None:
        try:
            while True:
                time.sleep(0.2)  # noqa: ASYNC251 - this is what keeps a loop busy
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0.1)
            ended.set()

    running, began = asyncio.create_task(in_own_thread(busy())), time.monotonic()
    for _ in range(20):
        await asyncio.sleep(0.01)
    assert time.monotonic() - began < 2, "on one loop each turn takes 0.2 s"
    assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set(), "it is waited for"


async def test_the_fault_of_a_process_in_a_thread_of_its_own_is_told() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("so")

    with pytest.raises(ValueError, match="so"):
        await in_own_thread(fails())
