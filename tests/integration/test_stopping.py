"""Does a process that has just begun end at once when it is told to?"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from ops.child import environment, python_path
from tests.servers import MakeDatabase

BERTH = Path(sys.executable).with_name("berth")
STOP_SECONDS = 2.0
STOP_CPU_SECONDS = 0.15
"""What a busy machine has for a process within ``STOP_SECONDS``."""


def initialise(env: Mapping[str, str]) -> None:
    subprocess.run([BERTH, "init"], env=env, check=True, capture_output=True)


def stop(command: str, last_word: str, env: Mapping[str, str]) -> tuple[int, float, float]:
    """Start a process and stop it in the middle of its work; return its code, seconds and processor time."""
    process = subprocess.Popen([BERTH, command], env=env, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        while last_word not in (line := process.stderr.readline()):
            assert line, f"berth {command} ended by itself"
        time.sleep(1.0)  # in the middle of a kernel, or of a read
        seen = psutil.Process(process.pid)
        cpu = seen.cpu_times()
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        seconds = time.monotonic() - began
        used = seen.cpu_times()  # its own, while it is not collected yet: not that of children that compiled
        process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        process.stderr.close()
    return process.returncode, seconds, used.user + used.system - cpu.user - cpu.system


@pytest.mark.parametrize(("command", "last_word"), [("worker", "compiling"), ("executor", "is up")])
async def test_a_process_that_has_just_begun_ends_at_once(
    command: str, last_word: str, tmp_path: Path, fresh_kafka: str, postgres_dsn: str, database: MakeDatabase
) -> None:
    env = environment(
        PYTHONPATH=python_path(),
        BERTH_POSTGRES_DSN=await database(postgres_dsn),
        BERTH_KAFKA_BOOTSTRAP=fresh_kafka,
        NUMBA_CACHE_DIR=str(tmp_path / "kernels"),  # none is there yet
    )
    await asyncio.to_thread(initialise, env)
    code, seconds, cpu_seconds = await asyncio.to_thread(stop, command, last_word, env)
    assert code == 0
    assert cpu_seconds < STOP_CPU_SECONDS
    assert seconds < STOP_SECONDS
