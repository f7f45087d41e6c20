"""A process that answers why pods wait and plans manifests: a question a line, an answer a line.

The first line says where the ledger is. It ends when its standard input does, with the process that started
it at the latest. Whatever it holds goes with it: a million pods are not for the heap of an API.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sys
import threading
import time

import msgspec

from domain.cures.changes import Findings
from domain.cures.search import find_cures
from domain.cures.trials import Bounds
from domain.cycle.schedule import Scheduler
from domain.kernels.compiling import Compilations
from domain.model.errors import BerthError, FieldError
from domain.model.limits import cure_seconds_max
from domain.model.pods import PodSpec
from services.bootstrap import Place, open_ledger
from services.planning import planned
from services.ports.advice import Asked, Beginning, Failed, PlanAsked, PlanTold, Told
from services.ports.ledger import LedgerBase, LedgerPart
from services.worker.restoring import restored

_NICE = 5


class Advising:
    """Keeps what the ledger said for some seconds, and answers questions about it."""

    def __init__(self, at: Beginning) -> None:
        self._at = at
        self._scheduler: Scheduler | None = None
        self._log_time_ms = 0
        self._read_at = self._took_seconds = 0.0

    def answer(self, asked: Asked) -> Told:
        """Return what a search finds for a pod; a ledger that is too old is read again first."""
        if self._is_outdated(asked):
            self._scheduler = None  # the new one need not find room beside it
            self._read()
        try:
            return self._ask(asked)
        except BaseException:
            self._scheduler = None  # a search that failed may have left a change behind
            raise

    def plan(self, asked: PlanAsked) -> PlanTold:
        """Plan manifests on a cluster that is read for it and then forgotten."""
        self._scheduler = None  # two clusters need not find room beside each other
        compiled: list[str] = []
        with Compilations(compiled.append):
            return planned(self._at.dsn, self._at.seed, asked)

    def _is_outdated(self, asked: Asked) -> bool:
        """Say whether to read the ledger again, also for a pod that came since: half of the time at most."""
        if self._scheduler is None:
            return True
        age = time.monotonic() - self._read_at
        is_known = f"{asked.namespace}/{asked.name}" in self._scheduler.state.pods
        return age >= (self._at.fresh_seconds if is_known else 2 * self._took_seconds)

    def _read(self) -> None:
        self._read_at = time.monotonic()
        base, part = asyncio.run(self._load())
        self._log_time_ms = base.log_time_ms
        self._scheduler = restored(base, part, self._at.seed)
        self._took_seconds = time.monotonic() - self._read_at

    async def _load(self) -> tuple[LedgerBase, LedgerPart]:
        ledger = open_ledger(Place(self._at.dsn, None))
        try:
            return await ledger.load_all()
        finally:
            await ledger.aclose()

    def _ask(self, asked: Asked) -> Told:
        scheduler = self._scheduler
        assert scheduler is not None
        began = time.monotonic()
        entry = scheduler.state.pods.get(f"{asked.namespace}/{asked.name}")
        told = Told(log_time_ms=self._log_time_ms, age_seconds=began - self._read_at)
        if entry is None or entry.node:
            return msgspec.structs.replace(told, node=None if entry is None else entry.node)
        compiled: list[str] = []
        with Compilations(compiled.append):
            found = self._search(scheduler, entry.spec, asked.waiting_count)
        if compiled and not found.reached:  # its time went by with compiling, which happens once
            found = self._search(scheduler, entry.spec, asked.waiting_count)
        return msgspec.structs.replace(told, findings=found)

    def _search(self, scheduler: Scheduler, pod: PodSpec, waiting_count: int) -> Findings:
        until = time.monotonic() + cure_seconds_max
        bounds = Bounds(is_over=lambda: time.monotonic() > until, now_ms=self._log_time_ms)
        return find_cures(scheduler, pod, waiting_count, bounds)


def main() -> None:
    """Answer until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that asks
    os.nice(_NICE)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(lines,), daemon=True).start()
    advising = Advising(msgspec.json.decode(lines.get(), type=Beginning))
    while True:
        asked = msgspec.json.decode(lines.get(), type=Asked | PlanAsked)
        answer: Told | PlanTold | Failed
        try:
            answer = advising.plan(asked) if isinstance(asked, PlanAsked) else advising.answer(asked)
        except FieldError as error:
            answer = Failed(code=error.code, message=error.message, path=error.path)
        except BerthError as error:
            answer = Failed(code=error.code, message=str(error))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


def _read_lines(lines: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # the process that asked has ended


if __name__ == "__main__":
    main()
