"""The parts of the API. The composition root puts them together."""

from __future__ import annotations

from typing import NamedTuple

from services.api.accesses import AccessLog
from services.api.advisor import Advisor
from services.api.audit import Audits
from services.api.auth import Gate
from services.api.health import Lookout
from services.api.live import USUAL, StreamLimits
from services.codec.gateway import Appender, Gateway
from services.metrics import ApiMetrics
from services.ports.log import Log
from services.ports.store import Store


class Deps(NamedTuple):
    """Everything that ``create_app`` needs."""

    store: Store
    log: Log
    appender: Appender
    gate: Gate
    gateway: Gateway
    metrics: ApiMetrics
    lookout: Lookout
    accesses: AccessLog | None = None  # None: only its user reaches the API, who holds the ledger anyway
    audits: Audits | None = None  # None: no ledger that can be audited
    advisor: Advisor | None = None  # None: it does not search for cures
    streams: StreamLimits = USUAL
