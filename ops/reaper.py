"""Ends a server when the process that started it is gone, even after ``kill -9``.

A parent that is killed by ``kill -9`` cannot clean up. So it starts this little process first and holds the
writing end of a pipe: when the pipe closes, nobody is left who wants the server.

Run as ``python -m ops.reaper PID STARTED SIGNAL [SIGNAL...]`` with the pipe as
standard input; the signals are sent one after another, each with time to work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

import psutil

_SECONDS_PER_SIGNAL = 30.0


class Reaper:
    """Watches over one process for as long as this process lives.

    Parameters
    ----------
    process : psutil.Process
        The process to end.
    signals : sequence of int
        Sent one after another, each with time to work, until the process is gone.
    keep_open : sequence of int
        File descriptors, such as locks, that have to stay open until the process is gone.
    """

    def __init__(
        self, process: psutil.Process, signals: Sequence[signal.Signals], keep_open: Sequence[int] = ()
    ) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self._child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "ops.reaper",
                    str(process.pid),
                    repr(process.create_time()),
                    *(str(int(number)) for number in signals),
                ],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=tuple(keep_open),
                start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
            )
        except BaseException:
            os.close(self._write_end)
            raise
        finally:
            os.close(read_end)

    def close(self) -> None:
        """End the process, if it still runs, and stop watching it."""
        os.close(self._write_end)
        self._child.wait()


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
