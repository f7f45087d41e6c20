"""A client of berth's API that people like to write with: `Client` blocks, `AsyncClient` awaits.

>>> with Client() as berth:
...     applied = berth.apply(pods)
...     fates = berth.wait(applied, until="bound")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    from berth.client.events import Event
    from berth.client.fates import Fate
    from berth.client.objects import Applied
    from berth.client.retrying import Retry

_MODULES = {
    "Applied": "berth.client.objects",
    "AsyncClient": "berth.client._async.client",
    "AsyncExport": "berth.client._async.export",
    "AsyncView": "berth.client._async.client",
    "AsyncWatch": "berth.client._async.watch",
    "BadAnswer": "berth.client.errors",
    "BerthError": "berth.client.errors",
    "Client": "berth.client._sync.client",
    "Event": "berth.client.events",
    "Export": "berth.client._sync.export",
    "Fate": "berth.client.fates",
    "InvalidRequest": "berth.client.errors",
    "LostRecords": "berth.client.errors",
    "NoAnswer": "berth.client.errors",
    "NoLongerKept": "berth.client.errors",
    "NotAllowed": "berth.client.errors",
    "NotConfigured": "berth.client.errors",
    "NotFound": "berth.client.errors",
    "NotTrusted": "berth.client.errors",
    "Refused": "berth.client.errors",
    "Retry": "berth.client.retrying",
    "Timeout": "berth.client.errors",
    "Unavailable": "berth.client.errors",
    "View": "berth.client._sync.client",
    "Watch": "berth.client._sync.watch",
    "models": "berth.client.models",
}
"""Where each name is. It is loaded with its first use: the command line uses two or three of them."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(_MODULES[name])
    return module if name == "models" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(_MODULES)


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
