"""The processes of one day: real commands of berth, each started again whenever it has ended."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil

from domain.model.limits import lease_seconds
from ops.child import Reaper, environment, python_module, python_path
from ops.reaper import end
from tests.chaos.servers import Way

SOUND = "services.cli.main"
EXECUTOR = "executor"
PREEMPTION_SECONDS = 10
"""For so long a promised node is kept free. Some promises run out while no executor runs."""

CHECKPOINT_BATCHES = 100
"""Workers often rest for a checkpoint, so that they also die, freeze and are cut off while they do."""

_STOP_SECONDS_MAX = 20.0
_LOOK_SECONDS = 0.02
_STARTING_OVER = re.compile(r"starting over: ([a-z-]+):")


class Slot:
    """The place of one worker, relay or executor.

    Attributes
    ----------
    ended : list of str
        The last words of each process that ended without being told to.
    stop_seconds : list of float
        How long each process took that was told to stop and could.
    """

    def __init__(
        self, kind: str, number: int, way: Way, folder: Path, command: list[str], preempts: bool
    ) -> None:
        self.kind = kind
        self.way = way
        self.name = f"{kind}-{number}"
        self.starts_count = 0
        self.ended: list[str] = []
        self.stop_seconds: list[float] = []
        self._command = command
        self._preempts = preempts
        self._output = folder / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: Reaper | None = None
        self._expected = False
        self._is_over = False

    async def keep_running(self, rng: random.Random) -> None:
        """Start the process, and another one some time after it has ended, until ``close``."""
        while not self._is_over:
            await asyncio.to_thread(self._start)
            assert self._process is not None
            if self._is_over:  # it was closed while the process began
                self.kill()
            while self._process.poll() is None:  # a thread that waits is one less to start servers with
                await asyncio.sleep(_LOOK_SECONDS)
            if not self._expected:
                code = self._process.returncode
                self.ended.append(f"{self.name} ended by itself with {code}: {self.said()[-1500:]}")
            if self._reaper is not None:
                await asyncio.to_thread(self._reaper.close)
            if not self._is_over:
                await asyncio.sleep(rng.uniform(0.0, 1.0))

    def _start(self) -> None:
        self.starts_count += 1
        self._expected = False
        place = self.way.place
        assert place.kafka_bootstrap is not None
        env = environment(
            PYTHONPATH=python_path(),
            BERTH_POSTGRES_DSN=place.dsn,
            BERTH_KAFKA_BOOTSTRAP=place.kafka_bootstrap,
            BERTH_WORKER_NAME=f"{self.name}.{self.starts_count}",
            BERTH_PREEMPTION="on" if self._preempts else "off",
            BERTH_PREEMPTION_SECONDS=str(PREEMPTION_SECONDS),
            BERTH_CHECKPOINT_BATCHES=str(CHECKPOINT_BATCHES),
        )
        with self._output.open("ab") as file:
            self._process = subprocess.Popen(
                self._command, cwd="/", env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        self._reaper = Reaper(psutil.Process(self._process.pid), [signal.SIGKILL])

    @property
    def runs(self) -> bool:
        """Whether the process runs, paused or not."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> bool:
        """Kill -9; return whether there was anything to kill."""
        if not self.runs:
            return False
        assert self._process is not None
        self._expected = True
        self._process.kill()
        return True

    async def pause(self, leases: float) -> bool:
        """Let the process stand still for so many leases."""
        if not self.runs:
            return False
        assert self._process is not None
        process = self._process
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(leases * lease_seconds)
        finally:
            process.send_signal(signal.SIGCONT)
        return True

    async def stop(self) -> bool:
        """Tell the process to stop, and wait until it has."""
        if not self.runs:
            return False
        assert self._process is not None
        self._expected = True
        process, began = self._process, time.monotonic()
        process.send_signal(signal.SIGTERM)
        while process.poll() is None and time.monotonic() < began + _STOP_SECONDS_MAX:
            await asyncio.sleep(_LOOK_SECONDS)
        self.stop_seconds.append(time.monotonic() - began)
        process.kill()
        return True

    def close(self) -> None:
        """Start no more; end what runs. To be called before ``keep_running`` is cancelled."""
        self._is_over = self._expected = True
        if self._process is not None and self.runs:
            end(psutil.Process(self._process.pid), [signal.SIGKILL])

    def said(self) -> str:
        """Return what the processes of this place have printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def restarts(self) -> Counter[str]:
        """Return why workers started over, and how often."""
        return Counter(_STARTING_OVER.findall(self.said()))


def command_of(kind: str, build: str, folder: Path) -> list[str]:
    """Return the command of a process, of the sound build or of one that is broken on purpose."""
    more = ["--positions", str(folder / "positions")] if kind == EXECUTOR else []
    if build == "sound":
        return python_module(SOUND, kind, *more)
    return python_module("tests.chaos.broken", build, kind, *more)
