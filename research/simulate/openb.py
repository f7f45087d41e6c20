"""The openb trace: pods of a GPU cluster come, and go when they ended."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import msgspec

from domain.model.devices import GPU_MILLI
from domain.model.events import PodDeleted, PodUpserted
from research.simulate.trace import Moment, Trace
from services.plan.objects import Given, event_of
from services.traces import openb

RESOURCES = ("cpu", "memory", GPU_MILLI)
_CHOICES = (
    "A pod comes when it was created and goes when it was deleted, wherever it ran; it asks for a node at "
    "once. Without --stay the cluster is never full.",
)


def openb_trace(directory: Path | None, pods: str) -> Trace:
    """Return the trace with one of its pod lists; ``directory`` None: the files that come with berth.

    Raises
    ------
    TraceError
        A file is missing or a row does not read.
    """
    return Trace(
        name=f"openb/{pods}", moments=list(_moments(directory, pods)), resources=RESOURCES, choices=_CHOICES
    )


def _moments(directory: Path | None, pods: str) -> Iterator[Moment]:
    for each in openb.events(directory, pods, with_deletions=True):
        since = datetime.datetime.fromisoformat(each["at"]) - openb.BASE
        event = event_of(Given(each["type"], each["object"]), lenient=True)
        assert event is not None
        if isinstance(event, PodUpserted):  # it may come again when it was evicted
            event = PodUpserted(msgspec.structs.replace(event.pod, resource_version=None))
        elif isinstance(event, PodDeleted):
            event = PodDeleted(event.namespace, event.name)
        yield Moment(int(since.total_seconds() * 1_000), event)
