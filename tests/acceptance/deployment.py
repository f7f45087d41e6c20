"""Runs berth as an operator does: real commands as processes, on the log and ledger of a test."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

BERTH = Path(sys.executable).with_name("berth")
SETTLE_SECONDS_MAX = 240.0


class Deployment:
    """Processes of berth on one database, and one broker or the embedded log."""

    def __init__(self, dsn: str, kafka: str | None, logs: Path) -> None:
        self.dsn = dsn
        self.kafka = kafka
        self._logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        kept = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        self.env = kept | {"BERTH_POSTGRES_DSN": dsn, "BERTH_DIR": str(logs / "dir")}
        if kafka is not None:
            self.env["BERTH_KAFKA_BOOTSTRAP"] = kafka

    def run(self, *args: str, input_bytes: bytes | None = None) -> str:
        """Run a command to its end; return what it printed; fail with its errors."""
        done = subprocess.run(
            [BERTH, *args], env=self.env, input=input_bytes, capture_output=True, timeout=120
        )
        assert done.returncode == 0, f"berth {' '.join(args)}: {done.stderr.decode()}"
        return done.stdout.decode()

    def get(self, *args: str) -> list[dict[str, Any]]:
        """Run ``berth get … -o json``."""
        answer = orjson.loads(self.run("get", *args, "-o", "json"))
        assert isinstance(answer, list)
        return answer

    def start(self, name: str, *args: str) -> None:
        """Start a long-running command under a name."""
        with (self._logs / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen([BERTH, *args], env=self.env, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        """Kill -9 what was started under the name."""
        process = self._processes.pop(name)
        assert process.poll() is None, f"{name} had ended by itself: {self.log_of(name)}"
        process.kill()
        process.wait()

    def stop(self) -> None:
        """Stop everything as an operator would; a process that does not stop is killed and reported."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        stubborn = []
        for name, process in self._processes.items():
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                stubborn.append(name)
        self._processes.clear()
        assert not stubborn, f"did not stop on SIGTERM: {stubborn}"

    def log_of(self, name: str) -> str:
        """Return the end of a process' output."""
        return (self._logs / f"{name}.log").read_text()[-4000:]

    async def settled(self, expected: dict[str, int], *, published: bool = True) -> None:
        """Wait until all records of the topics (name to count, one partition each) are worked off."""
        connection = await asyncpg.connect(self.dsn)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        try:
            while not await self._is_settled(connection, expected, published=published):
                for name, process in self._processes.items():
                    assert process.poll() is None, f"{name} ended: {self.log_of(name)}"
                assert time.monotonic() < deadline, f"stuck; worker: {self.log_of('worker')}"
                await asyncio.sleep(0.05)
        finally:
            await connection.close()

    async def _is_settled(
        self, connection: asyncpg.Connection, expected: dict[str, int], *, published: bool
    ) -> bool:
        done = {
            row["topic"]: row["next_offset"]
            for row in await connection.fetch("SELECT topic, next_offset FROM shard_offsets")
        }
        if any(done.get(topic, 0) < count for topic, count in expected.items()):
            return False
        if not published:
            return True
        row = await connection.fetchrow(
            "SELECT seq_next - 1 - decisions_seq AS behind FROM shards JOIN relay_cursor USING (shard)"
        )
        return bool(row["behind"] == 0)

    async def payloads(self) -> list[bytes]:
        """Return the ledger's decision records in order."""
        connection = await asyncpg.connect(self.dsn)
        try:
            rows = await connection.fetch("SELECT payload FROM decisions ORDER BY shard, seq")
            return [row["payload"] for row in rows]
        finally:
            await connection.close()


async def produce(bootstrap: str, records: Iterable[tuple[str, str, bytes]]) -> None:
    """Send (topic, key, value) with a plain Kafka client and its defaults, as any producer would."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        waiting = [await producer.send(topic, value, key=key.encode()) for topic, key, value in records]
        await asyncio.gather(*waiting)
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str, count: int) -> Sequence[bytes]:
    """Read a topic's only partition from the beginning until its end, which must come after ``count``."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await consumer.start()
    try:
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        await consumer.seek_to_beginning(at)
        end = (await consumer.end_offsets([at]))[at]
        assert end == count, f"{topic} holds {end} records, not {count}"
        values: list[bytes] = []
        while len(values) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()
