"""Does a worker give memory back that it no longer needs?"""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
from pathlib import Path
from services.worker.collector import collect_rarely

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

if {tuned}:
    collect_rarely()
for _ in range(3):
    b"x" * (20 << 20)
before = resident()
blocks = [b"x" * (4 << 20) for _ in range(20)]
pins = [b"y" * 5_000 for _ in range(40_000)]
del blocks
print(resident() - before - 40_000 * 5_000)
"""


def kept_bytes(*, tuned: bool) -> int:
    program = _PROGRAM.format(tuned=tuned)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_large_blocks_are_given_back() -> None:
    assert kept_bytes(tuned=True) < 20 << 20 < kept_bytes(tuned=False)
