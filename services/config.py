"""Settings: every knob of berth, described where it is defined, read once and never changed."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from domain.model.errors import BerthError
from domain.model.limits import usage_window_seconds, usage_window_seconds_max, usage_window_seconds_min

DEFAULT_API_PORT = 8080
LOG_LEVELS = ("debug", "info", "warning", "error")


class SettingError(BerthError):
    """A setting has a value that is not allowed. The message names the setting and the allowed values."""

    code = "invalid-setting"


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
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
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


@dataclasses.dataclass(frozen=True)
class Setting:
    """How one field of ``Settings`` is read, and what it means. Its variable and its flag have its name."""

    field: str
    parse: Callable[[str], Any]
    metavar: str
    help: str
    default: str  # as it is shown
    short_flag: str | None

    @property
    def env(self) -> str:
        """The variable, such as ``BERTH_API_PORT``."""
        return f"BERTH_{self.field.upper()}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flag, such as ``--api-port``, and the shorter one where there is one."""
        flag = f"--{self.field.replace('_', '-')}"
        return (flag, self.short_flag) if self.short_flag else (flag,)


def _setting(
    parse: Callable[[str], Any],
    metavar: str,
    help: str,
    default: object = None,
    *,
    shown: str | None = None,
    short_flag: str | None = None,
) -> Any:
    """Describe a field of ``Settings``; ``shown`` is the text for its default."""
    shown = shown or ("" if default is None else str(default))
    metadata = {"setting": (parse, metavar, help, shown, short_flag)}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def default_worker_name() -> str:
    """Return a name that no other live process of this installation has."""
    return f"{socket.gethostname()}-{os.getpid()}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of all settings, in the order in which they are shown."""

    kafka_bootstrap: str | None = _setting(
        _bootstrap,
        "HOST:PORT",
        "Kafka brokers, host:port[,…]. Empty: the log is a table in the Postgres database.",
    )
    postgres_dsn: str | None = _setting(
        _dsn,
        "DSN",
        "Postgres database of the ledger. Empty: an embedded server that keeps its data in BERTH_DIR.",
    )
    shards: int | None = _setting(
        _integer(1, 1024),
        "N",
        "Number of shards to lay down (partitions of the pods topic); fixed from then on.",
        shown="1",
    )
    seed: int = _setting(
        _integer(0, 2**63 - 1), "N", "Seed of tie-breaking, by which equal nodes are chosen among.", 0
    )
    usage_window_seconds: int = _setting(
        _integer(usage_window_seconds_min, usage_window_seconds_max),
        "SECONDS",
        "How far back measured usage is averaged, where the node does not say it; see docs/events.md.",
        usage_window_seconds,
    )
    worker_name: str = _setting(
        _text,
        "NAME",
        "Name under which this process holds its leases; unique among those alive.",
        default_worker_name,
        shown="host-pid",
    )
    dir: Path | None = _setting(  # noqa: RUF009
        _path,
        "DIR",
        "Where `up` and `demo` keep the embedded server's data, this instance's address and its first key.",
        shown="user data directory",
    )
    api_host: str = _setting(
        _text, "ADDRESS", "Address that the API listens on.", "127.0.0.1", short_flag="--host"
    )
    api_port: int = _setting(
        _integer(0, 65535),
        "PORT",
        "Port of the API; 0: any free one. `up` and `demo` take a free one when the default is in use.",
        DEFAULT_API_PORT,
        short_flag="--port",
    )
    api_url: str | None = _setting(
        _url,
        "URL",
        "API that the commands talk to. Empty: the instance in BERTH_DIR or the ledger.",
        short_flag="--api",
    )
    api_key: str | None = _setting(_text, "KEY", "Key that the commands show to the API.")
    metrics_port: int = _setting(
        _integer(0, 65535),
        "PORT",
        "Port on which `worker` and `relay` serve Prometheus metrics and /healthz; 0: none.",
        0,
    )
    log_level: str = _setting(_level, "LEVEL", f"One of {', '.join(LOG_LEVELS)}.", "warning")

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **flags: str | None) -> Settings:
        """Read the settings; a flag that is not None wins over its variable.

        Raises
        ------
        SettingError
            A value is not allowed; the message names the variable, the flag and what is allowed.
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
                where = f"{setting.env} ({setting.flags[0]})"
                raise SettingError(f"{where} is {text!r}: {error}") from None
        return cls(**values)


SETTINGS = tuple(Setting(field.name, *field.metadata["setting"]) for field in dataclasses.fields(Settings))
"""All settings, in the order in which they are shown."""
