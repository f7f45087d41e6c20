"""What the domain found, as rows of the ledger."""

from __future__ import annotations

import msgspec

from domain.manifests.profile import profile_to_spec
from domain.model.config import ConfigObject
from domain.model.decisions import Attempt
from domain.model.limits import dead_letter_key_bytes_max, dead_letter_ledger_raw_bytes_max
from domain.model.priorities import PriorityClass
from domain.model.profiles import ProfileRevision
from domain.state.cluster import ClusterState
from services.codec.envelope import Rejected
from services.ports.ledger import ConfigRow, DeadLetter, NodeWrite, ProfileRow
from services.ports.log import Record


def dead_letter(record: Record, rejected: Rejected, *, shard: int, seq: int, at_ms: int) -> DeadLetter:
    """Return the dead letter of a record, cut to what the ledger keeps."""
    return DeadLetter(
        shard=shard,
        seq=seq,
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        key=record.key and record.key[:dead_letter_key_bytes_max],
        raw=(record.value or b"")[:dead_letter_ledger_raw_bytes_max],
        code=rejected.code,
        path=rejected.path,
        message=rejected.message,
        at_ms=at_ms,
    )


def node_writes(state: ClusterState) -> list[NodeWrite]:
    """Take over the nodes that changed since the last batch."""
    drained = state.drain_dirty()
    sums = state.requested_of_each([name for name, *_ in drained])
    writes = []
    for (name, entry, version, spec_changed), requested in zip(drained, sums, strict=True):
        assert entry.spec is not None
        writes.append(
            NodeWrite(
                id=entry.ordinal,
                name=name,
                version_expected=version,
                version=entry.version,
                requested=requested,
                spec=entry.spec if spec_changed else None,
                deleted=entry.deleted,
            )
        )
    return writes


def profile_row(revision: ProfileRevision, at_ms: int) -> ProfileRow:
    """Return the row of a profile's revision."""
    return ProfileRow(
        name=revision.name,
        revision=revision.revision,
        spec=None if revision.profile is None else profile_to_spec(revision.profile),
        resource_version=revision.resource_version,
        at_ms=at_ms,
    )


def config_row(thing: ConfigObject, at_ms: int) -> ConfigRow:
    """Return the row of a configuration object."""
    return ConfigRow(
        kind=thing.kind,
        namespace=thing.namespace,
        name=thing.name,
        object=None if thing.content is None else msgspec.to_builtins(thing.content),
        resource_version=thing.resource_version,
        at_ms=at_ms,
    )


def config_object(row: ConfigRow) -> ConfigObject:
    """Return the configuration object of a row."""
    return ConfigObject(
        kind=row.kind,
        namespace=row.namespace,
        name=row.name,
        content=None if row.object is None else msgspec.convert(row.object, PriorityClass),
        resource_version=row.resource_version,
    )


def in_words(attempt: Attempt) -> str:
    """Say in one line why no node would do, the most frequent reason first."""
    if not attempt.nodes_count:
        return "there are no nodes"
    ranked = sorted(attempt.reasons_at_failure.items(), key=lambda item: (-item[1], item[0]))
    return f"0/{attempt.nodes_count} nodes: " + "; ".join(f"{count} {code}" for code, count in ranked)
