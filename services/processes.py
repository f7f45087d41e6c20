"""The long-running processes: each runs until Ctrl-C or SIGTERM and then stops cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from domain.model.errors import Unavailable
from services import bootstrap
from services.address import KEY_FILE, Instance, remove_address, write_address, write_key
from services.api.keys import key_hash, new_key
from services.bootstrap import Place
from services.build import build
from services.config import Settings
from services.listening import ServeError, bind, is_loopback, tls_of, url_of
from services.log_format import announce
from services.metrics import Heartbeat, process_app, process_registry
from services.ports.store import Grant
from services.rate_limit import RateLimit
from services.supervising import announced, supervise
from services.worker.collector import BRIEFLY, collect_rarely

if TYPE_CHECKING:
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry

_log = logging.getLogger("berth")


class Running(NamedTuple):
    """What ``berth up`` runs: its servers and its address."""

    place: Place
    directory: Path
    instance: Instance

    @property
    def url(self) -> str:
        """The address of the API."""
        return self.instance.url


async def in_own_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run on an event loop of its own, in a thread: what keeps the one loop busy leaves the other alone."""
    here, ended = asyncio.get_running_loop(), asyncio.Event()
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(asyncio.wait([task]))
        with contextlib.suppress(RuntimeError):  # it is not waited for any more
            here.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, daemon=True).start()
    try:
        await ended.wait()
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(task.cancel)
        await ended.wait()
    task.result()


async def _serve_api(app: FastAPI, listening: socket.socket, settings: Settings) -> None:
    """Answer requests until cancelled; requests under way are finished."""
    from services.serving import serve_http

    tls = tls_of(settings.api_tls_cert, settings.api_tls_key)
    if tls is None and not is_loopback(settings.api_host):
        announce(
            "warning: keys and answers cross the network unencrypted; "
            "set BERTH_API_TLS_CERT and BERTH_API_TLS_KEY, or put a proxy with TLS before this API"
        )
    collect_rarely(BRIEFLY)
    await serve_http(app, [listening], tls=tls, ending=app.state.live.stop)


@contextlib.contextmanager
def served_metrics(settings: Settings, registry: CollectorRegistry, heartbeat: Heartbeat) -> Iterator[None]:
    """Serve the metrics of this process from a thread, if the settings name a port."""
    if not settings.metrics_port:
        yield
        return
    from services.serving import serve_in_thread

    if settings.metrics_key is None and not is_loopback(settings.metrics_host):
        raise ServeError(
            f"others can reach the metrics on BERTH_METRICS_HOST={settings.metrics_host}; "
            "set BERTH_METRICS_KEY_FILE to a file with the key that they have to show"
        )
    app = RateLimit(process_app(registry, heartbeat, settings.metrics_key))
    where = (settings.metrics_host, settings.metrics_port)
    with bind(*where, move=False, other="BERTH_METRICS_PORT") as listening:
        stop = serve_in_thread(app, listening)
        try:
            yield
        finally:
            stop()


async def _observed(
    what: str, settings: Settings, run: Callable[[Place, Settings, Any], Coroutine[Any, Any, None]]
) -> None:
    """Run one process on its ledger and log, and serve its metrics."""
    registry, heartbeat = process_registry(), Heartbeat()
    with served_metrics(settings, registry, heartbeat):
        async with bootstrap.place(settings) as at:
            await _check_ledger(at, what)
            line = f"{what} {settings.worker_name} is up, {build()}; Ctrl-C stops it"
            await supervise(announced(line, run(at, settings, registry)), heartbeat.run())


async def _check_ledger(at: Place, process: str) -> None:
    """Refuse the login of another role, older tables, and an empty database; go on where none answers yet."""
    store = bootstrap.open_store(at)
    try:
        await bootstrap.check_database(at, process)
        if process != "api" and not await store.processes.shards():  # the API says so at /readyz
            raise ServeError("the database has no shards; run `berth init`")
    except Unavailable as error:
        _log.warning("%s", error)
    finally:
        await store.aclose()


async def serve_worker(settings: Settings, *, drain: bool = False) -> None:
    """Run a worker."""
    await _observed("worker", settings, partial(bootstrap.run_worker, drain=drain))


async def serve_relay(settings: Settings) -> None:
    """Run a relay."""
    await _observed("relay", settings, bootstrap.run_relay)


def asks_for_keys(settings: Settings) -> bool:
    """Return whether the API asks for a key even before one was made."""
    return settings.api_auth == "always" or not is_loopback(settings.api_host)


def open_api(
    at: Place,
    settings: Settings,
    registry: CollectorRegistry | None = None,
    owner_key: str | None = None,
) -> contextlib.AbstractAsyncContextManager[FastAPI]:
    """Return the API as the settings want it guarded."""
    from services.api.origin import names_allowed

    names = names_allowed(settings.api_host, settings.api_hosts)
    return bootstrap.open_app(
        at,
        keys_required=asks_for_keys(settings),
        owner_key=owner_key,
        names=names,
        settings=settings,
        registry=registry,
    )


async def serve_api(settings: Settings) -> None:
    """Run the API alone."""
    async with bootstrap.place(settings) as at:
        await _check_ledger(at, "api")
        with bind(settings.api_host, settings.api_port, move=False) as listening:
            url = url_of(listening, tls=settings.api_tls_cert is not None)
            async with open_api(at, settings) as app:

                async def answer() -> None:
                    # The reader may stop the process: signals are waited for by now.
                    announce(
                        f"API on {url} (described at /docs, console at /console/), {build()}; Ctrl-C stops it"
                    )
                    await _serve_api(app, listening, settings)

                await supervise(answer())


@contextlib.asynccontextmanager
async def prepared(settings: Settings) -> AsyncIterator[tuple[Running, socket.socket]]:
    """Prepare ``up`` and ``demo``: database, topics, the API's socket and its address file."""
    directory = bootstrap.data_dir(settings)
    async with bootstrap.place(settings, make=True) as at:
        await bootstrap.initialise(at, settings.shards)
        if asks_for_keys(settings):
            await _make_first_key(at, directory)
        with bind(settings.api_host, settings.api_port, move=True) as listening:
            instance = write_address(directory, url_of(listening, tls=settings.api_tls_cert is not None))
            try:
                yield Running(at, directory, instance), listening
            finally:
                remove_address(directory)


async def _make_first_key(at: Place, directory: Path) -> None:
    """Make and keep a first key where others can reach the API and no key was ever made."""
    async with contextlib.aclosing(bootstrap.open_store(at)) as store:
        if await store.callers.keys():
            return
        key = new_key()
        write_key(directory, key)
        await store.callers.create_key(key_hash(key), Grant("first", ["admin"]))
    # What is no terminal is a log, which more people read than the file.
    shown = f": {key}" if sys.stderr.isatty() else ""
    announce(f"the first API key, role admin, is kept in {directory / KEY_FILE}{shown}")


async def serve_up(settings: Settings, then: Callable[[Running], Awaitable[None]] | None = None) -> None:
    """Run worker, relay and API in one process, beside ``then``. When ``then`` ends, all of them end.

    The API has a thread of its own. It shares values, the metrics and the interpreter's lock with the others.
    """
    from services.api.instance import instance_route

    async with prepared(settings) as (running, listening):
        registry, compiled = process_registry(), asyncio.Event()

        async def serve() -> None:
            async with open_api(running.place, settings, registry, running.instance.owner_key) as app:
                app.include_router(instance_route(running.instance))
                await _serve_api(app, listening, settings)

        async def stay() -> None:
            announce(f"berth is up: {running.url} (described at /docs), {build()}; Ctrl-C stops it")
            announce(f"the console: {running.url}/console/")
            await asyncio.Event().wait()

        async def beside() -> None:
            await compiled.wait()
            await (stay() if then is None else then(running))

        await supervise(
            in_own_thread(serve()),  # the worker renews its leases however many ask the API
            bootstrap.run_worker(running.place, settings, registry, compiled),
            bootstrap.run_relay(running.place, settings, registry),
            until=beside(),
        )
