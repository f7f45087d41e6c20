"""Waits until pods are decided, bound or gone, for a client that blocks.

Made by `python -m docs.build.client` from the module of the same name in `_async`; edit that one.
"""

from __future__ import annotations

from contextlib import closing

from berth.client._sync.asking import Asker
from berth.client._sync.connection import Connection
from berth.client._sync.following import frames
from berth.client._sync.resources import Pods
from berth.client.errors import NOT_YET, NotFound, Unavailable
from berth.client.events import event_of
from berth.client.fates import ONE_BY_ONE_MAX, Waiting
from berth.client.objects import Written


def wait_for(connection: Connection, written: Written, waiting: Waiting) -> None:
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
    with closing(frames(connection, params, silent_seconds=seconds, lost=waiting.check)) as stream:
        has_looked = False
        for frame in stream:
            if not has_looked:
                has_looked = _look(Asker(connection, written.copy()), waiting)
            event = event_of(frame)
            if event is not None and event.decision is not None:
                waiting.happened(event.decision)
            if waiting.is_done:
                return
            waiting.check()


def _look(asker: Asker, waiting: Waiting) -> bool:
    """Look at how the pods stand; return whether the ledger has what was written."""
    try:
        _look_at(Pods(asker), waiting)
    except Unavailable as error:
        if error.code != NOT_YET:
            raise
        return False
    return True


def _look_at(pods: Pods, waiting: Waiting) -> None:
    for namespace, names in waiting.open_by_namespace.items():
        if len(names) <= ONE_BY_ONE_MAX:
            for each in names:
                try:
                    waiting.saw(pods.get(namespace, each.partition("/")[2]))
                except NotFound:
                    waiting.is_missing([each])
            continue
        seen = set[str]()
        for pod in pods.list(namespace=namespace):
            waiting.saw(pod)
            seen.add(f"{namespace}/{pod.name}")
        waiting.is_missing(names - seen)
