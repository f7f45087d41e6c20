"""The parts of the API. The composition root puts them together."""

from __future__ import annotations

from typing import NamedTuple

from services.api.auth import Gate
from services.api.health import Lookout
from services.codec.gateway import Gateway
from services.metrics import ApiMetrics
from services.ports.log import Log, LogWriter
from services.ports.store import Store


class Deps(NamedTuple):
    """Everything that ``create_app`` needs."""

    store: Store
    log: Log
    writer: LogWriter
    gate: Gate
    gateway: Gateway
    metrics: ApiMetrics
    lookout: Lookout
