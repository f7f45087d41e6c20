"""How lines of the log look, as text or as JSON; neither has secrets."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import orjson

from services.secret import RedactingFormatter, redacted, traceback_of

LOG_FORMATS = ("text", "json")


class JsonFormatter(logging.Formatter):
    """Makes one line of a record, an object: time (UTC), level, logger, message, and a fault's traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = traceback_of(record.exc_info[1])
        return orjson.dumps(line).decode()


def formatter(name: str) -> logging.Formatter:
    """Return the formatter of this name, one of ``LOG_FORMATS``."""
    if name == "json":
        return JsonFormatter()
    return RedactingFormatter("%(asctime)s %(levelname)-7s %(name)s  %(message)s")


def is_json() -> bool:
    """Return whether this process writes its log as JSON."""
    return any(isinstance(each.formatter, JsonFormatter) for each in logging.getLogger().handlers)


def announce(text: str, level: int = logging.INFO) -> None:
    """Say on standard error what a process tells at every log level; where the log is JSON, in its form."""
    if is_json():
        logging.getLogger().handle(logging.LogRecord("berth", level, "", 0, text, None, None))
    else:
        print(text, file=sys.stderr, flush=True)
