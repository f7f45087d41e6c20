"""Keeps secrets out of texts that people read, and takes them from files that only their owner can change."""

from __future__ import annotations

import logging
import os
import re
import stat
import traceback
from pathlib import Path
from urllib.parse import quote, urlsplit

_HIDDEN = "***"
_FILE_BYTES_MAX = 64 << 10

_PATTERNS = (
    # user:password@, up to the last @: a password that is not percent-encoded may hold any sign but a space.
    (re.compile(r"(?<![^\s/=\"'(<\[])([^\s/:@=\"'(<\[]*):(?!//)\S{0,1024}@"), rf"\1:{_HIDDEN}@"),
    # password=…, also as libpq writes it: with blanks around, in quotes, with escaped signs.
    (
        re.compile(
            r"(?i)(password|passwd|pwd|secret|token|api[_-]?key)\s*=\s*"
            r"(?:'(?:\\.|[^'\\])*'?|\"(?:\\.|[^\"\\])*\"?|(?:\\.|[^\s&\\])+)"
        ),
        rf"\1={_HIDDEN}",
    ),
    # A key in the address of an API, as the user or in the query. Elsewhere `key` is the name of no secret.
    (re.compile(r"(?i)(://[^\s'\"]*?\bkey=)[^\s&'\"]+"), rf"\1{_HIDDEN}"),
    (re.compile(r"(?i)\b(https?://)[^\s/:@]+@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"(?i)\b(bearer|basic) +[\w.~+/=-]{6,}"), rf"\1 {_HIDDEN}"),
    (re.compile(r"\bberth_[\w-]{20,}"), f"berth_{_HIDDEN}"),  # keys of our own API
)


def redacted(text: object) -> str:
    """Return a text without keys and passwords. Where they cannot be told apart, more than them is hidden."""
    found = str(text)
    for pattern, put in _PATTERNS:
        found = pattern.sub(put, found)
    return found


class RedactingFormatter(logging.Formatter):
    """Redacts everything that is logged, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or lines, of a record."""
        return redacted(super().format(record))


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error, redacted."""
    return redacted("".join(traceback.format_exception(error)))


def holds_password(address: str) -> bool:
    """Return whether an address holds a password. One that does not parse counts by how it looks."""
    return redacted(address) != address


def with_password(dsn: str, password: str | None) -> str:
    """Return the address of a database with this password, if there is one."""
    if password is None:
        return dsn
    parts = urlsplit(dsn)
    user, _, hosts = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{quote(password, safe='')}@{hosts}").geturl()


def read_secret(path: Path) -> str:
    """Return the one line of a file.

    A file that others can change is refused. One that others can read is only warned about: orchestrators
    mount their secrets like this, in containers that have no other users. A pipe (``<(pass show berth)``) is
    read as it is.

    Raises
    ------
    ValueError
        There is no such file, it is empty, too large, no text, or others can write to it.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from None
    if stat.S_ISREG(status.st_mode):
        if status.st_mode & stat.S_IWOTH or status.st_uid not in (0, os.geteuid()):
            raise ValueError("others can change this file; its owner has to be root or you, and its mode 600")
        if status.st_mode & stat.S_IROTH:
            logging.getLogger("berth").warning("%s can be read by all users of this machine: chmod 600", path)
    try:
        text = content.decode().strip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or "\n" in text or len(content) > _FILE_BYTES_MAX:
        raise ValueError("the file has to hold one line of text")
    return text
