"""Makes the state of a worker from what it reads of the ledger."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from domain.cycle.schedule import Scheduler
from domain.manifests.profile import profile_from_spec
from domain.model.errors import FieldError
from domain.model.pods import PodSpec, PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES, ProfileRevision
from domain.state.nominations import Nomination
from domain.state.steps import NominationsFollowed, Owned, ReliefsFollowed
from domain.state.tombstones import Tombstones
from services.ports.ledger import (
    LedgerBase,
    LedgerPart,
    NominationRow,
    PlacementOpened,
    PodRow,
    PodTombstone,
    ProfileRow,
)
from services.worker.ledger_rows import config_object
from services.worker.ledger_view import LedgerView
from services.worker.moving import reliefs_of

_LOGGER = logging.getLogger(__name__)


def restored(base: LedgerBase, part: LedgerPart | None, seed: int) -> Scheduler:
    """Return a scheduler that knows what a worker of all shards does, for a reader.

    Without ``part`` no pod waits in it.
    """
    scheduler, ledger_view = Scheduler(BUILT_IN_PROFILES, seed=seed), LedgerView()
    scheduler.fold(Owned(frozenset(), base.shards_count))
    restore(base, scheduler, ledger_view)
    scheduler.fold(Owned(frozenset(range(base.shards_count)), base.shards_count))
    if part is not None:
        restore_waiting(part, scheduler, ledger_view)
    return scheduler


def restore(base: LedgerBase, scheduler: Scheduler, ledger_view: LedgerView) -> None:
    """Restore all that counts on nodes, and what every worker knows."""
    for row in base.profiles:
        restore_profile(scheduler, row)
    for thing in sorted(base.config, key=lambda row: (row.at_ms, row.kind, row.namespace, row.name)):
        scheduler.state.restore_config(config_object(thing))
    for node in sorted(base.nodes, key=lambda row: row.id):
        if node.spec is not None:
            scheduler.state.restore_node(
                name=node.name,
                ordinal=node.id,
                version=node.version,
                spec_count=node.spec_count,
                spec=node.spec,
                deleted=node.deleted,
            )
    ledger_view.know(base.templates)
    _restore_placed(base, scheduler, ledger_view)
    nominated = [_nomination(row, base.templates) for row in base.nominations]
    if nominated:
        scheduler.state.apply(NominationsFollowed(nominated, ()))
    if base.moves:
        scheduler.state.apply(ReliefsFollowed(reliefs_of(base.moves)))


def _nomination(row: NominationRow, templates: Mapping[bytes, PodTemplate]) -> Nomination:
    return Nomination(
        key=row.key,
        uid=row.pod_uid,
        shard=row.shard,
        node=row.node,
        signature=row.signature,
        template=templates[row.signature],
        at_ms=row.at_ms,
        expires_ms=row.expires_ms,
        victims=row.victims,
    )


def restore_waiting(part: LedgerPart, scheduler: Scheduler, ledger_view: LedgerView) -> None:
    """Restore the pods that wait in some shards, in the order in which they came."""
    ledger_view.know(part.templates)
    for waiting in sorted(part.pending, key=lambda row: row.arrival):
        pod = pod_of(waiting, part.templates, "")
        if not scheduler.restore_pod(
            pod, arrival=waiting.arrival, shard=waiting.shard, fresh=not waiting.tried
        ):
            _pass_over(waiting, ledger_view)
            continue
        ledger_view.wait(pod.key, waiting.since_ms, waiting.sent_by)
        if not waiting.tried:
            ledger_view.untried.add(pod.key)
        ledger_view.reasons_known.setdefault(waiting.signature, {})[waiting.shard] = {}


def restore_gone(gone: list[PodTombstone], tombstones: Tombstones, step_ms: int) -> None:
    """Restore what is gone, in its order, each at the step of log time in which it went."""
    gone.reverse()
    while gone:  # each row makes room for what is made of it
        row = gone.pop()
        tombstones.add(row.key, row.uid, row.resource_version, row.at_ms - row.at_ms % step_ms)


def _restore_placed(base: LedgerBase, scheduler: Scheduler, ledger_view: LedgerView) -> None:
    """Restore placed pods, then measurements: when each was placed says which of them they cover."""
    ledger_view.seq |= base.seq_next
    rows = base.placements
    rows.reverse()
    while rows:  # each row makes room for what is made of it: a million of both need not fit memory
        _restore_placement(scheduler, rows.pop(), base.templates, ledger_view)
    for record, _ in base.usage:
        scheduler.state.restore_usage(record)


def _restore_placement(
    scheduler: Scheduler,
    placed: PlacementOpened,
    templates: Mapping[bytes, PodTemplate],
    ledger_view: LedgerView,
) -> None:
    pod = pod_of(placed, templates, placed.node if placed.adopted else "")
    shard = placed.shard if placed.home is None else placed.home
    if not scheduler.state.restore_pod(
        pod,
        node=placed.node,
        adopted=placed.adopted,
        shard=shard,
        counted=placed.counted,
        placed_ms=placed.at_ms,
    ):
        _pass_over(placed, ledger_view)


def _pass_over(row: PodRow, ledger_view: LedgerView) -> None:
    """Say that a pod of the ledger is not known here, as a pod of another shard has its name."""
    ledger_view.refused_count += 1
    _LOGGER.warning(
        "passing over pod %s/%s of shard %d: its name is known", *(row.namespace, row.name, row.shard)
    )


def restore_profile(scheduler: Scheduler, row: ProfileRow) -> None:
    """Restore a profile. One that this version of berth no longer accepts counts as deleted."""
    kept = ProfileRevision(
        name=row.name, revision=row.revision, profile=None, resource_version=row.resource_version
    )
    try:
        profile = None if row.spec is None else profile_from_spec(row.spec, name=row.name, path="spec")
        if profile is not None:
            profile = msgspec.structs.replace(profile, revision=row.revision)
        scheduler.profiles.restore(msgspec.structs.replace(kept, profile=profile))
    except FieldError as error:
        _LOGGER.error("profile %s, revision %d: %s; its pods wait", row.name, row.revision, error)
        scheduler.profiles.restore(kept)


def pod_of(row: PodRow, templates: Mapping[bytes, PodTemplate], node_name: str) -> PodSpec:
    """Return the pod of a row of the ledger."""
    pod = PodSpec(
        uid=row.pod_uid,
        key=f"{row.namespace}/{row.name}",
        resource_version=row.resource_version,
        template=templates[row.signature],
        signature=row.signature,
        labels=row.labels,
        node_name=node_name,
    )
    return pod if row.life is None else pod.living(row.life)
