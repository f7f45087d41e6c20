"""Makes and deletes pods of hosted workloads as ``berth.scales`` says: what a controller would do.

Pods of a workload are named NAME-0, NAME-1 and so on. Where fewer are wanted, the latest go.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from domain.model.errors import LogTruncated, Unavailable
from domain.model.hosting import WorkloadKey
from domain.model.limits import poll_records_max
from services.backoff import Backoff
from services.codec.encode import ScaleRecord, encode_event
from services.phrases import plural
from services.ports.log import PODS_TOPIC, SCALES_TOPIC, Entry, Log, Record, TopicPartition

_LOGGER = logging.getLogger(__name__)
_POLL_SECONDS = 0.5
_AT = TopicPartition(SCALES_TOPIC, 0)
_decode = msgspec.json.Decoder(ScaleRecord).decode

Manifest = Mapping[str, Any]


class Scaled(msgspec.Struct):
    """How far scales were read, and how many pods there are of each object (as ``namespace/name``)."""

    topic: str = ""
    offset: int = 0
    seq: int = 0
    counts: dict[str, int] = {}


_decode_scaled = msgspec.json.Decoder(Scaled).decode


class ScaledFile:
    """Keeps it in a file; without one nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        is_there = path is not None and path.exists()
        self.found = _decode_scaled(path.read_bytes()) if path is not None and is_there else Scaled()

    def keep(self) -> None:
        """Write the file."""
        if self._path is not None:
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(msgspec.json.encode(self.found))
            os.replace(fresh, self._path)


def templates_of(manifests: list[Manifest]) -> dict[WorkloadKey, Manifest]:
    """Return pods by the workload that controls them, as their ``ownerReferences`` say.

    Raises
    ------
    ValueError
        One of them is no pod, or no object controls it.
    """
    found: dict[WorkloadKey, Manifest] = {}
    for manifest in manifests:
        meta = manifest.get("metadata") or {}
        owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
        if manifest.get("kind") != "Pod" or len(owners) != 1:
            raise ValueError(f"{manifest.get('kind')} {meta.get('name')} is no pod that an object controls")
        owner = owners[0]
        found[WorkloadKey(meta.get("namespace") or "default", owner["kind"], owner["name"])] = manifest
    return found


def scaling(template: Manifest, scale: ScaleRecord, count: int) -> list[Entry]:
    """Return the events by which ``count`` pods become as many as are wanted.

    A pod that is made has a uid by the number of the scale: to write the events twice changes nothing.
    """
    made = [_event("ADDED", template, scale, i, f"-{scale.seq}") for i in range(count, scale.wanted)]
    return made or [_event("DELETED", template, scale, i) for i in reversed(range(scale.wanted, count))]


def _event(kind: str, template: Manifest, scale: ScaleRecord, number: int, mark: str = "") -> Entry:
    name = f"{scale.workload.name}-{number}"
    meta = {**template["metadata"], "namespace": scale.namespace, "name": name}
    meta.pop("uid", None)
    if mark:
        meta["uid"] = f"{scale.namespace}-{name}{mark}"
    return Entry(f"{scale.namespace}/{name}".encode(), encode_event(kind, {**template, "metadata": meta}))


class Scaler:
    """Reads all scales, from where ``file`` says; each scale of a workload with a template takes effect.

    ``report`` gets a line for each of them.
    """

    def __init__(
        self,
        log: Log,
        templates: Mapping[WorkloadKey, Manifest],
        file: ScaledFile,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._log, self._templates, self._file, self._report = log, templates, file, report

    async def run(self) -> None:
        """Go on until cancelled; start over where the log does not answer."""
        backoff = Backoff()
        while True:
            try:
                await self._serve(backoff)
            except (Unavailable, LogTruncated) as error:
                _LOGGER.warning("the scales cannot be read on: %s", error)
            await backoff.wait()

    async def _serve(self, backoff: Backoff) -> None:
        reader, writer = await self._log.reader(), await self._log.writer()
        found = self._file.found
        try:
            topic = (await self._log.topics([SCALES_TOPIC]))[SCALES_TOPIC].id
            if found.topic != topic:
                found.topic, found.offset, found.seq = topic, 0, 0
            await reader.assign({_AT: max((await reader.first_offsets([_AT]))[_AT], found.offset)})
            while True:
                for record in await reader.poll(poll_records_max, _POLL_SECONDS):
                    if entries := self._entries(record):
                        await writer.append(PODS_TOPIC, entries)
                    self._file.keep()
                backoff.reset()
                await asyncio.sleep(0)
        finally:
            await reader.aclose()
            await writer.aclose()

    def _entries(self, record: Record) -> list[Entry]:
        """Return what a record asks for, which counts as done; nothing where its seq was seen before."""
        found = self._file.found
        found.offset = record.offset + 1
        scale = _decode(record.value or b"")
        template = self._templates.get(WorkloadKey(scale.namespace, scale.workload.kind, scale.workload.name))
        if template is None or scale.seq <= found.seq:
            return []
        at = f"{scale.namespace}/{scale.name}"
        count, found.seq, found.counts[at] = found.counts.get(at, 0), scale.seq, scale.wanted
        self._report(f"{at}: {plural(scale.wanted, 'pod')} instead of {count}: {scale.reason}")
        return scaling(template, scale, count)
