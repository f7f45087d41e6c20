"""The composition root: the only file that names adapters."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from domain.model.errors import BerthError, FieldError
from domain.model.limits import node_action_days, node_actions_max, scale_days
from domain.model.profiles import BUILT_IN_PROFILES, Profile
from ops.child import environment, python_module, python_path
from services.background import begin, ended, endless, every
from services.build import build
from services.config import KafkaAccess, Settings
from services.ports.log import Log, TopicSpec, topic_specs
from services.secret import redacted
from services.worker.collector import collect_rarely

if TYPE_CHECKING:
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry, Gauge

    from services.adapters.postgres.pruning import Pruned
    from services.api.advisor import How
    from services.api.live import StreamLimits
    from services.ports.audit import Audit
    from services.ports.cgroups import Cgroups
    from services.ports.ledger import Ledger
    from services.ports.outbox import Outbox
    from services.ports.store import Store
    from services.replay.replay import Outcome, Progress
    from services.replay.verify import Verified
    from services.replay.what_if import Change, Compared


_SWITCH_SECONDS = 0.0005
_log = logging.getLogger("berth")

Step = Callable[[], Awaitable[None]]


class Place(NamedTuple):
    """Where the ledger and the log are: a database, and Kafka or (None) the same database."""

    dsn: str
    kafka_bootstrap: str | None
    kafka_access: KafkaAccess = KafkaAccess()

    def __repr__(self) -> str:
        return redacted(f"Place({self.dsn}, {self.kafka_bootstrap})")


def data_dir(settings: Settings) -> Path:
    """Return where this instance keeps its state."""
    if settings.dir is not None:
        return settings.dir
    from ops.postgres.server import default_dir

    return default_dir().parent


@contextlib.asynccontextmanager
async def place(settings: Settings, *, join: bool = False, make: bool = False) -> AsyncIterator[Place]:
    """Return where the ledger and the log are. Run the embedded server if the settings name no database:
    with ``join`` that of another process serves too, for a reader; with ``make`` it may be a new one.
    """
    if settings.dsn is not None:
        from services.adapters.postgres.connections import in_clear

        if in_clear(settings.dsn):
            _log.warning(
                "no TLS is asked for on the way to the database: whoever is on that way can read and change "
                "everything; add sslmode=verify-full (and sslrootcert=FILE) to BERTH_POSTGRES_DSN"
            )
        yield Place(settings.dsn, settings.kafka_bootstrap, settings.kafka_access)
        return
    from ops.owned import own_directory
    from ops.postgres.server import EmbeddedServer, InUse

    access, directory = settings.kafka_access, data_dir(settings)
    if make or directory.exists():
        own_directory(directory)
    server = EmbeddedServer(directory / "embedded")
    try:
        dsn = await asyncio.to_thread(server.start, make=make)
    except InUse:
        running = server.join() if join else None
        if running is None:
            raise
        dsn = running
    try:
        yield Place(dsn, settings.kafka_bootstrap, access)
    finally:
        await asyncio.to_thread(server.stop)


def open_log(at: Place) -> Log:
    """Return the log."""
    if at.kafka_bootstrap is not None:
        from services.adapters.kafka.log import KafkaLog

        return KafkaLog(at.kafka_bootstrap, access=at.kafka_access)
    from services.adapters.embedded.log import EmbeddedLog

    return EmbeddedLog(at.dsn)


def open_ledger(at: Place) -> Ledger:
    """Return the worker's side of the ledger."""
    from services.adapters.postgres.ledger import PostgresLedger

    return PostgresLedger(at.dsn)


def open_outbox(at: Place) -> Outbox:
    """Return the relay's side of the ledger."""
    from services.adapters.postgres.outbox import PostgresOutbox

    return PostgresOutbox(at.dsn)


def open_store(at: Place, settings: Settings | None = None) -> Store:
    """Return the API's side of the ledger."""
    from services.adapters.postgres.engine import Engine, Reading
    from services.adapters.postgres.store import PostgresStore

    told = settings or Settings()
    reading = Reading(told.api_read_seconds, told.api_lists_at_once)
    return PostgresStore(Engine(at.dsn, reading, told.replica_dsn or ""))


def open_cgroups(root: str = "") -> Cgroups:
    """Return the control groups of this machine; kubelet's are below ``root``."""
    from services.adapters.cgroups.mounts import open_cgroups as found

    return found(root)


def newest_revision() -> str:
    """Return the newest revision of the tables that this version knows."""
    from services.adapters.postgres.revision import newest_revision as newest

    return newest()


async def check_database(at: Place, process: str) -> None:
    """Raise ``Outdated`` or ``TooNew`` where tables are not for us, ``NotGranted`` where we lack grants.

    ``AnotherLog`` is raised where the ledger was written from another log than that of the settings.
    """
    from services.adapters.postgres import revision, roles, which_log

    await revision.check_revision(at.dsn)
    await which_log.check_log(at.dsn, is_kafka=at.kafka_bootstrap is not None)
    await roles.check_grants(at.dsn, process)


async def initialise(at: Place, shards: int | None, *, roles: bool = False) -> list[str]:
    """Migrate the database and create the topics; return a sentence that says what was done.

    Doing it again changes nothing. Without ``shards``, their number stays; a new database gets one shard.
    With ``roles``, the roles of the database get what they need of each table. More shards than there are
    need all workers stopped; see ``services/growing.py``. Where a newer version of berth has migrated the
    database, all of this is the newer version's to do.

    Raises
    ------
    Outdated
        Only an older version can migrate the database.
    TooNew
        A newer version has migrated the database, and this one cannot work on it.
    """
    from services.adapters.postgres import migrate, revision
    from services.adapters.postgres.rehoming import living_twice
    from services.adapters.postgres.roles import create_roles
    from services.adapters.postgres.which_log import check_log
    from services.growing import grow

    await check_log(at.dsn, is_kafka=at.kafka_bootstrap is not None)
    before = await migrate.current_revision(at.dsn)
    await migrate.upgrade(at.dsn)
    after = await migrate.current_revision(at.dsn)
    if revision.is_newer(after):
        return await _left_to_newer(at, f"the tables are at {after}", shards)
    done = [f"database brought from {before or 'empty'} to {after}"] if before != after else []
    store, log = open_store(at), open_log(at)
    there = len(await store.processes.shards())
    await store.aclose()
    shards = shards or there or 1
    lay_down = partial(migrate.init_shards, at.dsn, shards)
    async with contextlib.AsyncExitStack() as stack:
        ledger = open_ledger(at)
        stack.push_async_callback(_close, log, ledger)
        if 0 < there < shards:
            missing: list[TopicSpec] = []
            await grow(log, ledger, shards, lay_down)
        else:
            specs = topic_specs(shards)
            missing = [spec for spec in specs if not await log.partitions(spec.name)]
            if there:
                await lay_down()  # refuses fewer, before a topic is made
            await log.ensure_topics(specs)
            await lay_down()
    if shards > there:
        done.append(f"{shards} shard{'s' if shards > 1 else ''} laid down")
    if roles:
        done += [f"role {role} created" for role in await create_roles(at.dsn)]
    done += [f"topic {spec.name} created, partitions: {spec.partitions}" for spec in missing]
    return done + (await living_twice(at.dsn) if 0 < there < shards else [])


async def _left_to_newer(at: Place, found: str, shards: int | None) -> list[str]:
    """Return a sentence that says why nothing is done to a database that a newer version has migrated."""
    from services.adapters.postgres.migrate import ShardsMismatch
    from services.adapters.postgres.revision import check_revision, newest_revision

    await check_revision(at.dsn)
    newer = f"{found}, newer than this version of berth ({newest_revision()})"
    async with contextlib.aclosing(open_store(at)) as store:
        there = len(await store.processes.shards())
    if shards not in (None, there):
        raise ShardsMismatch(f"{newer}, for {there} shards, not {shards}; add shards with the newer version")
    return [f"{newer}; nothing to do"]


async def refold(at: Place) -> int:
    """Let the next worker read all pods and configuration of the log once more; return how many records.

    Raises
    ------
    ShardsHeld
        A worker holds the shards.
    """
    from services.adapters.postgres.refold import refold as set_back
    from services.growing import hold_all
    from services.ports.log import CONFIG_TOPIC, PODS_TOPIC, TopicPartition

    async with contextlib.AsyncExitStack() as stack:
        log, ledger = open_log(at), open_ledger(at)
        stack.push_async_callback(_close, log, ledger)
        leases = await hold_all(ledger, "berth refold")
        stack.push_async_callback(ledger.release, leases)
        partitions = [TopicPartition(PODS_TOPIC, lease.shard) for lease in leases]
        partitions.append(TopicPartition(CONFIG_TOPIC, 0))
        reader = await log.reader()
        stack.push_async_callback(reader.aclose)
        first = await reader.first_offsets(partitions)
        lasts = {each: await log.last_record(each) for each in partitions}
        spans = {each: (first[each], 0 if last is None else last.offset + 1) for each, last in lasts.items()}
        await set_back(at.dsn, spans)
    return sum(max(0, end - begin) for begin, end in spans.values())


@contextlib.asynccontextmanager
async def open_app(
    at: Place,
    *,
    keys_required: bool,
    local_user: str | None = None,
    owner_key: str | None = None,
    names: frozenset[str] | None = None,
    settings: Settings | None = None,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[FastAPI]:
    """Return the API on this ledger and log; ``names`` are those by which requests may call it.

    With ``local_user`` it is that user's alone, and asks for no key. ``owner_key`` is as the gate takes it.
    """
    from services.adapters.postgres.audit import ASKED
    from services.adapters.postgres.audit import audit as audit_ledger
    from services.adapters.postgres.revision import why_not
    from services.api.accesses import AccessLog
    from services.api.advisor import Advisor
    from services.api.app import create_app
    from services.api.audit import Audits
    from services.api.auth import Gate
    from services.api.deps import Deps
    from services.api.health import Lookout, watch_database
    from services.codec.gateway import Appender, Gateway
    from services.forgetting import FORGET_SECONDS
    from services.metrics import ApiMetrics, process_registry

    told = settings or Settings()

    async with contextlib.AsyncExitStack() as stack:
        store = open_store(at, told)
        stack.push_async_callback(store.aclose)
        log = open_log(at)
        stack.push_async_callback(log.aclose)
        writer = await log.writer()
        stack.push_async_callback(writer.aclose)
        appender = Appender(writer, store.callers.seal_secret)
        metrics = ApiMetrics(registry or process_registry())
        gate = Gate(
            store,
            keys_required=keys_required,
            local_user=local_user,
            owner_key=owner_key,
            requests_per_key=told.api_requests_per_key,
        )
        lookout = Lookout(store, log, why_not)
        stack.push_async_callback(lookout.aclose)
        audits = Audits(partial(audit_ledger, at.dsn, remember=False, limits=ASKED))
        stack.push_async_callback(audits.aclose)
        accesses = AccessLog(store.callers, metrics)
        stack.push_async_callback(accesses.aclose)
        beside = [
            endless("writing the access log", accesses.run),
            *_tidying(_forgotten(store, told), FORGET_SECONDS, metrics.tidied),
        ]
        if local_user is None:  # a command tells its user itself
            beside.append(endless("watching the database", partial(watch_database, store.processes)))
        stack.push_async_callback(ended, beside)
        noted = accesses if local_user is None else None  # who holds the ledger sends no requests
        advisor = Advisor(_advising(at, told)) if told.why == "on" else None
        if advisor is not None:
            stack.push_async_callback(advisor.aclose)
        parts = (store, log, appender, gate, Gateway(), metrics, lookout, noted, audits, advisor)
        app = create_app(Deps(*parts, _stream_limits(told)), names)
        if local_user is None:
            from services.console.app import install

            install(app)  # a command of its user shows no pages
        yield app


def _forgotten(store: Store, settings: Settings) -> dict[str, Step]:
    """Return what forgets the old rows of the API's own tables, by what they are."""
    from services.forgetting import forget_old

    callers, hours, days = store.callers, settings.event_id_hours, settings.access_log_days
    return {
        "event-ids": partial(forget_old, callers.forget_events, hours * 3600),
        "accesses": partial(forget_old, callers.forget_accesses, days * 86_400),
        "sessions": partial(forget_old, callers.forget_sessions, 0.0),
    }


def _advising(at: Place, settings: Settings) -> How:
    """Return how the process is started that says why pods wait; its password comes by standard input."""
    from services.api.advisor import How
    from services.ports.advice import Beginning

    of_driver = [name for name in os.environ if name.startswith("PG")]
    return How(
        python_module("services.advising"),
        environment(*of_driver, PYTHONPATH=python_path()),
        Beginning(dsn=at.dsn, seed=settings.seed, fresh_seconds=settings.why_fresh_seconds),
    )


def _stream_limits(settings: Settings) -> StreamLimits:
    from services.api.live import StreamLimits

    told = settings.api_streams_max, settings.api_streams_per_key, settings.api_stream_seconds
    return StreamLimits(*told)


async def run_worker(
    at: Place,
    settings: Settings,
    registry: CollectorRegistry,
    compiled: asyncio.Event | None = None,
    *,
    drain: bool = False,
) -> None:
    """Run a worker until it is cancelled. ``compiled`` is set once all kernels are compiled."""
    from services.topics import until_first
    from services.worker.compiling import compile_kernels, compile_later, late_ones_told
    from services.worker.metrics import ShadowMetrics, WorkerMetrics
    from services.worker.run import BACKOFF_MS, Worker, WorkerSettings
    from services.worker.shadow import Shadow

    log, ledger = open_log(at), open_ledger(at)
    told = WorkerSettings(
        name=settings.worker_name,
        build=build(),
        seed=settings.seed,
        usage_window_seconds=settings.usage_window_seconds,
        tombstone_hours=settings.tombstone_hours,
        preempts=settings.preemption == "on",
        preemption_seconds=settings.preemption_seconds,
        reservation_seconds=settings.reservation_seconds,
        backoff_ms=BACKOFF_MS,
        writers=settings.kafka_writers,
        lease_seconds=settings.lease_seconds,
        lease_renewal_seconds=settings.lease_renewal_seconds,
        progress_seconds=settings.progress_seconds,
        checkpoint_batches=settings.checkpoint_batches,
        checkpoints_kept=settings.checkpoints,
        profiles=BUILT_IN_PROFILES,
        drain=drain,
    )
    # A commit's many small answers must not wait for the thread that plans, nor both for the collector.
    sys.setswitchinterval(_SWITCH_SECONDS)
    collect_rarely()
    name = settings.shadow_profile
    shadow = None if name is None else Shadow(name, ShadowMetrics(registry))
    worker = Worker(log, ledger, told, WorkerMetrics(registry), shadow=shadow)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(_close, log, ledger)
        await stack.enter_async_context(tidied(at, settings, registry))
        await until_first(worker.beat(), compile_kernels())
        (compiled or asyncio.Event()).set()
        later = begin("compiling the kernels that the first pods do not need", compile_later())
        stack.push_async_callback(ended, [later])
        with late_ones_told():
            await worker.run()


async def replay(
    at: Place, first: int | None, last: int | None, report: Callable[[Progress], Awaitable[None]]
) -> Outcome:
    """Plan recorded batches again and compare them with the journal; see ``services/replay``."""
    from services.adapters.memory.history import ScratchLedger
    from services.adapters.postgres.history import PostgresHistory
    from services.replay.replay import Replay

    log, history = open_log(at), PostgresHistory(at.dsn)
    try:
        return await Replay(history, log, ScratchLedger, report).run(first, last)
    finally:
        await _close(log, history)


async def batch_at(at: Place, at_ms: int, *, is_last: bool) -> int | None:
    """Return a batch by log time; see ``History.batch_at``."""
    from services.adapters.postgres.history import PostgresHistory

    history = PostgresHistory(at.dsn)
    try:
        return await history.batch_at(at_ms, is_last=is_last)
    finally:
        await history.aclose()


async def profile_in_force(at: Place, name: str) -> Profile:
    """Return the last revision of a profile of the ledger; raise ``FieldError`` where there is none."""
    from domain.manifests.profile import profile_from_spec

    store = open_store(at)
    try:
        rows = await store.profile_revisions(name, 1, None)
    finally:
        await store.aclose()
    if not rows or rows[0].spec is None:
        raise FieldError("--profile", f"{name!a} is neither a file, nor built in, nor in force in the ledger")
    return profile_from_spec(rows[0].spec, name=name, path="spec")


async def what_if(
    at: Place,
    change: Change,
    first: int | None,
    last: int | None,
    report: Callable[[Progress], Awaitable[None]],
) -> Compared:
    """Plan recorded batches again as they were, and with a change; see ``services/replay/what_if.py``."""
    from services.adapters.memory.history import ScratchLedger
    from services.adapters.postgres.history import PostgresHistory
    from services.replay.what_if import WhatIf

    log, history = open_log(at), PostgresHistory(at.dsn)
    try:
        return await WhatIf(history, log, ScratchLedger, report).run(change, first, last)
    finally:
        await _close(log, history)


async def verify(at: Place, shard: int, seq: int, report: Callable[[Progress], Awaitable[None]]) -> Verified:
    """Plan the batch of a decision again and compare the decision; see ``services/replay/verify.py``."""
    from services.adapters.memory.history import ScratchLedger
    from services.adapters.postgres.history import PostgresHistory
    from services.replay.verify import Verification

    log, history = open_log(at), PostgresHistory(at.dsn)
    try:
        return await Verification(history, log, ScratchLedger, report).run(shard, seq)
    finally:
        await _close(log, history)


async def case(
    at: Place, shard: int, seq: int, report: Callable[[Progress], Awaitable[None]]
) -> dict[str, Any]:
    """Return a decision as a scenario that `berth plan` answers alike; see ``services/replay/case.py``."""
    from services.adapters.memory.history import ScratchLedger
    from services.adapters.postgres.history import PostgresHistory
    from services.replay.case import Cases
    from services.replay.verify import Verification

    log, history = open_log(at), PostgresHistory(at.dsn)
    try:
        return await Cases(history, Verification(history, log, ScratchLedger, report)).of(shard, seq)
    finally:
        await _close(log, history)


async def audit(
    at: Place,
    since: datetime.datetime | None,
    report: Callable[[str], None],
    *,
    topic: bool = False,
    **asked: Any,
) -> Audit:
    """Ask the ledger's invariants (``asked`` as of it), and with ``topic`` compare that of decisions."""
    from services.adapters.postgres.audit import audit as audit_ledger
    from services.relay.topic import audit_topic

    found = await audit_ledger(at.dsn, since=since, report=report, **asked)
    if not topic:
        return found
    log, outbox = open_log(at), open_outbox(at)
    try:
        return await audit_topic(log, outbox, found, report)
    finally:
        await _close(log, outbox)


async def prune(at: Place, settings: Settings, report: Callable[[str], None]) -> tuple[Audit, Pruned | None]:
    """Audit the ledger, and where all holds, delete what is older than the settings say."""
    from services.adapters.postgres.pruning import prune as prune_ledger

    found = await audit(at, None, report)
    if not found.ok:
        return found, None
    told = {
        name: getattr(settings, name)
        for name in ("journal_hours", "history_days", "bill_days", "rollup_days")
    }
    return found, await prune_ledger(at.dsn, **told, owners_seconds=settings.owners_seconds, report=report)


@contextlib.asynccontextmanager
async def tidied(at: Place, settings: Settings, registry: CollectorRegistry) -> AsyncIterator[None]:
    """Delete what is old, and roll up what is new, as long as a worker runs."""
    from services.adapters.embedded.retention import keep_for
    from services.adapters.postgres.rollups import PostgresRollups
    from services.adapters.postgres.tidying import (
        ROUND_SECONDS,
        forget_actions,
        forget_dead_letters,
        forget_scales,
        forget_tombstones,
        tidying,
    )
    from services.forgetting import forget_old
    from services.metrics import tidied_gauge
    from services.rolling_up import roll_up

    session, ledger, rollups = tidying(at.dsn), open_ledger(at), PostgresRollups(at.dsn)
    most, days = settings.dead_letters_max, settings.dead_letter_days
    steps: dict[str, Step] = {
        "tombstones": partial(forget_tombstones, session, settings.tombstone_hours),
        "dead-letters": partial(forget_dead_letters, session, most, days),
        "node-actions": partial(forget_actions, session, node_actions_max, node_action_days),
        "scales": partial(forget_scales, session, scale_days),
        "owners": partial(forget_old, ledger.forget_owners, settings.owners_seconds),
        "workers": partial(forget_old, ledger.forget_workers, settings.owners_seconds),
    }
    if at.kafka_bootstrap is None:
        steps["embedded-log"] = partial(keep_for, session, settings.embedded_log_hours)
    tasks = _tidying(steps, ROUND_SECONDS, tidied_gauge(registry, "berth_tidied"))
    tasks.append(endless("rolling up", partial(roll_up, rollups)))
    try:
        yield
    finally:
        await ended(tasks)
        await rollups.aclose()
        await ledger.aclose()
        await session.aclose()


def _tidying(steps: Mapping[str, Step], seconds: float, tidied: Gauge) -> list[asyncio.Task[NoReturn]]:
    """Begin a task for each kind of what grows old, so that one that cannot be deleted keeps no other."""
    return [
        endless(
            f"deleting old {what.replace('-', ' ')}",
            partial(every, seconds, step, tidied.labels(what).set_to_current_time),
        )
        for what, step in steps.items()
    ]


async def run_relay(at: Place, settings: Settings, registry: CollectorRegistry) -> None:
    """Run a relay until it is cancelled."""
    from services.relay.run import Relay, RelayMetrics, RelaySettings

    log, outbox = open_log(at), open_outbox(at)
    told = RelaySettings(
        name=settings.worker_name,
        lease_seconds=settings.lease_seconds,
        lease_renewal_seconds=settings.lease_renewal_seconds,
    )
    collect_rarely()  # thousands of rows pass through and leave no cycles
    try:
        await Relay(log, outbox, told, RelayMetrics(registry)).run()
    finally:
        await _close(log, outbox)


async def _close(*ports: Any) -> None:
    for port in ports:
        with contextlib.suppress(BerthError):
            await port.aclose()
