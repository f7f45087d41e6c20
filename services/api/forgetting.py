"""Forgets the ids of events that were accepted long ago, so that their table does not grow for ever."""

from __future__ import annotations

import asyncio
import logging

from services.ports.store import Store

FORGET_SECONDS = 60.0
FORGET_AT_ONCE_MAX = 5_000

_log = logging.getLogger("berth.api")


async def forget_event_ids(store: Store, age_seconds: float) -> None:
    """Forget ids that are older, once a minute, until cancelled. A fault is logged and tried again."""
    while True:
        await asyncio.sleep(FORGET_SECONDS)
        try:
            while await store.forget_events(age_seconds, FORGET_AT_ONCE_MAX) == FORGET_AT_ONCE_MAX:
                pass
        except Exception as error:
            _log.warning("event ids are not forgotten: %s", error)
