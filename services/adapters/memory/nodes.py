"""What facts and claims make of a node's row: what the statements of the ledger on Postgres do."""

from __future__ import annotations

from collections import Counter

import msgspec

from services.ports.ledger import NodeClaim, NodeFact, NodeRow, NodeUpdate


def added(row: NodeRow, change: NodeUpdate) -> NodeRow:
    """Return a node with a change of its version and of what is requested of it."""
    total = Counter(row.requested)
    total.update(change.delta)
    requested = {name: value for name, value in total.items() if value}
    return msgspec.structs.replace(row, version=row.version + change.changes, requested=requested)


def after(row: NodeRow | None, fact: NodeFact) -> NodeRow:
    """Return a node after a fact; None: it is new."""
    row = added(row or NodeRow(id=fact.id, name=fact.name, version=0, spec=None, requested={}), fact)
    if fact.spec is None:
        return row
    told = {"spec": fact.spec, "spec_count": fact.spec_count, "deleted": fact.deleted}
    return msgspec.structs.replace(row, **told)


def is_free(claim: NodeClaim, row: NodeRow) -> bool:
    """Return whether a claim is granted on a node that no other transaction is changing."""
    if row.deleted or row.spec_count != claim.spec_count_seen:
        return False
    if row.version == claim.version_seen and not claim.is_doubtful:
        return True
    offered = {} if row.spec is None else row.spec.allocatable
    return claim.resource_only and all(
        value <= 0 or row.requested.get(name, 0) + value <= offered.get(name, 0)
        for name, value in claim.delta.items()
    )
