"""`berth up`, `demo`, `worker`, `relay` and `api`: the processes."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli import options


def worker(
    kafka: options.Kafka = None,
    dsn: options.Dsn = None,
    seed: options.Seed = None,
    usage_window: options.UsageWindow = None,
    group_threads: options.GroupThreads = None,
    name: options.WorkerName = None,
    metrics_port: options.MetricsPort = None,
    log_level: options.LogLevel = None,
    directory: options.Dir = None,
) -> None:
    """Fold events, place pods and commit the decisions, until Ctrl-C."""
    settings = options.settings(
        kafka_bootstrap=kafka,
        postgres_dsn=dsn,
        seed=seed,
        usage_window_seconds=usage_window,
        group_threads=group_threads,
        worker_name=name,
        metrics_port=metrics_port,
        log_level=log_level,
        dir=directory,
    )
    from services.processes import serve_worker

    options.run(serve_worker(settings))


def relay(
    kafka: options.Kafka = None,
    dsn: options.Dsn = None,
    name: options.WorkerName = None,
    metrics_port: options.MetricsPort = None,
    log_level: options.LogLevel = None,
    directory: options.Dir = None,
) -> None:
    """Publish committed decisions to the decisions topic, in order, until Ctrl-C."""
    settings = options.settings(
        kafka_bootstrap=kafka,
        postgres_dsn=dsn,
        worker_name=name,
        metrics_port=metrics_port,
        log_level=log_level,
        dir=directory,
    )
    from services.processes import serve_relay

    options.run(serve_relay(settings))


def api(
    host: options.Host = None,
    port: options.Port = None,
    kafka: options.Kafka = None,
    dsn: options.Dsn = None,
    log_level: options.LogLevel = None,
    directory: options.Dir = None,
) -> None:
    """Serve the HTTP API, until Ctrl-C; /docs shows it."""
    settings = options.settings(
        api_host=host,
        api_port=port,
        kafka_bootstrap=kafka,
        postgres_dsn=dsn,
        log_level=log_level,
        dir=directory,
    )
    from services.processes import serve_api

    options.run(serve_api(settings))


def up(
    directory: options.Dir = None,
    host: options.Host = None,
    port: options.Port = None,
    kafka: options.Kafka = None,
    dsn: options.Dsn = None,
    shards: options.Shards = None,
    seed: options.Seed = None,
    usage_window: options.UsageWindow = None,
    group_threads: options.GroupThreads = None,
    log_level: options.LogLevel = None,
) -> None:
    """Run worker, relay and API in one process, until Ctrl-C; with its own database unless told otherwise."""
    settings = options.settings(
        dir=directory,
        api_host=host,
        api_port=port,
        kafka_bootstrap=kafka,
        postgres_dsn=dsn,
        shards=shards,
        seed=seed,
        usage_window_seconds=usage_window,
        group_threads=group_threads,
        log_level=log_level,
    )
    from services.processes import serve_up

    options.run(serve_up(settings))


def demo(
    leave: Annotated[bool, typer.Option("--exit", help="Stop after the summary.")] = False,
    directory: options.Dir = None,
    host: options.Host = None,
    port: options.Port = None,
    kafka: options.Kafka = None,
    dsn: options.Dsn = None,
    shards: options.Shards = None,
    seed: options.Seed = None,
    usage_window: options.UsageWindow = None,
    group_threads: options.GroupThreads = None,
    log_level: options.LogLevel = None,
) -> None:
    """Place a real cluster's 8,152 pods on its 1,523 nodes, explain one decision, and serve on."""
    settings = options.settings(
        dir=directory,
        api_host=host,
        api_port=port,
        kafka_bootstrap=kafka,
        postgres_dsn=dsn,
        shards=shards,
        seed=seed,
        usage_window_seconds=usage_window,
        group_threads=group_threads,
        log_level=log_level,
    )
    from services.cli.demo import serve_demo

    options.run(serve_demo(settings, leave=leave))
