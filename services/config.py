"""Settings: every knob of berth, read once from the environment and never changed."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from domain.model.errors import BerthError
from domain.model.limits import usage_window_seconds, usage_window_seconds_max, usage_window_seconds_min

DEFAULT_API_PORT = 8080
LOG_LEVELS = ("debug", "info", "warning", "error")


class SettingError(BerthError):
    """A setting has a value that is not allowed; the message names it and what is."""

    code = "invalid-setting"


class Setting(NamedTuple):
    """One setting: its variable, its field in ``Settings``, its default as shown, and what it means."""

    env: str
    field: str
    default: str
    help: str
    parse: Callable[[str], Any]


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is allowed")
        return value

    return parse


def _bootstrap(text: str) -> str:
    for server in text.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError("host:port is allowed, or several joined by commas")
    return text


def _dsn(text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("postgresql://user:password@host:port/database is allowed")
    return text


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("an http:// or https:// address is allowed")
    return text.rstrip("/")


def _level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise ValueError(f"one of {', '.join(LOG_LEVELS)} is allowed")
    return text.lower()


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that is not empty is allowed")
    return text.strip()


def _path(text: str) -> Path:
    return Path(_text(text)).expanduser().absolute()


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "BERTH_KAFKA_BOOTSTRAP",
        "kafka_bootstrap",
        "",
        "Kafka brokers, host:port[,…]. Empty: the log is a table in the Postgres database.",
        _bootstrap,
    ),
    Setting(
        "BERTH_POSTGRES_DSN",
        "postgres_dsn",
        "",
        "Postgres database of the ledger. Empty: an embedded server that keeps its data in BERTH_DIR.",
        _dsn,
    ),
    Setting(
        "BERTH_SHARDS",
        "shards",
        "1",
        "Number of shards to lay down (partitions of the pods topic); fixed from then on.",
        _integer(1, 1024),
    ),
    Setting(
        "BERTH_SEED",
        "seed",
        "0",
        "Seed of tie-breaking: the same log and seed give the same decisions.",
        _integer(0, 2**63 - 1),
    ),
    Setting(
        "BERTH_USAGE_WINDOW_SECONDS",
        "usage_window_seconds",
        str(usage_window_seconds),
        "How far back measured usage is averaged, where the node does not say it; see docs/events.md.",
        _integer(usage_window_seconds_min, usage_window_seconds_max),
    ),
    Setting(
        "BERTH_WORKER_NAME",
        "worker_name",
        "host-pid",
        "Name under which this process holds its leases; unique among those alive.",
        _text,
    ),
    Setting(
        "BERTH_DIR",
        "dir",
        "user data directory",
        "Where `up` and `demo` keep the embedded server's data and this instance's address.",
        _path,
    ),
    Setting("BERTH_API_HOST", "api_host", "127.0.0.1", "Address that the API listens on.", _text),
    Setting(
        "BERTH_API_PORT",
        "api_port",
        str(DEFAULT_API_PORT),
        "Port of the API; 0: any free one. `up` and `demo` take a free one when the default is in use.",
        _integer(0, 65535),
    ),
    Setting(
        "BERTH_API_URL",
        "api_url",
        "",
        "API that get, explain, apply and delete talk to. Empty: the instance in BERTH_DIR or the ledger.",
        _url,
    ),
    Setting(
        "BERTH_API_KEY",
        "api_key",
        "",
        "Key that get, explain, apply and delete show to the API.",
        _text,
    ),
    Setting(
        "BERTH_METRICS_PORT",
        "metrics_port",
        "0",
        "Port on which `worker` and `relay` serve Prometheus metrics; 0: none.",
        _integer(0, 65535),
    ),
    Setting(
        "BERTH_GROUP_THREADS",
        "group_threads",
        "1",
        "Threads in which a worker looks at groups side by side; no decision depends on it.",
        _integer(1, 64),
    ),
    Setting("BERTH_LOG_LEVEL", "log_level", "warning", f"One of {', '.join(LOG_LEVELS)}.", _level),
)
"""All settings, in the order in which they are shown."""


def default_worker_name() -> str:
    """Return a name that no other live process of this installation has."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of all settings; each field is described in ``SETTINGS``."""

    kafka_bootstrap: str | None = None
    postgres_dsn: str | None = None
    shards: int | None = None
    seed: int = 0
    usage_window_seconds: int = usage_window_seconds
    worker_name: str = dataclasses.field(default_factory=default_worker_name)
    dir: Path | None = None
    api_host: str = "127.0.0.1"
    api_port: int = DEFAULT_API_PORT
    api_url: str | None = None
    api_key: str | None = None
    metrics_port: int = 0
    group_threads: int = 1
    log_level: str = "warning"

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **flags: str | None) -> Settings:
        """Read the settings; a flag that is not None wins over its variable.

        Raises
        ------
        SettingError
            A value is not allowed; the message names the variable and what is allowed.
        """
        found = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for setting in SETTINGS:
            flag = flags.get(setting.field)
            text = found.get(setting.env, "") if flag is None else flag
            if not text:
                continue
            try:
                values[setting.field] = setting.parse(text)
            except ValueError as error:
                raise SettingError(f"{setting.env} is {text!r}: {error}") from None
        return cls(**values)
