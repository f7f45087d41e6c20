"""A client of berth's API that people like to write with: `Client` blocks, `AsyncClient` awaits.

>>> with Client() as berth:
...     applied = berth.apply(pods)
...     fates = berth.wait(applied, until="bound")
"""

from __future__ import annotations

from berth.client import models
from berth.client._async.client import AsyncClient, AsyncView
from berth.client._async.export import AsyncExport
from berth.client._async.watch import AsyncWatch
from berth.client._sync.client import Client, View
from berth.client._sync.export import Export
from berth.client._sync.watch import Watch
from berth.client.errors import (
    BadAnswer,
    BerthError,
    InvalidRequest,
    LostRecords,
    NoAnswer,
    NoLongerKept,
    NotAllowed,
    NotConfigured,
    NotFound,
    NotTrusted,
    Refused,
    Timeout,
    Unavailable,
)
from berth.client.fates import Fate
from berth.client.frames import Event
from berth.client.objects import Applied
from berth.client.retrying import Retry

__all__ = [
    "Applied",
    "AsyncClient",
    "AsyncExport",
    "AsyncView",
    "AsyncWatch",
    "BadAnswer",
    "BerthError",
    "Client",
    "Event",
    "Export",
    "Fate",
    "InvalidRequest",
    "LostRecords",
    "NoAnswer",
    "NoLongerKept",
    "NotAllowed",
    "NotConfigured",
    "NotFound",
    "NotTrusted",
    "Refused",
    "Retry",
    "Timeout",
    "Unavailable",
    "View",
    "Watch",
    "models",
]
