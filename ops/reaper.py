"""Ends a server when the process that started it is gone, even after ``kill -9``.

A parent that is killed by ``kill -9`` cannot clean up. So it starts this little process first and holds the
writing end of a pipe: when the pipe closes, nobody is left who wants the server.

Run as ``python -P /…/ops/reaper.py PID STARTED SIGNAL [SIGNAL...]`` with the pipe as
standard input; the signals are sent one after another, each with time to work.
It imports nothing of berth: its path need not lead to it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence

import psutil

_SECONDS_PER_SIGNAL = 30.0


def end(
    process: psutil.Process, signals: Sequence[int], seconds_per_signal: float = _SECONDS_PER_SIGNAL
) -> None:
    """Send the signals in turn until the process is gone; a process id used anew is left alone."""
    for number in signals:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                process.send_signal(number)
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(seconds_per_signal)


def main(arguments: Sequence[str]) -> None:
    """Wait for the end of standard input, then end the process."""
    pid, started, *signals = arguments
    sys.stdin.buffer.read()
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(pid))
        if process.create_time() == float(started):
            end(process, [int(number) for number in signals])


if __name__ == "__main__":
    main(sys.argv[1:])
