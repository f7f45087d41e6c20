"""Options that several commands share, described by the settings that they stand for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import Annotated, Any, TypeVar

import typer

from domain.model.errors import BerthError
from services.config import SETTINGS, Settings

WARNINGS_SHOWN_MAX = 20
T = TypeVar("T")
_HELP = {setting.field: setting for setting in SETTINGS}


class CommandError(BerthError):
    """A command cannot do what it was asked; the message says what was wrong and what to do."""

    code = "command"


def _option(field: str, *names: str, metavar: str) -> Any:
    setting = _HELP[field]
    return typer.Option(
        *names, envvar=setting.env, help=setting.help, metavar=metavar, rich_help_panel="Settings"
    )


Dir = Annotated[str | None, _option("dir", "--dir", metavar="DIR")]
Kafka = Annotated[str | None, _option("kafka_bootstrap", "--kafka-bootstrap", metavar="HOST:PORT")]
Dsn = Annotated[str | None, _option("postgres_dsn", "--postgres-dsn", metavar="DSN")]
Shards = Annotated[str | None, _option("shards", "--shards", metavar="N")]
Seed = Annotated[str | None, _option("seed", "--seed", metavar="N")]
UsageWindow = Annotated[str | None, _option("usage_window_seconds", "--usage-window", metavar="SECONDS")]
GroupThreads = Annotated[str | None, _option("group_threads", "--group-threads", metavar="N")]
WorkerName = Annotated[str | None, _option("worker_name", "--worker-name", metavar="NAME")]
Api = Annotated[str | None, _option("api_url", "--api", metavar="URL")]
ApiKey = Annotated[str | None, _option("api_key", "--api-key", metavar="KEY")]
Host = Annotated[str | None, _option("api_host", "--host", metavar="ADDRESS")]
Port = Annotated[str | None, _option("api_port", "--port", metavar="PORT")]
MetricsPort = Annotated[str | None, _option("metrics_port", "--metrics-port", metavar="PORT")]
LogLevel = Annotated[str | None, _option("log_level", "--log-level", metavar="LEVEL")]


def settings(**flags: str | None) -> Settings:
    """Return the settings of this command: flags over environment over defaults."""
    found = Settings.from_env(None, **flags)
    logging.basicConfig(
        level=found.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s  %(message)s", force=True
    )
    return found


def reach(
    directory: str | None, api: str | None, api_key: str | None, dsn: str | None, kafka: str | None
) -> Settings:
    """Return the settings of a command that asks or tells berth something."""
    return settings(dir=directory, api_url=api, api_key=api_key, postgres_dsn=dsn, kafka_bootstrap=kafka)


def warn(texts: Iterable[str]) -> None:
    """Say on standard error what is probably not as it was meant; the first few of it."""
    found = list(texts)
    for text in found[:WARNINGS_SHOWN_MAX]:
        typer.echo(f"warning: {text}", err=True)
    if (more := len(found) - WARNINGS_SHOWN_MAX) > 0:
        typer.echo(f"warning: and {more:,} more", err=True)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine."""
    return asyncio.run(work)
