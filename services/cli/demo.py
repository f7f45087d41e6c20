"""`berth demo`: runs a real cluster's trace through the whole of berth, and prints a summary."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from berth.client.requests import PAGE
from domain.model.devices import DEVICE_ONE, GPU, GPU_MILLI
from services import bootstrap
from services.cli.explain import explained, print_pod
from services.cli.output import say
from services.cli.source import Source, fetch, fetch_all, in_process, send_events
from services.cli.terminal import echo
from services.config import Settings, local_user
from services.phrases import devices_taken_in_words, plural, reason_in_words
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Log, TopicPartition
from services.ports.store import Store
from services.processes import Running, serve_up
from services.traces import openb

_POLL_SECONDS = 0.05


class Published(NamedTuple):
    """What became of the trace that was published."""

    accepted: int
    duplicates: int
    decisions: int
    seconds: float


class Bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    def show(self, done: int, total: int, text: str) -> None:
        """Show the progress."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done, total=total, description=text)


@contextlib.contextmanager
def progress_bar() -> Iterator[Bar]:
    """Show a progress bar if there is a terminal."""
    if not sys.stderr.isatty():
        yield Bar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bar(progress, progress.add_task("starting", total=None))


async def serve_demo(settings: Settings, *, leave: bool) -> None:
    """Run everything, publish the trace, print the summary; serve on unless ``leave``."""

    async def show(running: Running) -> None:
        store, log = bootstrap.open_store(running.place), bootstrap.open_log(running.place)
        try:
            async with bootstrap.open_app(running.place, keys_required=False, local_user=local_user()) as app:
                source = in_process(app)
                published = await _play(store, log, source)
                await _report(source, store, running, published, settings, leave=leave)
        finally:
            await store.aclose()
            await log.aclose()
        if not leave:
            echo(f"\nThe console: {running.url}/console/")
            echo(f"Serving on {running.url}, described at /docs; Ctrl-C stops it.")
            await asyncio.Event().wait()

    await serve_up(settings, show)


async def _play(store: Store, log: Log, source: Source) -> Published:
    """Publish the trace and wait until each of its pods is placed or waits with a reason."""
    events = list(openb.events())
    with progress_bar() as bar:
        bar.show(0, len(events), "waiting for the worker")
        while not all(row.owner for row in await store.processes.shards()):
            await asyncio.sleep(_POLL_SECONDS)
        before = await _decided(store)
        started = time.perf_counter()
        accepted = duplicates = 0
        for at in range(0, len(events), PAGE):
            sums = await send_events(source, events[at : at + PAGE])
            accepted += sums["accepted"]
            duplicates += sums["duplicates"]
            bar.show(at + PAGE, len(events), "publishing events")
        pods = len([event for event in events if event["object"]["kind"] == "Pod"])
        last, last_at = before, started
        ends = await log_ends(log)
        while True:
            decided = await _decided(store)
            if decided != last:
                last, last_at = decided, time.perf_counter()
            bar.show(min(decided, pods), pods, "placing pods")
            if await settled(store, ends):
                break
            await asyncio.sleep(_POLL_SECONDS)
    return Published(accepted, duplicates, last - before, last_at - started)


async def _decided(store: Store) -> int:
    return sum(row.seq_next - 1 for row in await store.processes.shards())


async def log_ends(log: Log) -> dict[TopicPartition, int]:
    """Return the offset after the last record of each partition of nodes and pods."""
    ends = {}
    for topic in (NODES_TOPIC, PODS_TOPIC):
        for partition in range(await log.partitions(topic)):
            last = await log.last_record(TopicPartition(topic, partition))
            ends[TopicPartition(topic, partition)] = 0 if last is None else last.offset + 1
    return ends


async def settled(store: Store, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether everything before these offsets took effect and every pending group was tried."""
    done = {
        TopicPartition(row.topic, row.partition): row.next_offset for row in await store.processes.offsets()
    }
    if any(done.get(at, 0) < end for at, end in ends.items()):
        return False
    return all(row.reasons is not None for row in await store.pending(None))


async def _report(
    source: Source, store: Store, running: Running, published: Published, settings: Settings, *, leave: bool
) -> None:
    """Print the table, an explained decision and what to try next."""
    waiting = await fetch_all(source, "/v1/pending", None)
    placed = await fetch_all(source, "/v1/pods", None, phase="bound")
    nodes = await fetch_all(source, "/v1/nodes", None)
    reasons: Counter[str] = Counter()
    for group in waiting:
        code = max(group["reasons"], key=lambda each: group["reasons"][each], default="none")
        reasons[code] += group["count"]
    why = [f"{reason_in_words(code)} ({plural(count, 'pod')})" for code, count in reasons.most_common(4)]
    rate = "nothing new to decide"
    if published.decisions:
        rate = (
            f"{published.decisions / published.seconds:,.0f} (from the first event to the last durable one)"
        )
    rows = [
        ("nodes", f"{len(nodes):,}"),
        ("pods placed", f"{len(placed):,}"),
        ("pods pending", f"{sum(group['count'] for group in waiting):,}"),
        ("  most nodes", "; ".join(why) or "-"),
        ("GPUs", _gpus([taken for node in nodes for taken in node["devices"]])),
        ("decisions", f"{await _decided(store):,}"),
        ("decisions/s", rate),
    ]
    if not leave:
        rows.append(("API", running.url))
    where = running.directory if settings.postgres_dsn is None else "BERTH_POSTGRES_DSN"
    if published.duplicates:
        echo(
            f"{published.duplicates:,} of the trace's events were here already and had no effect again; "
            f"{published.accepted:,} were new. State is in {where}."
        )
    _table(rows)
    example = await _interesting(source, [pod for pod in placed if not pod["adopted"]])
    if example is not None:
        echo("\nOne decision, explained:\n")
        print_pod(await explained(source, *example))
    shared = max(
        nodes, key=lambda node: sum(0 < taken < DEVICE_ONE for taken in node["devices"]), default=None
    )
    if shared is not None:
        echo(f"\nThe GPUs of {shared['name']}, one by one:\n")
        say(devices_taken_in_words(shared["devices"]))
    chosen = waiting[0]["examples"][0] if waiting else "openb/openb-pod-0042"
    flags = f" --dir {shlex.quote(str(settings.dir))}" if settings.dir else ""
    echo("\nTry next:\n")
    commands = ["get pending", f"explain pod {chosen}", "get decisions --newest --limit 10 -o wide"]
    if shared is not None:
        commands.append(f"describe node {shared['name']}")
    for command in commands:
        echo(f"  {_program()} {command}{flags}")


def _gpus(taken: Sequence[int]) -> str:
    """Return how many GPUs there are, and how much of them pods have, given the thousandths taken of each."""
    if not taken:
        return "-"
    full, free = taken.count(DEVICE_ONE), taken.count(0)
    percent = 100 * sum(taken) / (DEVICE_ONE * len(taken))
    parted = len(taken) - full - free
    return f"{len(taken):,}: {full:,} full, {parted:,} in part, {free:,} free; {percent:.1f} % taken"


async def _interesting(source: Source, placed: list[dict[str, Any]]) -> tuple[str, str] | None:
    """Return a placed pod whose decision had to leave nodes out: with a share of a GPU, if any has one."""
    best: tuple[str, str] | None = None
    sharing = [pod for pod in placed if GPU_MILLI in pod["requests"] and GPU not in pod["requests"]]
    for pod in (sharing or placed)[:: max(1, len(sharing or placed) // 20)]:
        if pod["decision"] is None:
            continue
        best = (pod["namespace"], pod["name"])
        found = await fetch(source, f"/v1/decisions/{pod['decision']}/explanation")
        if found["cycle"] and found["cycle"]["reasons"] and found["cycle"]["candidates"]:
            return best
    return best


def _table(rows: list[tuple[str, str]]) -> None:
    if not sys.stdout.isatty():
        for name, value in rows:
            echo(f"{name.strip()}\t{value}")
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.ROUNDED, show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _program() -> str:
    """Return the command by which the user calls berth."""
    if shutil.which("berth"):
        return "berth"
    program = Path(sys.argv[0]).absolute()
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else str(program)
