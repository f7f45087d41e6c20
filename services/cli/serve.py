"""`berth up`, `demo`, `worker`, `relay` and `api`: the processes."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from services.cli.options import PLACE, with_settings
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural

PLACING = (
    "seed",
    "usage_window_seconds",
    "tombstone_hours",
    "preemption",
    "preemption_seconds",
    "shadow_profile",
    "reservation_seconds",
    "embedded_log_hours",
    "dead_letters_max",
    "dead_letter_days",
    "journal_hours",
    "history_days",
)
API = ("api_host", "api_port", "api_hosts", "api_auth", "api_tls_cert", "api_tls_key")
LISTENING = (
    *API,
    "api_requests_per_key",
    "api_read_seconds",
    "api_lists_at_once",
    "replica_dsn",
    "api_streams_max",
    "api_streams_per_key",
    "api_stream_seconds",
    "event_id_hours",
    "access_log_days",
    "why",
    "why_fresh_seconds",
)
CHECKPOINTS = ("checkpoint_batches", "checkpoints")
LEASES = ("lease_seconds", "lease_renewal_seconds")
METRICS = ("metrics_host", "metrics_port", "metrics_key")
ALL_IN_ONE = (*PLACE, *PLACING, *LEASES, "progress_seconds", *CHECKPOINTS, *LISTENING, "shards")


@with_settings(*PLACE, *PLACING, *LEASES, "progress_seconds", *CHECKPOINTS, "worker_name", *METRICS)
async def worker(
    settings: Settings,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="Read what came before partitions were added, so that init can go on."),
    ] = False,
) -> None:
    """Fold events, place pods and commit the decisions, until Ctrl-C."""
    from services.processes import serve_worker
    from services.supervising import leave

    await serve_worker(settings, drain=drain)
    leave()


@with_settings(*PLACE, *LEASES, "worker_name", *METRICS)
async def relay(
    settings: Settings,
    acknowledge: Annotated[
        bool,
        typer.Option("--acknowledge", help="Take back the alarms about the topic of decisions, and end."),
    ] = False,
) -> None:
    """Publish committed decisions to the decisions topic, in order, until Ctrl-C."""
    if acknowledge:
        from services import bootstrap

        async with bootstrap.place(settings) as at, contextlib.aclosing(bootstrap.open_outbox(at)) as outbox:
            raised = await outbox.acknowledge()
        for shard, alarm in sorted(raised.items()):
            echo(f"shard {shard}: {alarm}")
        echo(f"acknowledged: {plural(len(raised), 'alarm')}")
        return
    from services.processes import serve_relay
    from services.supervising import leave

    await serve_relay(settings)
    leave()


@with_settings(*PLACE)
async def executor(
    settings: Settings,
    positions: Annotated[
        Path | None,
        typer.Option("--positions", help="File that keeps how far decisions were read.", dir_okay=False),
    ] = None,
    scale: Annotated[
        Path | None,
        typer.Option(
            "--scale",
            help="Pods, one per hosted workload: make as many of each as berth.scales says.",
            dir_okay=False,
            exists=True,
        ),
    ] = None,
) -> None:
    """Delete pods that were evicted, as a kubelet would: for tests. Until Ctrl-C.

    With `--scale` it also makes and deletes pods of hosted workloads, as their controllers would. Prints a
    line for each pod whose deletion it wrote into the log, and for each scale.
    """
    from services import bootstrap
    from services.cli.documents import read_values
    from services.executor.run import Executor, Positions
    from services.executor.scaling import ScaledFile, Scaler, templates_of
    from services.supervising import announced, leave, supervise

    try:
        templates = templates_of([] if scale is None else read_values(str(scale)))
    except ValueError as error:
        raise typer.BadParameter(f"{scale}: {error}; each has ownerReferences with a controller") from None
    scaled = None if positions is None else positions.with_name(f"{positions.name}.scales")

    async with (
        bootstrap.place(settings, join=True) as at,
        contextlib.aclosing(bootstrap.open_log(at)) as log,
    ):
        works = [Executor(log, Positions(positions), echo).run()]
        if templates:
            works.append(Scaler(log, templates, ScaledFile(scaled), echo).run())
        await supervise(announced("executor is up; Ctrl-C stops it", works[0]), *works[1:])
    leave()


@with_settings(*PLACE, *LISTENING)
async def api(settings: Settings) -> None:
    """Serve the HTTP API, until Ctrl-C; /docs shows it."""
    from services.processes import serve_api

    await serve_api(settings)


@with_settings(*ALL_IN_ONE)
async def up(settings: Settings) -> None:
    """Run worker, relay and API in one process, until Ctrl-C; with its own database unless told otherwise."""
    from services.processes import serve_up

    await serve_up(settings)


@with_settings(*ALL_IN_ONE)
async def demo(
    settings: Settings,
    leave: Annotated[bool, typer.Option("--exit", help="Stop after the summary.")] = False,
) -> None:
    """Place a real cluster's 8,152 pods on its 1,523 nodes, explain one decision, and serve on."""
    from services.cli.demo import serve_demo

    await serve_demo(settings, leave=leave)
