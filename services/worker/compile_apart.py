"""A process that compiles kernels: it reads the number of one a line, keeps it on disk, and answers with it.

It ends when its standard input does, with the process that started it at the latest.
"""

from __future__ import annotations

import os
import signal
import sys

from domain.kernels.catalogue import UNITS


def main() -> None:
    """Compile what is asked for, one after another, at the priority that the argument says."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the process that asks
    os.nice(int(sys.argv[1]))
    for line in sys.stdin:
        UNITS[int(line)].prepare()
        sys.stdout.write(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
