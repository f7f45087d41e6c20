"""The log of a running berth as a trace: what was told it, and when."""

from __future__ import annotations

import msgspec

from domain.model.devices import GPU_MILLI
from domain.model.events import (
    BindFailed,
    Event,
    NodeUpserted,
    NodeUsed,
    PodDeleted,
    PodUpserted,
    ProfileEvent,
)
from domain.model.pods import PodSpec
from research.simulate.trace import Moment, Trace
from services.codec.decode import Decoder
from services.ports.log import CONFIG_TOPIC, NODES_TOPIC, PODS_TOPIC, USAGE_TOPIC, Log, TopicPartition
from services.traces.openb import TraceError
from services.worker.intake import Intake

_RECORDS_MAX = 10_000
_TOPICS = (CONFIG_TOPIC, NODES_TOPIC, USAGE_TOPIC, PODS_TOPIC)
_CHOICES = (
    "A pod that came without a node is placed by the profile, whatever the log says later of its node; who "
    "came with one stays there.",
    "An event happens when the log took it. What compaction has removed from the log did not happen.",
)


async def recorded_trace(log: Log) -> Trace:
    """Read all that a log holds, in the order in which workers fold it.

    Raises
    ------
    TraceError
        The log holds no events.
    """
    partitions = [TopicPartition(topic, at) for topic in _TOPICS for at in range(await log.partitions(topic))]
    reader = await log.reader()
    try:
        intake, tape, decoder = Intake(reader), _Tape(), Decoder()
        await intake.add(await reader.first_offsets(partitions))
        while records := await intake.next_batch(_RECORDS_MAX, 0.0):
            for record in records:
                tape.add_event(decoder.decode(record).event, record.timestamp_ms)
    finally:
        await reader.aclose()
    if not tape.moments:
        raise TraceError("the log holds no events; send some by `berth apply`, or name a trace instead")
    return tape.trace()


class _Tape:
    """The moments of a log, and what is known of its pods."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._began_ms = -1
        self._now_ms = 0
        self._waited: set[str] = set()
        self._offered: set[str] = set()

    def add_event(self, event: Event | ProfileEvent | None, at_ms: int) -> None:
        """Take the event of the next record; None: it does not read, or changes nothing."""
        if self._began_ms < 0:
            self._began_ms = at_ms
        self._now_ms = max(self._now_ms, at_ms - self._began_ms)
        match event:
            case None | BindFailed():
                return
            case PodUpserted(pod=pod):
                event = msgspec.structs.replace(event, pod=self._unbound(pod))
            case PodDeleted(namespace=namespace, name=name):
                self._waited.discard(f"{namespace}/{name}")
            case NodeUsed(usage=usage):
                at_ms = max(usage.at_ms - self._began_ms, 0)
                event = NodeUsed(msgspec.structs.replace(usage, at_ms=at_ms))
            case NodeUpserted(node=node):
                self._offered.update(node.allocatable)
        self.moments.append(Moment(self._now_ms, event))

    def _unbound(self, pod: PodSpec) -> PodSpec:
        if not pod.node_name:
            self._waited.add(pod.key)
        elif pod.key in self._waited:
            return msgspec.structs.replace(pod, node_name="")
        return pod

    def trace(self) -> Trace:
        """Return what was taken. Of devices the balance is reported, where nodes have any."""
        resources = ("cpu", "memory", *((GPU_MILLI,) if GPU_MILLI in self._offered else ()))
        return Trace(name="log", moments=self.moments, resources=resources, choices=_CHOICES)
