"""What lent cores cost a server on this very machine: ``python -m benchmarks.colocation_linux``.

A small HTTP server is a high pod, busy loops are a low one, in groups as kubelet leaves them. A probe asks
the server at a fixed rate, whatever it answers, and counts each latency from when it meant to ask. In turns,
so that what else the machine does meets all alike, the server runs alone, with low pods free, and with low
pods under `berth agent`. ``cost`` measures instead what an agent itself uses, with 100 pods.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.node_stage import LOW, MID, Groups, Told, agent, api, groups, pod
from benchmarks.stage import BenchError
from benchmarks.statistics import percentile
from ops.child import environment, python_module, python_path
from services.ports.cgroups import Quota

MODES = ("alone", "free", "agent")
HIGH, BURNERS = "kubepods/podhigh", f"{LOW}/podlow"
RATE = 300  # requests per second
_CONNECTIONS = 4  # of a server that is asked all the time
SETTLE_SECONDS = 4.0  # until a phase is measured: the agent looks each second
PERIOD_US = 100_000
QUIET: Mapping[str, Any] = {"eviction": {"after": "1h", "lower": "0%"}}
"""The policy of the measurement: no pod is ended, as what is measured is how boxes hold."""

_SERVER = """
import asyncio, hashlib, sys
async def serve(reader, writer):
    try:
        while await reader.readuntil(b"\\r\\n\\r\\n"):
            text = b"x" * 65536
            for _ in range(30):
                hashlib.sha256(text).digest()
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""
_BURNER = "while True: pass"


class Phase(NamedTuple):
    """What one phase showed; the quota of low pods is its average.

    ``high_cores`` is what the server got while it was asked all the time: at a fixed rate it asks for less
    where its cores are warm.
    """

    round: int
    mode: str
    p50_ms: float
    p99_ms: float
    high_cores: float
    low_cores: float
    quota_cores: float | None
    others_cores: float


async def _probe(port: int, seconds: float) -> list[float]:
    """Ask at a fixed rate; return the latencies in seconds, from when each question was due."""
    loop = asyncio.get_running_loop()
    free: asyncio.LifoQueue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.LifoQueue()
    found: list[float] = []

    async def ask(due: float) -> None:
        reader, writer = (
            await asyncio.open_connection("127.0.0.1", port) if free.empty() else free.get_nowait()
        )
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"ok")
        found.append(loop.time() - due)
        free.put_nowait((reader, writer))

    began, asked = loop.time(), set[asyncio.Task[None]]()
    for number in range(int(RATE * seconds)):
        due = began + number / RATE
        await asyncio.sleep(max(0.0, due - loop.time()))
        asked.add(asyncio.create_task(ask(due)))
    await asyncio.wait(asked)
    for each in asked:
        each.result()
    return found


async def _ask_always(port: int, seconds: float) -> list[float]:
    """Ask over some connections, each time again when the answer is there; return the latencies."""
    loop = asyncio.get_running_loop()
    found: list[float] = []
    until = loop.time() + seconds

    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while (began := loop.time()) < until:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await reader.readuntil(b"ok")
            found.append(loop.time() - began)
        writer.close()

    await asyncio.gather(*(ask() for _ in range(_CONNECTIONS)))
    return found


_PROBES: Mapping[str, Callable[[int, float], Coroutine[Any, Any, list[float]]]] = {
    "probe": _probe,
    "ask-always": _ask_always,
}


def _free(where: Groups) -> None:
    """Leave the boxes as kubelet has them."""
    where.cgroups.set_idle(LOW, False)
    for box in (LOW, MID):
        where.cgroups.set_quota(box, Quota(None, PERIOD_US))
    where.weigh(LOW, 2)
    where.weigh(MID, 2)
    where.weigh(HIGH, 1_024)


class _Seen(NamedTuple):
    """What was used while a probe asked, in cores, the latencies, and the quotas of low pods."""

    latencies: list[float]
    high: float
    low: float
    others: float
    quotas: list[float]


def _watch(where: Groups, probe: str, port: int, seconds: float) -> _Seen:
    """Let a probe ask, and read meanwhile what the groups use and which quota holds."""
    before = where.cgroups.node(), where.cpu_seconds(HIGH), where.cpu_seconds(LOW), time.monotonic()
    quotas = []
    with tempfile.TemporaryFile("w+") as said:  # a pipe holds too few latencies
        process = subprocess.Popen(
            python_module("benchmarks.colocation_linux", probe, port, seconds),
            cwd="/",
            env=environment(PYTHONPATH=python_path()),
            stdout=said,
        )
        while process.poll() is None:
            time.sleep(0.1)
            quota = where.cgroups.quota(LOW)
            if quota is not None and quota.quota_us is not None:
                quotas.append(quota.quota_us / quota.period_us)
        said.seek(0)
        latencies = json.load(said)
    after = where.cgroups.node(), where.cpu_seconds(HIGH), where.cpu_seconds(LOW), time.monotonic()
    elapsed = after[3] - before[3]
    high, low = (after[1] - before[1]) / elapsed, (after[2] - before[2]) / elapsed
    node = (after[0].cpu_us - before[0].cpu_us) / 1e6 / elapsed
    return _Seen(latencies, high, low, node - high - low, quotas)


def _measure(where: Groups, port: int, number: int, mode: str, seconds: float) -> Phase:
    """Ask the server at a fixed rate, and then all the time."""
    seen = _watch(where, "probe", port, seconds)
    always = _watch(where, "ask-always", port, seconds / 2)
    return Phase(
        number,
        mode,
        1000 * percentile(seen.latencies, 0.5),
        1000 * percentile(seen.latencies, 0.99),
        always.high,
        seen.low,
        sum(seen.quotas) / len(seen.quotas) if mode == "agent" and seen.quotas else None,
        seen.others,
    )


def _round(where: Groups, url: str, port: int, number: int, seconds: float) -> list[Phase]:
    """Measure all three, one after the other; a later round begins with another of them."""
    turn = number % len(MODES)
    found = []
    for mode in (*MODES[turn:], *MODES[:turn]):
        _free(where)
        burners = [] if mode == "alone" else [
            where.run(BURNERS, sys.executable, "-c", _BURNER) for _ in range(2 * (os.cpu_count() or 1))
        ]  # fmt: skip
        try:
            if mode == "agent":
                with agent(where, url):
                    time.sleep(SETTLE_SECONDS)
                    found.append(_measure(where, port, number, mode, seconds))
            else:
                time.sleep(SETTLE_SECONDS)
                found.append(_measure(where, port, number, mode, seconds))
        finally:
            for each in burners:
                each.kill()
                each.wait()
    return found


def rounds(count: int, seconds: float) -> list[Phase]:
    """Measure some rounds."""
    told = Told([pod("high", "Guaranteed", "1"), pod("low", "BestEffort")], QUIET)
    with groups() as where, api(told) as url:
        for group in (HIGH, BURNERS):
            where.make(group)
        _free(where)
        server = where.run(HIGH, sys.executable, "-c", _SERVER, stdout=subprocess.PIPE)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            found: list[Phase] = []
            for number in range(count):
                found += _round(where, url, port, number, seconds)
                for each in found[-len(MODES) :]:
                    sys.stderr.write(f"{_line(each)}\n")
            return found
        finally:
            server.kill()
            server.wait()


def _line(phase: Phase) -> str:
    quota = "-" if phase.quota_cores is None else f"{phase.quota_cores:.2f}"
    return (
        f"round {phase.round:2} {phase.mode:5}  p50 {phase.p50_ms:7.2f} ms  p99 {phase.p99_ms:8.2f} ms  "
        f"high {phase.high_cores:.3f}  low {phase.low_cores:.3f} of {quota}  "
        f"others {phase.others_cores:.2f}"
    )


def summary(found: Sequence[Phase]) -> dict[str, Any]:
    """Return the medians by mode; ``holds`` says of each promise whether it was kept.

    None: what else the machine did cost the server more than free low pods, so nothing is shown.
    """
    of = {mode: [each for each in found if each.mode == mode] for mode in MODES}
    p99 = {mode: median(each.p99_ms for each in rows) for mode, rows in of.items()}
    high = {mode: median(each.high_cores for each in rows) for mode, rows in of.items()}
    over = [each.low_cores / each.quota_cores for each in of["agent"] if each.quota_cores]
    lent = {mode: median(each.low_cores for each in rows) for mode, rows in of.items()}
    return {
        "rounds": len(of["alone"]),
        "p99_ms": {mode: round(value, 2) for mode, value in p99.items()},
        "p50_ms": {mode: round(median(each.p50_ms for each in rows), 2) for mode, rows in of.items()},
        "high_cores": {mode: round(value, 3) for mode, value in high.items()},
        "low_cores": {mode: round(value, 3) for mode, value in lent.items()},
        "low_of_quota_max": round(max(over), 3),
        "holds": {
            "half of what free low pods cost in p99": None
            if p99["free"] <= p99["alone"]
            else p99["agent"] - p99["alone"] <= (p99["free"] - p99["alone"]) / 2,
            "low pods use their quota and 5 % at most": max(over) <= 1.05,
            "the server gets the cpu that it gets alone, within 5 %": abs(high["agent"] / high["alone"] - 1)
            <= 0.05,
        },
        "machine": machine.describe(),
    }


def cost(seconds: float, pods_count: int = 100) -> dict[str, Any]:
    """Return what an agent uses with so many pods, once it is up."""
    classes = ("Guaranteed", "Burstable", "BestEffort")
    boxes = dict(zip(classes, ("kubepods", MID, LOW), strict=True))
    pods = [pod(f"p{number}", classes[number % 3], "10m") for number in range(pods_count)]
    told = Told(pods, QUIET)
    with groups() as where, api(told) as url:
        for each in pods:
            where.make(f"{boxes[each['qos_class']]}/pod{each['uid']}")
        with agent(where, url) as process:
            time.sleep(3 * SETTLE_SECONDS)
            began, before = time.monotonic(), _cpu_seconds(process.pid)
            time.sleep(seconds)
            used = (_cpu_seconds(process.pid) - before) / (time.monotonic() - began)
            status = Path(f"/proc/{process.pid}/status").read_text()
    resident = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return {
        "pods": pods_count,
        "seconds": seconds,
        "percent_of_a_core": round(100 * used, 2),
        "resident_mib_max": int(resident) >> 10,
        "requests_with_events": told.posts_count,
        "machine": machine.describe(),
    }


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def draw(found: Sequence[Phase], folder: Path) -> None:
    """Draw the latencies and what low pods used, by round, and write the figures beside."""
    from research.simulate.drawing import drawing, from_zero, line_style, write

    pyplot = drawing()
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(7, 6), sharex=True)
    for number, mode in enumerate(MODES):
        rows = [each for each in found if each.mode == mode]
        numbers = [each.round + 1 for each in rows]
        above.plot(numbers, [each.p99_ms for each in rows], label=mode, **line_style(number))
        if mode != "alone":
            below.plot(numbers, [each.low_cores for each in rows], label=f"low, {mode}", **line_style(number))
    rows = [each for each in found if each.mode == "agent"]
    numbers = [each.round + 1 for each in rows]
    below.plot(numbers, [each.quota_cores for each in rows], label="quota of low", **line_style(3))
    from_zero(above, [each.p99_ms for each in found])
    from_zero(below, [each.low_cores for each in found])
    above.set(ylabel="p99 of the server, ms")
    below.set(xlabel="round", ylabel="cores")
    for axes in (above, below):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.tight_layout()
    write(folder, [("colocation_linux", figure)])
    with (folder / "colocation_linux.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Phase._fields)
        writer.writerows(
            [f"{value:.4f}" if isinstance(value, float) else value for value in each] for each in found
        )


def main(arguments: Sequence[str]) -> int:
    """Measure, and print what was found as JSON; 1 where a promise was not shown to be kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.colocation_linux", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("rounds", help="the server alone, beside free low pods, and beside held ones")
    run.add_argument("--rounds", type=int, default=10)
    run.add_argument("--seconds", type=float, default=10.0, help="of each of the three, of a round")
    run.add_argument("--plots", type=Path, help="draw into this folder (needs matplotlib)")
    of_agent = commands.add_parser("cost", help="what an agent uses with 100 pods")
    of_agent.add_argument("--seconds", type=float, default=120.0)
    for name in _PROBES:
        probe = commands.add_parser(name)
        probe.add_argument("port", type=int)
        probe.add_argument("seconds", type=float)
    given = parser.parse_args(arguments)
    if (ask := _PROBES.get(given.command)) is not None:
        # It stands for a client on another machine: that it waits for a core itself must not count.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        sys.stdout.write(json.dumps(asyncio.run(ask(given.port, given.seconds))))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # groups and programs are removed then, too
    try:
        if given.command == "cost":
            sys.stdout.write(f"{json.dumps(cost(given.seconds), indent=1)}\n")
            return 0
        found = rounds(given.rounds, given.seconds)
    except BenchError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if given.plots is not None:
        draw(found, given.plots)
    told = summary(found)
    sys.stdout.write(f"{json.dumps(told, indent=1)}\n")
    return 0 if all(told["holds"].values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
