"""The agent of a node: measures each second, acts, and reports.

Acting waits for nothing but the kernel. What is learned from the API and sent to it are tasks of their own.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from domain.model.colocation import PodCounters
from services.agent.acting import Actor, AgentSettings
from services.agent.measured import Reading, read
from services.agent.pods import PodBooks
from services.agent.reporting import Actions, Reporter, latencies
from services.agent.talking import Api, Learned, Outbox, labels_of, learn
from services.background import ended as stopped
from services.background import endless
from services.ports.cgroups import Cgroups, PodGroup
from services.ports.clock import Clock

TICK_SECONDS = 1.0
LEARN_SECONDS = 10.0
LABELS_EACH = 6
"""Of so many times that pods are asked for, the labels of the node are asked for once: they hardly change."""
_LATENCY_BYTES_MAX = 64
_LATENCY_SECONDS_MAX = 60
_NEVER_MS = -(1 << 60)


class Agent:
    """One agent. ``tick`` does what is due at a moment; ``run`` calls it each second.

    Parameters
    ----------
    cgroups : Cgroups
        The groups of the pods of this node.
    settings : AgentSettings
    clock : Clock
        Wall time, for what is sent.
    elapsed_ms : callable
        Milliseconds of a clock that never goes back.
    say : callable
        Gets a line for each thing that is done, or with ``dry_run`` would be.
    """

    def __init__(
        self,
        cgroups: Cgroups,
        settings: AgentSettings,
        clock: Clock,
        elapsed_ms: Callable[[], int],
        say: Callable[[str], None],
    ) -> None:
        self._cgroups, self._settings, self._clock = cgroups, settings, clock
        self._elapsed_ms = elapsed_ms
        self.learned = Learned()
        self.outbox = Outbox(Actions(settings.node, settings.run))
        self._books, self._reporter = PodBooks(cgroups), Reporter(settings.node)
        self._actor = Actor(cgroups, settings, clock, self._books, self.outbox, say)
        self._before: Reading | None = None
        self._pods_told_ms = _NEVER_MS

    def tick(self) -> None:
        """Measure, act, and note what is to be reported."""
        now_ms = self._elapsed_ms()
        boxes, groups = self._cgroups.boxes(), self._cgroups.pods()
        reading = read(self._cgroups, boxes, now_ms)
        before, self._before = self._before, reading
        if before is None or before.at_ms >= now_ms:
            self._reporter.begin(reading)
            self._books.read(groups, now_ms)
            return
        if boxes is not None:
            self._actor.act(boxes, groups, self.learned, before, reading)
        self._report(groups, reading)

    def _report(self, groups: Sequence[PodGroup], reading: Reading) -> None:
        policy, now_ms = self.learned.policy.policy, reading.at_ms
        rule = policy.reporting
        if not self._reporter.is_due(now_ms, rule):
            return
        counters: Mapping[str, PodCounters] | None = self._books.read(groups, now_ms)
        if now_ms - self._pods_told_ms >= rule.pods_seconds * 1000:
            self._pods_told_ms = now_ms
            if not self._settings.dry_run:
                self._books.note(groups)
        else:
            counters = None
        usage = self._reporter.usage(reading, policy, counters, self._latencies(groups), self._clock.now_ms())
        if usage is not None and not self._settings.dry_run:
            self.outbox.report(usage)

    def _latencies(self, groups: Sequence[PodGroup]) -> Mapping[str, float]:
        """Return what the pods of the node tell; files of other names are not looked at."""
        folder = self._settings.latency_dir
        if folder is None:
            return {}
        fresh = self._clock.now_ms() / 1000 - _LATENCY_SECONDS_MAX
        return latencies((pod.uid, _beginning(folder / pod.uid, fresh)) for pod in groups)

    # ------------------------------------------------------------------------------------------------ running

    async def run(self, api: Api) -> NoReturn:
        """Go on until cancelled."""
        tasks = [
            endless("acting on the node", self._ticking),
            endless("learning from the API", lambda: self._learning(api)),
            endless("sending to the API", lambda: self._sending(api)),
        ]
        try:
            await asyncio.Event().wait()
        finally:
            await stopped(tasks)
        raise AssertionError("it waits until it is cancelled")

    async def _ticking(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            self.tick()
            await asyncio.sleep(max(0.0, TICK_SECONDS - (loop.time() - began)))

    async def _learning(self, api: Api) -> NoReturn:
        """Learn each few seconds, and at once where a pod begins that is not known."""
        node, labels, asked_count = self._settings.node, dict[str, str](), 0
        while True:
            if asked_count % LABELS_EACH == 0:
                labels = await labels_of(api, node)
            self.learned = await learn(api, node, labels)
            asked_count += 1
            asked_about, waited_seconds = self._actor.unknown, 0.0
            while waited_seconds < LEARN_SECONDS and self._actor.unknown <= asked_about:
                await asyncio.sleep(TICK_SECONDS)
                waited_seconds += TICK_SECONDS

    async def _sending(self, api: Api) -> NoReturn:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            if self.outbox.is_urgent:
                await self.outbox.send(api)


def _beginning(path: Path, fresh: float) -> str:
    """Return the beginning of a file written since ``fresh``, "" of anything else: pods write here.

    It is opened first and looked at then, so that no pod can put a pipe, which waits, or a link in its place.
    """
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_mtime < fresh:
                return ""
            return file.read(_LATENCY_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
