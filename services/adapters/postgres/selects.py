"""Parts that several queries share, as SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import sqlalchemy as sa

from services.adapters.postgres import schema as t
from services.adapters.postgres.schema import KEY_BYTES_MAX
from services.ports.log import PODS_TOPIC
from services.ports.store import EXAMPLES_MAX, DecisionFilter, DecisionRow, PodFilter

DECISION: list[sa.Column[Any]] = [t.decisions.c[name] for name in DecisionRow._fields]
LAST_OF_BATCH = t.decisions.c.outcome == "evicted"
LATEST_FIRST = [
    part.desc()
    for part in (
        *(t.decisions.c.decided_at_ms, t.decisions.c.recorded_at, LAST_OF_BATCH),
        *(t.decisions.c.seq, t.decisions.c.shard),
    )
]
"""The order of what several shards decided about a pod.

They count apart, so log time orders them, and of one moment the time at which they were recorded. In one
batch a pod is evicted after everything else was said of it.
"""

_OF_TEMPLATE = ("requests", "profile", "priority", "gang", "qos_class", "cpu_claim")
OF_TEMPLATE = sa.func.json_strip_nulls(
    sa.func.json_build_object(*(part for name in _OF_TEMPLATE for part in (name, t.templates.c.spec[name]))),
    type_=sa.JSON,
).label("spec")
"""What lists show of a template; all of it may be a megabyte."""


def within(column: sa.ColumnElement[str], seen: Collection[str] | None) -> list[sa.ColumnElement[bool]]:
    """Return the condition that a namespace is seen, or nothing where all are."""
    return [] if seen is None else [column.in_(sorted(seen))]


def texts(values: Sequence[str]) -> sa.Subquery:
    """Return texts as rows of one column ``id``: joining them is many times faster than ``= ANY``."""
    return sa.select(sa.func.unnest(sa.cast(list(values), sa.ARRAY(sa.Text))).label("id")).subquery()


def bound_pods(placements: sa.Table = t.placements) -> sa.Select[Any]:
    """Return open and closed placements as pods."""
    p = placements.c
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
        p.life,
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
        p.life,
    )


def pods_of_node(node: str) -> sa.ColumnElement[bool]:
    """Return the condition that a placement is on a node. It uses the index of decisions by node."""
    d, p = t.decisions.c, t.placements.c
    of_node = sa.select(d.shard, d.seq).where(d.node == node)
    return sa.and_(p.node == node, sa.tuple_(p.shard, p.seq).in_(of_node))


def pods_decided(namespace: str | None, seen: Collection[str] | None) -> sa.ColumnElement[bool]:
    """Return the condition that a placement is in a namespace. It uses the index of decisions by pod."""
    d, p = t.decisions.c, t.placements.c
    which = within(d.namespace, seen if namespace is None else [namespace])
    decided = sa.select(d.shard, d.seq).where(*which, d.outcome.in_(["bound", "adopted", "resized"]))
    return sa.tuple_(p.shard, p.seq).in_(decided)


def _has_qos_class(signature: sa.ColumnElement[bytes], qos_class: str) -> sa.ColumnElement[bool]:
    """Return the condition that the template of a pod has a QoS class. A walk looks each template up once."""
    of_pod = t.templates.c.signature == signature
    return sa.exists().where(of_pod, t.templates.c.spec["qos_class"].as_string() == qos_class)


def page_of_pods(
    query: sa.Select[Any],
    table: sa.Table,
    which: PodFilter,
    seen: Collection[str] | None,
    limit: int,
    after: str | None,
    until: str | None,
) -> sa.Select[Any]:
    """Return a page of either kind of pods, behind one uid and up to another."""
    c = table.c
    query = query.where(*within(c.namespace, seen))
    if table is not t.pending:
        query = query.where(c.released_at_ms.is_(None))
    if which.phase == "orphaned":
        query = query.where(c.node.in_(sa.select(t.nodes.c.name).where(t.nodes.c.deleted)))
    if which.namespace is not None:
        query = query.where(c.namespace == which.namespace)
    if which.gang is not None:
        query = query.where(c.gang == which.gang)
    if which.qos_class is not None:
        query = query.where(_has_qos_class(c.signature, which.qos_class))
    if after is not None:
        query = query.where(c.pod_uid > after)
    if until is not None:
        query = query.where(c.pod_uid <= until)
    return query.order_by(c.pod_uid).limit(limit)


def uid_ahead(count: int, after: str | None) -> sa.Select[Any]:
    """Return the uid of the live pod that is so many behind one. It reads two indexes and no pods."""
    parts = []
    for table in (t.placements, t.pending):
        c = table.c
        part = sa.select(c.pod_uid).order_by(c.pod_uid).limit(count)
        part = part.where(c.released_at_ms.is_(None)) if table is t.placements else part
        parts.append(part if after is None else part.where(c.pod_uid > after))
    both = sa.union_all(*(sa.select(part.subquery()) for part in parts)).subquery()
    return sa.select(both.c.pod_uid).order_by(both.c.pod_uid).offset(count - 1).limit(1)


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


def groups_of_pending(
    shard: int | None,
    signature: bytes | None,
    seen: Collection[str] | None,
    limit: int,
    after: tuple[int, int, bytes] | None,
    *,
    oldest_first: bool = False,
) -> sa.Subquery:
    """Count the pending pods of each group. ``rank``: minus the count, or since when the oldest waits."""
    p = t.pending.c
    rank: sa.ColumnElement[int] = sa.func.min(p.since_ms) if oldest_first else -sa.func.count()
    groups = sa.select(p.shard, p.signature, sa.func.count().label("count"), rank.label("rank"))
    groups = groups.where(*within(p.namespace, seen)).group_by(p.shard, p.signature)
    if shard is not None:
        groups = groups.where(p.shard == shard)
    if signature is not None:
        groups = groups.where(p.signature == signature)
    if after is not None:
        place, of_shard, last = after
        at = (place if oldest_first else -place, of_shard, last)
        groups = groups.having(sa.tuple_(rank, p.shard, p.signature) > at)
    return groups.order_by("rank", p.shard, p.signature).limit(limit).subquery("some")


def examples_of(
    groups: sa.Subquery, seen: Collection[str] | None
) -> tuple[sa.ColumnElement[int], sa.ColumnElement[list[str]]]:
    """Return since when the oldest pod of a group waits, and the first few pods."""
    p = t.pending.c
    ours = [p.shard == groups.c.shard, p.signature == groups.c.signature, *within(p.namespace, seen)]
    oldest = sa.select(sa.func.min(p.since_ms)).where(*ours).scalar_subquery()
    first = sa.select(p.namespace + "/" + p.name).where(*ours).order_by(p.arrival).limit(EXAMPLES_MAX)
    return oldest.label("since_ms"), sa.func.array(first.scalar_subquery()).label("examples")


Asked = Sequence[tuple[int, bytes, int]]
"""Groups of pending pods: shard, signature, and since when the oldest waits."""


def _asked(groups: Asked) -> Any:
    shards, signatures, since = zip(*groups, strict=True)
    arrays = (
        sa.cast(list(shards), sa.ARRAY(sa.Integer)),
        sa.cast(list(signatures), sa.ARRAY(sa.LargeBinary)),
        sa.cast(list(since), sa.ARRAY(sa.BigInteger)),
    )
    columns = (
        sa.column("shard", sa.Integer),
        sa.column("signature", sa.LargeBinary),
        sa.column("since_ms", sa.BigInteger),
    )
    return sa.func.unnest(*arrays).table_valued(*columns).render_derived(name="asked")


def attempts_of(groups: Asked) -> sa.Select[Any]:
    """Sum the attempts of groups that failed since their oldest pods wait."""
    g, asked = t.group_attempts.c, _asked(groups)
    of_group = sa.and_(g.shard == asked.c.shard, g.signature == asked.c.signature)
    joined = asked.join(t.group_attempts, sa.and_(of_group, g.last_at_ms >= asked.c.since_ms))
    query = sa.select(asked.c.shard, asked.c.signature, sa.func.sum(g.times).label("times"))
    return query.select_from(joined).group_by(asked.c.shard, asked.c.signature)


def places_of(groups: Asked) -> sa.Select[Any]:
    """Order the groups of some shards by priority and oldest pod, and count what stands before each asked."""
    p, asked = t.pending.c, _asked(groups)
    shards = sorted({shard for shard, _, _ in groups})
    counted = sa.select(
        p.shard, p.signature, sa.func.count().label("pods"), sa.func.min(p.arrival).label("first")
    )
    every = counted.where(p.shard.in_(shards)).group_by(p.shard, p.signature).subquery("every")
    priority = sa.func.coalesce(sa.cast(t.templates.c.spec["priority"].as_string(), sa.BigInteger), 0)
    order = [priority.desc(), every.c.first, every.c.signature]
    number = sa.func.row_number().over(partition_by=every.c.shard, order_by=order)
    before = sa.func.sum(every.c.pods).over(partition_by=every.c.shard, order_by=order, rows=(None, -1))
    of_template = every.outerjoin(t.templates, t.templates.c.signature == every.c.signature)
    ordered = sa.select(
        every.c.shard, every.c.signature, (number - 1).label("groups_before"), before.label("pods_before")
    ).select_from(of_template)
    placed = ordered.subquery("placed")
    same = sa.and_(placed.c.shard == asked.c.shard, placed.c.signature == asked.c.signature)
    return sa.select(placed).select_from(placed.join(asked, same))


def letters(raw_bytes: int | None) -> sa.Select[Any]:
    """Return dead letters, with the first bytes of their records, or all."""
    x = t.dead_letters.c
    raw = x.raw if raw_bytes is None else sa.func.substring(x.raw, 1, raw_bytes)
    return sa.select(
        x.shard,
        x.seq,
        x.topic,
        x.partition,
        x.log_offset.label("offset"),
        x.key,
        raw.label("raw"),
        x.code,
        x.path,
        x.message,
        x.at_ms,
        x.sent_by,
        sa.func.octet_length(x.raw).label("raw_bytes"),
    )


def seen_letters(seen: Collection[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a dead letter is about a pod of these namespaces, by its key."""
    x = t.dead_letters.c
    start = sa.func.substring(x.key, 1, KEY_BYTES_MAX)
    prefixes = [f"{each}/".encode() for each in sorted(seen)]
    of_one = [sa.and_(start >= each, start < each[:-1] + b"0") for each in prefixes]  # "0" follows "/"
    return sa.and_(x.topic == PODS_TOPIC, sa.or_(sa.false(), *of_one))
