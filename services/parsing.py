"""What the text of a setting may be: each function returns its value, or raises ``ValueError``."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC

LOG_LEVELS = ("debug", "info", "warning", "error")
STATE_TOPICS = (NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, CONFIG_TOPIC)
SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")


def integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = low - 1
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high} is allowed")
        return value

    return parse


def seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise ValueError(f"seconds from {low:g} to {high:g} are allowed")
        return value

    return parse


def bootstrap(text: str) -> str:
    for server in text.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError("host:port is allowed, or several joined by commas")
    return text


def topic_writers(text: str) -> Mapping[str, str]:
    """Read ``topic=principal;…``. A principal may hold commas and further equals signs."""
    pairs = [each.strip().partition("=") for each in text.split(";")]
    if not all(topic in STATE_TOPICS and who and who.isprintable() for topic, _, who in pairs):
        raise ValueError(f"TOPIC=PRINCIPAL is allowed, several joined by ;, of {', '.join(STATE_TOPICS)}")
    return {topic: who for topic, _, who in pairs}


def dsn(text: str) -> str:
    try:
        parts = urlsplit(text)
        user, _, hosts = parts.netloc.rpartition("@")
        ports = [server.rpartition(":")[2] for server in hosts.split(",") if not server.endswith("]")]
        known = (
            parts.scheme in ("postgresql", "postgres")
            and not parts.fragment
            and not any(map(str.isspace, text))
            and "@" not in user + parts.path + parts.query
            and all(port.isdecimal() or ":" not in hosts for port in ports)
        )
    except ValueError:
        known = False
    if not known:
        raise ValueError(
            "postgresql://user:password@host:port/database is allowed; / : @ ? # % and a blank in a password "
            "are written %2F %3A %40 %3F %23 %25 %20"
        )
    _check_tls(dict(parse_qsl(parts.query)))
    return text


def _check_tls(query: Mapping[str, str]) -> None:
    if (mode := query.get("sslmode")) is not None and mode not in SSL_MODES:
        raise ValueError(f"sslmode is one of {', '.join(SSL_MODES)}")
    for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl"):
        if name in query and not os.access(query[name], os.R_OK):
            raise ValueError(f"{name} names a file that cannot be read")


def url(text: str) -> str:
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise ValueError("an http:// or https:// address is allowed")
    return text.rstrip("/")


def hosts(text: str) -> tuple[str, ...]:
    found = tuple(each.strip() for each in text.split(",") if each.strip())
    if not found or not all(re.fullmatch(r"[A-Za-z0-9._:-]+", each) for each in found):
        raise ValueError("names without a port are allowed, several joined by commas")
    return found


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"one of {', '.join(allowed)} is allowed")
        return text

    return parse


def level(text: str) -> str:
    return one_of(*LOG_LEVELS)(text.lower())


def some_text(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that is not empty is allowed")
    return text.strip()


def key(text: str) -> str:
    """Read a key as a header of a request can carry it."""
    if not re.fullmatch(r"[\x21-\x7e]+", text.strip()):
        raise ValueError("printable ASCII characters without blanks are allowed, in one line")
    return text.strip()


def path(text: str) -> Path:
    return Path(some_text(text)).expanduser().absolute()


def directory(text: str) -> Path:
    """Read a path at which there is a directory, or nothing yet."""
    found = path(text)
    for each in (found, *found.parents):
        if each.is_dir():
            break
        if each.exists():
            raise ValueError(f"{'it' if each == found else each} is a file; a directory is allowed")
    return found
