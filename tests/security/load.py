"""Measures how long an ordinary pod waits while others attack a real `berth up`, and whether any is lost.

By hand: ``python -m tests.security.load`` (``--help`` lists the knobs). It makes a deployment in a directory
of its own, attacks it over loopback for as long as it is told, and prints one line of JSON. A test runs it
for a few seconds and looks at what is lost, never at times.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import resource
import socket
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import psutil

from benchmarks.hostile import BURSTS, records
from benchmarks.workloads import node_manifest, pod_manifest
from services import bootstrap
from services.api.keys import key_hash, new_key
from services.config import Settings
from services.ports.store import Grant
from tests.integration.commands import BERTH, environment
from tests.servers import scratch_dir

ORDINARY = "ordinary"
REQUEST_BYTES_MAX = 8 << 20
REQUEST_EVENTS_MAX = 2_000
PERIOD_SECONDS = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack:
    """How hard, and for how long."""

    seconds: float = 30.0
    half_open: int = 1_000
    slow_readers: int = 50
    burst: str = "taints"
    hostile_nodes: int = 5_000
    hostile_pods: int = 5_000
    hostile_events_per_second: int = 0  # 0: as many as the API takes


@dataclasses.dataclass(kw_only=True)
class Found:
    """What the ordinary producer saw, and what became of the attackers."""

    waited_seconds: list[float] = dataclasses.field(default_factory=list)
    outcomes: Counter[str] = dataclasses.field(default_factory=Counter)
    again: Counter[str] = dataclasses.field(default_factory=Counter)  # requests repeated, by why
    attackers: Counter[str] = dataclasses.field(default_factory=Counter)
    posted: int = 0
    lost: list[str] = dataclasses.field(default_factory=list)
    berth_cpu: float = 0.0  # cores that berth itself used

    def line(self) -> str:
        """Return the measurement as a line of JSON."""
        waited = sorted(self.waited_seconds) or [float("nan")]
        return json.dumps(
            {
                "pods": self.posted,
                "lost": len(self.lost),
                **{f"p{p}_ms": round(1e3 * waited[int(p / 100 * (len(waited) - 1))]) for p in (50, 90, 99)},
                "max_ms": round(1e3 * waited[-1]),
                "berth_cpu": round(self.berth_cpu, 2),
                "outcomes": dict(self.outcomes),
                "requests_repeated": dict(self.again),
                "attackers": dict(self.attackers),
            }
        )


@dataclasses.dataclass(frozen=True)
class Deployment:
    """A running `berth up`, and the keys of those who use it."""

    url: str
    keys: dict[str, str]
    process: psutil.Process

    @property
    def at(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname
        assert parts.port
        return parts.hostname, parts.port

    def client(self, name: str) -> httpx.AsyncClient:
        """Return a client with somebody's key."""
        headers = {"Authorization": f"Bearer {self.keys[name]}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=120, trust_env=False)


async def make_keys(directory: Path, attack: Attack) -> dict[str, str]:
    """Make a key for each of those who will use the deployment."""
    rate = attack.hostile_events_per_second or None
    grants = (
        Grant("operator", ["operator"]),
        Grant(ORDINARY, ["producer"]),
        Grant("hostile", ["producer", "operator"], events_per_second=rate),
    )
    keys = {grant.name: new_key() for grant in grants}
    async with bootstrap.place(Settings(dir=directory), make=True) as place:
        await bootstrap.initialise(place, 1)
        async with contextlib.aclosing(bootstrap.open_store(place)) as store:
            for grant in grants:
                await store.callers.create_key(key_hash(keys[grant.name]), grant)
    return keys


@contextlib.contextmanager
def up(directory: Path, keys: dict[str, str]) -> Iterator[Deployment]:
    """Run `berth up` as an operator does."""
    log = directory / "up.log"
    with log.open("w") as errors:
        command = [*BERTH, "up", "--port", "0"]
        process = subprocess.Popen(command, env=environment(directory), stderr=errors)
        try:
            while "berth is up: " not in log.read_text():
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            url = log.read_text().partition("berth is up: ")[2].split()[0]
            yield Deployment(url, keys, psutil.Process(process.pid))
            process.terminate()
            assert process.wait(timeout=60) == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


async def keep_half_open(at: tuple[str, int], number: int, found: Found) -> None:
    """Hold a connection that never asks anything; whenever it is cut, make another."""
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*at)
            try:
                if number % 2:
                    writer.write(b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
                with contextlib.suppress(ConnectionError):
                    await reader.read(1)
                found.attackers["half_open_cut"] += 1
            finally:
                writer.close()
        await asyncio.sleep(0.5)


async def read_slowly(running: Deployment, found: Found) -> None:
    """Ask for much and take little of it; whenever it is cut, ask again."""
    head = (
        f"GET /v1/nodes?limit=1000 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {running.keys['hostile']}\r\n\r\n"
    )
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*running.at, limit=1024)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            try:
                writer.write(head.encode())
                with contextlib.suppress(ConnectionError):
                    while await reader.read(100):
                        await asyncio.sleep(1)
                found.attackers["slow_readers_cut"] += 1
            finally:
                writer.close()
        await asyncio.sleep(0.5)


def hostile_bodies(attack: Attack) -> list[bytes]:
    """Return the requests of the hostile producer, made before anything is measured."""
    sent = list(records(BURSTS[attack.burst], attack.hostile_nodes, attack.hostile_pods))[:-1]
    chunks: list[list[bytes]] = [[]]
    size = 0
    for record in sent:  # without the ordinary pod at the end
        event = record.value or b""
        if len(chunks[-1]) >= REQUEST_EVENTS_MAX or size + len(event) > REQUEST_BYTES_MAX:
            chunks.append([])
            size = 0
        chunks[-1].append(event)
        size += len(event)
    return [b"[" + b",".join(chunk) + b"]" for chunk in chunks if chunk]


async def send_hostile(running: Deployment, bodies: list[bytes], found: Found) -> None:
    """Send everything as fast as it is taken."""
    async with running.client("hostile") as client:
        for body in bodies:
            while True:
                try:
                    answer = await client.post(
                        "/v1/events", content=body, headers={"Content-Type": "application/json"}
                    )
                except httpx.TransportError:
                    found.attackers["hostile_refused"] += 1
                    continue
                if answer.status_code == 202:
                    found.attackers["hostile_events"] += answer.json()["accepted"]
                    break
                assert answer.status_code in (429, 503), answer.text
                found.attackers["hostile_refused"] += 1
                await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))


async def post_pod(client: httpx.AsyncClient, name: str, due: float, found: Found) -> None:
    """Post a pod and wait for its decision; repeat what was not taken, as a producer does."""
    pod = pod_manifest(name, 0, "100m", "100Mi")
    pod["metadata"]["namespace"] = ORDINARY
    event = {"type": "ADDED", "object": pod, "id": name}
    target = "/v1/events?wait=100s&until=decided"
    while True:
        try:
            answer = await client.post(target, json=[event])
        except httpx.TransportError as error:
            found.again[type(error).__name__] += 1
            continue
        if answer.status_code == 202:
            break
        found.again[f"{answer.status_code} {answer.json()['error']['code']}"] += 1
        assert answer.status_code in (429, 503), answer.text
        await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
    decisions = answer.json().get("decisions", [])
    if decisions:
        found.waited_seconds.append(time.monotonic() - due)
        found.outcomes[decisions[0]["outcome"]] += 1
    else:
        found.lost.append(name)


@contextlib.asynccontextmanager
async def attackers(running: Deployment, attack: Attack, found: Found) -> AsyncIterator[None]:
    """Attack until the block ends."""
    bodies = hostile_bodies(attack)
    works: list[Any] = [keep_half_open(running.at, number, found) for number in range(attack.half_open)]
    works += [read_slowly(running, found) for _ in range(attack.slow_readers)]
    works.append(send_hostile(running, bodies, found))
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.sleep(1)
        yield
        for task in tasks:
            assert not task.done() or task.exception() is None, task.exception()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _cpu_seconds(running: Deployment) -> float:
    times = running.process.cpu_times()
    return times.user + times.system


async def measure(running: Deployment, attack: Attack) -> Found:
    """Post an ordinary pod every 100 ms while the attack goes on."""
    found = Found()
    nodes = []
    for number in range(20):
        node = node_manifest(1_000_000 + number)
        node["status"]["allocatable"] = {"cpu": "2000", "memory": "8Ti", "pods": "4000"}
        nodes.append({"type": "ADDED", "object": node})
    async with running.client("operator") as client:
        answer = await client.post("/v1/events?wait=60s", content=orjson.dumps(nodes), headers=_JSON)
        assert answer.json()["folded"], answer.text
    async with running.client(ORDINARY) as client, attackers(running, attack, found):
        posts, began, used = [], time.monotonic(), _cpu_seconds(running)
        while (due := began + PERIOD_SECONDS * found.posted) < began + attack.seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            posts.append(asyncio.create_task(post_pod(client, f"pod-{found.posted}", due, found)))
            found.posted += 1
        await asyncio.gather(*posts)
        found.berth_cpu = (_cpu_seconds(running) - used) / (time.monotonic() - began)
    async with running.client("operator") as client:
        assert (await client.get("/healthz")).status_code == 200
        for number in range(found.posted):
            answer = await client.get(f"/v1/pods/{ORDINARY}/pod-{number}")
            if answer.status_code != 200 or answer.json()["phase"] != "bound":
                found.lost.append(f"pod-{number}")
    return found


_JSON = {"Content-Type": "application/json"}


async def attacked(directory: Path, attack: Attack) -> Found:
    """Make a deployment, attack it, and return what was found."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = attack.half_open + attack.slow_readers + 500
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    keys = await make_keys(directory, attack)
    with up(directory, keys) as running:
        return await measure(running, attack)


def main() -> None:
    """Run by hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    for field in dataclasses.fields(Attack):
        flag, default = f"--{field.name.replace('_', '-')}", field.default
        parser.add_argument(flag, type=type(default), default=default, help=f"default {default}")
    given = vars(parser.parse_args())
    with scratch_dir() as directory:
        print(asyncio.run(attacked(directory, Attack(**given))).line())


if __name__ == "__main__":
    main()
