"""Waits until pods are decided, bound or gone, for a client that awaits."""

from __future__ import annotations

from contextlib import aclosing

from berth.client._async.asking import AsyncAsker
from berth.client._async.connection import AsyncConnection
from berth.client._async.following import frames
from berth.client._async.resources import AsyncPods
from berth.client.errors import NOT_YET, NotFound, Unavailable
from berth.client.events import event_of
from berth.client.fates import ONE_BY_ONE_MAX, Waiting
from berth.client.objects import Written


async def wait_for(connection: AsyncConnection, written: Written, waiting: Waiting) -> None:
    """Wait for pods: the stream is begun before they are looked at, so that nothing happens in between.

    They are looked at once the ledger has what was written.

    Raises
    ------
    Timeout
        It did not happen in time to all of them.
    """
    params = {"kinds": "decisions,releases,pending"}
    spaces = list(waiting.open_by_namespace)
    if len(spaces) == 1:
        params["namespace"] = spaces[0]
    seconds = waiting.silent_seconds
    async with aclosing(frames(connection, params, silent_seconds=seconds, lost=waiting.check)) as stream:
        has_looked = False
        async for frame in stream:
            if not has_looked:
                has_looked = await _look(AsyncAsker(connection, written.copy()), waiting)
            event = event_of(frame)
            if event is not None and event.decision is not None:
                waiting.happened(event.decision)
            if waiting.is_done:
                return
            waiting.check()


async def _look(asker: AsyncAsker, waiting: Waiting) -> bool:
    """Look at how the pods stand; return whether the ledger has what was written."""
    try:
        await _look_at(AsyncPods(asker), waiting)
    except Unavailable as error:
        if error.code != NOT_YET:
            raise
        return False
    return True


async def _look_at(pods: AsyncPods, waiting: Waiting) -> None:
    for namespace, names in waiting.open_by_namespace.items():
        if len(names) <= ONE_BY_ONE_MAX:
            for each in names:
                try:
                    waiting.saw(await pods.get(namespace, each.partition("/")[2]))
                except NotFound:
                    waiting.is_missing([each])
            continue
        seen = set[str]()
        async for pod in pods.list(namespace=namespace):
            waiting.saw(pod)
            seen.add(f"{namespace}/{pod.name}")
        waiting.is_missing(names - seen)
