"""Reads decisions in a process of its own, and dies where it is told to; what it did is in a SQLite file.

Worker and relay have aiokafka read into values of their own, for all of a process: so a reader that is to be
as any other is not in theirs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
from pathlib import Path

from berth.client.kafka import Checkpoint, Decided, DecisionConsumer, Voided, consumer
from berth.client.kafka.consumer import Batch

PLACES = ("read", "effect", "checkpoint", "committed")
"""Where a reader may die: when it has a batch, and behind each of its statements."""

_TABLES = """
CREATE TABLE IF NOT EXISTS effects (number INTEGER PRIMARY KEY, shard INTEGER, seq INTEGER, pod TEXT);
CREATE TABLE IF NOT EXISTS reader (one INTEGER PRIMARY KEY, checkpoint TEXT);
"""


class Effects:
    """What a reader did, and how far it is."""

    def __init__(self, path: Path) -> None:
        self._database = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._database.executescript(_TABLES)

    def count(self) -> int:
        """Return how many decisions have their effect."""
        return int(self._database.execute("SELECT count(*) FROM effects").fetchone()[0])

    def all(self) -> list[tuple[int, int, str]]:
        """Return shard, seq and pod of each effect, those of a shard in the order in which they came."""
        rows = self._database.execute("SELECT shard, seq, pod FROM effects ORDER BY shard, number")
        return [(shard, seq, pod) for shard, seq, pod in rows]

    def checkpoint(self) -> Checkpoint:
        """Return how far the reader is."""
        row = self._database.execute("SELECT checkpoint FROM reader").fetchone()
        return Checkpoint.from_json(row and row[0])

    def take(self, batch: Batch, dies_at: str | None, *, checkpoint_first: bool) -> None:
        """Do what a batch says, and store the checkpoint, in one transaction.

        With ``checkpoint_first`` in two, the checkpoint before the effect, as no reader may.
        """
        self._database.execute("BEGIN")
        steps = [(self._do, "effect"), (self._store, "checkpoint")]
        for step, place in reversed(steps) if checkpoint_first else steps:
            step(batch)
            if checkpoint_first:
                self._database.execute("COMMIT")
                self._database.execute("BEGIN")
            if dies_at == place:
                os._exit(9)
        self._database.execute("COMMIT")

    def _do(self, batch: Batch) -> None:
        for item in batch.items:
            match item:
                case Decided(decision=said):
                    row = (said.shard, said.seq, f"{said.pod.namespace}/{said.pod.name}")
                    self._database.execute("INSERT INTO effects (shard, seq, pod) VALUES (?, ?, ?)", row)
                case Voided(shard=shard, first=first, last=last):
                    void = "DELETE FROM effects WHERE shard = ? AND seq BETWEEN ? AND ?"
                    self._database.execute(void, (shard, first, last))

    def _store(self, batch: Batch) -> None:
        self._database.execute("INSERT OR REPLACE INTO reader VALUES (1, ?)", (batch.checkpoint.to_json(),))


async def _read(told: argparse.Namespace) -> None:
    effects = Effects(told.path)
    reader = DecisionConsumer(
        told.bootstrap, checkpoint=effects.checkpoint(), batch_max=told.batch_max, timeout_seconds=5.0
    )
    async with reader, asyncio.timeout(told.seconds):
        number = 0
        while effects.count() < told.until:
            batch = await (anext(reader) if told.patience is None else _cut(reader, told.patience))
            number += 1
            dies_at = told.dies_at if number == told.batch else None
            if dies_at == "read":
                os._exit(9)
            effects.take(batch, dies_at, checkpoint_first=told.checkpoint_first)
            if dies_at == "committed":
                os._exit(9)


async def _cut(reader: DecisionConsumer, patience: float) -> Batch:
    """Return what comes next, after it was waited for again and again, and longer each time."""
    await reader._discard()  # it has to connect anew
    while True:
        try:
            return await asyncio.wait_for(anext(reader), patience)
        except TimeoutError:
            patience *= 1.3


def main() -> None:
    """Read until so many decisions have their effect."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("path", type=Path)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--batch-max", type=int, default=500)
    parser.add_argument("--dies-at", choices=PLACES)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--checkpoint-first", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--patience", type=float)
    parser.add_argument("--look-seconds", type=float, default=30.0)
    told = parser.parse_args()
    consumer._LOOK_SECONDS = told.look_seconds
    asyncio.run(_read(told))


if __name__ == "__main__":
    main()
