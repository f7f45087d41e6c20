"""A process that compiles kernels: it reads the name of one a line, keeps it on disk, and answers with it.

It ends when its standard input does, with the process that started it at the latest.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading


def main() -> None:
    """Compile what is asked for, one after another, at the priority that the argument says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that asks
    os.nice(int(sys.argv[1]))
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(asked,), daemon=True).start()
    from domain.kernels.catalogue import UNITS

    units = {each.name: each for each in UNITS}
    while True:
        name = asked.get()
        units[name].prepare()
        sys.stdout.write(f"{name}\n")
        sys.stdout.flush()


def _read(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line.strip())
    os._exit(0)  # the process that asked has ended


if __name__ == "__main__":
    main()
