"""How fast the console's first page is with many nodes and pods, in a real Chromium, and what it costs.

A generator fills an empty ledger (``benchmarks/query.py``). Then `berth api` runs as a process of its own
and Chromium opens the overview again and again, each time with nothing kept from before. It is interactive
when the field is drawn: then squares can be pointed at, and everything else was there before.

An hour of refreshes is lived in minutes: the page's own clock is turned on, and stands still while it asks.
Each time a node changes, the page is made anew as after an event, and the field is asked for whole and drawn.
The heap is measured after the browser has collected it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx
import msgspec

from benchmarks import query
from benchmarks.machine import describe
from benchmarks.stage import BenchError
from ops.child import environment, python_path
from ops.chromium import open_browser
from ops.kafka import free_port
from ops.postgres import PostgresServer

PAGE = "/console/"
REFRESH_MS = 3_000
"""As often the console makes a page anew while something happens (``live.js``)."""
DRAWN = "#node-field[data-drawn]"
_READY_SECONDS = 60.0
_STEP_MS = 250

_TIMES = """() => {
    const [page] = performance.getEntriesByType("navigation");
    const all = [page, ...performance.getEntriesByType("resource")];
    return {
        first_byte_ms: page.responseStart - page.startTime,
        readable_ms: page.domContentLoadedEventEnd - page.startTime,
        interactive_ms: performance.mark("drawn").startTime - page.startTime,
        bytes: all.reduce((sum, each) => sum + each.transferSize, 0),
    };
}"""


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """How long one visit took, from when the browser began to ask, and how much came over the wire."""

    first_byte_ms: float
    readable_ms: float
    interactive_ms: float
    bytes: int


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The heap of the page after so many refreshes that were drawn."""

    refreshes: int
    heap_bytes: int
    elements: int


class ConsoleReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured: the median visit and the slowest, the heap over time, and commits beside a page."""

    nodes: int
    placed: int
    visits: int
    median: Opened
    slowest: Opened
    heap: list[Kept]
    commits: list[query.Commits]
    machine: dict[str, Any]


class Size(NamedTuple):
    """How much is generated, how often the page is opened, and for how long it stays."""

    nodes: int = 20_000
    pods: int = 500_000
    visits: int = 20
    refreshes: int = 1_200
    per_second: int = 5_000
    seconds: float = 30.0


@contextlib.contextmanager
def berth_api(
    dsn: str, scratch: Path, *, kafka: str | None = None, reads_always: bool = False
) -> Iterator[str]:
    """Run `berth api` on loopback, where it asks for no key; return where it is.

    With ``reads_always`` it reads the field for each who asks, and does not give what it read a while ago.
    """
    code = "from services.api import field; from services.cli.main import main; "
    code += "field.READS_SHARE = 0; main()" if reads_always else "main()"
    port = free_port()
    told = environment(PYTHONPATH=python_path(), BERTH_POSTGRES_DSN=dsn, BERTH_WHY="off")
    if kafka is not None:
        told["BERTH_KAFKA_BOOTSTRAP"] = kafka
    with (scratch / "api.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, "api", "--port", str(port)],
            cwd="/",
            env=told,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            until = time.monotonic() + _READY_SECONDS
            url = f"http://127.0.0.1:{port}"
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if httpx.get(f"{url}/healthz").status_code == 200:
                        break
                if process.poll() is not None or time.monotonic() > until:
                    raise BenchError(f"the API did not start: {(scratch / 'api.log').read_text()[-500:]}")
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait()


@contextlib.asynccontextmanager
async def _page(browser: Any, url: str) -> AsyncIterator[Any]:
    context = await browser.new_context(base_url=url, viewport={"width": 1600, "height": 1000})
    try:
        yield await context.new_page()
    finally:
        await context.close()


async def _visit(browser: Any, url: str) -> Opened:
    async with _page(browser, url) as page:
        await page.add_init_script(
            "addEventListener('berth:drawn', () => { window.drawn ??= performance.now(); }, true)"
        )
        await page.goto(PAGE)
        await page.wait_for_selector(DRAWN)
        times = await page.evaluate(_TIMES)
        times["interactive_ms"] = await page.evaluate("window.drawn")
        return Opened(**{name: round(value) for name, value in times.items()})


async def _live(browser: Any, url: str, dsn: str, size: Size, report: Callable[[str], None]) -> list[Kept]:
    """Refresh a page for an hour of its own time; return its heap at some moments of it."""
    connection = await asyncpg.connect(dsn)
    found = []
    try:
        async with _page(browser, url) as page:
            await page.clock.install()
            await page.goto(PAGE)
            await page.wait_for_selector(DRAWN)
            await page.clock.pause_at(datetime.datetime.now() + datetime.timedelta(minutes=1))
            tools = await page.context.new_cdp_session(page)
            asking = set[Any]()
            page.on("request", lambda each: asking.add(each))
            for done in ("requestfinished", "requestfailed"):
                page.on(done, lambda each: asking.discard(each))
            await page.evaluate(
                "document.addEventListener('berth:drawn', () => { window.draws = (window.draws || 0) + 1; })"
            )
            for number in range(size.refreshes + 1):
                if number % max(1, size.refreshes // 6) == 0:
                    found.append(await _heap(page, tools, number))
                    report(f"{number} refreshes: {found[-1].heap_bytes / 1e6:.1f} MB")
                await _change(connection, number % size.nodes + 1)
                draws = await page.evaluate("window.draws || 0")
                await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
                await page.clock.fast_forward(REFRESH_MS)
                async with asyncio.timeout(60):
                    while await page.evaluate("window.draws || 0") == draws:
                        if not any("/events" not in each.url for each in asking):
                            await page.clock.fast_forward(_STEP_MS)
                        await asyncio.sleep(0.01)
    finally:
        await connection.close()
    return found


async def _change(connection: Any, node: int) -> None:
    """Let a node have one more thousandth of a core asked of it, as a batch would, in a moment of its own."""
    async with connection.transaction():
        await connection.execute(
            "UPDATE nodes SET requested[1] = requested[1] + 1, version = version + 1 WHERE id = $1", node
        )
        await connection.execute("UPDATE shard_offsets SET next_offset = next_offset + 1 WHERE shard = 0")


async def _heap(page: Any, tools: Any, refreshes: int) -> Kept:
    await tools.send("HeapProfiler.enable")
    await tools.send("HeapProfiler.collectGarbage")
    await tools.send("Performance.enable")
    told = {each["name"]: each["value"] for each in (await tools.send("Performance.getMetrics"))["metrics"]}
    return Kept(refreshes=refreshes, heap_bytes=int(told["JSHeapUsedSize"]), elements=int(told["Nodes"]))


async def _beside(browser: Any, url: str, dsn: str, size: Size) -> list[query.Commits]:
    """Commit batches with no page open, and with one that follows them."""
    alone, _ = await query.committing(dsn, size.per_second, "no page", asyncio.sleep(size.seconds))
    async with _page(browser, url) as page:
        await page.goto(PAGE)
        await page.wait_for_selector(DRAWN)
        looking = asyncio.sleep(size.seconds)
        watched, _ = await query.committing(dsn, size.per_second, "an open overview", looking)
    return [alone, watched]


async def measure(dsn: str, scratch: Path, size: Size, report: Callable[[str], None]) -> ConsoleReport:
    """Fill an empty ledger and measure the console on it."""
    described, life = describe(), 100
    rate = size.pods // life
    history = query.Size(2 * rate * (life + 20), size.nodes, rate, life)
    await query.generate(dsn, history, report)
    with berth_api(dsn, scratch) as url:
        async with open_browser() as browser:
            await _visit(browser, url)  # templates and statements are prepared
            visits = [await _visit(browser, url) for _ in range(size.visits)]
            report(f"interactive after {statistics.median(each.interactive_ms for each in visits)} ms")
            commits = await _beside(browser, url, dsn, size)
    with berth_api(dsn, scratch, reads_always=True) as url:
        async with open_browser() as browser:
            heap = await _live(browser, url, dsn, size, report)
    names = Opened.__struct_fields__
    columns = {name: [getattr(each, name) for each in visits] for name in names}
    return ConsoleReport(
        nodes=size.nodes,
        placed=rate * life,
        visits=size.visits,
        median=Opened(**{name: round(statistics.median(column)) for name, column in columns.items()}),
        slowest=Opened(**{name: max(column) for name, column in columns.items()}),
        heap=heap,
        commits=commits,
        machine=described,
    )


def run(size: Size) -> ConsoleReport:
    """Measure on a server that is started for it."""
    with tempfile.TemporaryDirectory(prefix="berth-console-") as scratch:
        Path(scratch).chmod(0o755)  # the server may run as another account
        with PostgresServer(Path(scratch) / "postgres") as dsn:
            return asyncio.run(measure(dsn, Path(scratch), size, _tell))


def main() -> None:
    """Measure with the sizes of the command line, and print what was found as JSON."""
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in Size()._asdict().items():
        given.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    report = run(Size(**vars(given.parse_args())))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")


def _tell(progress: str) -> None:
    sys.stderr.write(f"{progress}\n")


if __name__ == "__main__":
    main()
