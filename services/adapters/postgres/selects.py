"""Parts that several queries share, as SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from services.adapters.postgres import schema as t
from services.ports.store import DecisionFilter, PodFilter


def texts(values: Sequence[str]) -> sa.Subquery:
    """Return texts as rows of one column ``id``: joining them is many times faster than ``= ANY``."""
    return sa.select(sa.func.unnest(sa.cast(list(values), sa.ARRAY(sa.Text))).label("id")).subquery()


def bound_pods() -> sa.Select[Any]:
    """Return open and closed placements as pods."""
    p = t.placements.c
    return sa.select(
        p.pod_uid,
        p.namespace,
        p.name,
        p.resource_version,
        p.signature,
        p.labels,
        p.node,
        p.adopted,
        p.shard,
        p.seq.label("seq"),
        p.bound_at_ms.label("since_ms"),
    )


def pending_pods() -> sa.Select[Any]:
    """Return pending pods, with the columns of ``bound_pods``."""
    p = t.pending.c
    return sa.select(
        p.pod_uid,
        p.namespace,
        p.name,
        p.resource_version,
        p.signature,
        p.labels,
        sa.cast(sa.null(), sa.Text).label("node"),
        sa.false().label("adopted"),
        p.shard,
        sa.cast(sa.null(), sa.BigInteger).label("seq"),
        p.since_ms,
    )


def pods_of_node(node: str) -> sa.ColumnElement[bool]:
    """Return the condition that a placement is on a node. It uses the index of decisions by node."""
    d, p = t.decisions.c, t.placements.c
    of_node = sa.select(d.shard, d.seq).where(d.node == node)
    return sa.and_(p.node == node, sa.tuple_(p.shard, p.seq).in_(of_node))


def page_of_pods(
    query: sa.Select[Any], table: sa.Table, which: PodFilter, limit: int, after: str | None
) -> sa.Select[Any]:
    """Return a page of either kind of pods."""
    c = table.c
    if table is t.placements:
        query = query.where(c.released_at_ms.is_(None))
        if which.node is not None:
            query = query.where(pods_of_node(which.node))
    if which.namespace is not None:
        query = query.where(c.namespace == which.namespace)
    if after is not None:
        query = query.where(c.pod_uid > after)
    return query.order_by(c.pod_uid).limit(limit)


def decision_conditions(which: DecisionFilter) -> list[sa.ColumnElement[bool]]:
    """Return the conditions of the filter on a decision."""
    d = t.decisions.c
    equal = {
        d.namespace: which.namespace,
        d.name: which.name,
        d.node: which.node,
        d.outcome: which.outcome,
        d.shard: which.shard,
        d.signature: which.signature,
        d.profile: which.profile,
        d.profile_revision: which.profile_revision,
    }
    where = [column == value for column, value in equal.items() if value is not None]
    if which.since_ms is not None:
        where.append(d.decided_at_ms >= which.since_ms)
    if which.until_ms is not None:
        where.append(d.decided_at_ms < which.until_ms)
    return where
