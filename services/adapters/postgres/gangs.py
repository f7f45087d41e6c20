"""The query of gangs: their PodGroups, with what waits and what is placed of each."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from domain.model.config import GROUP_MARK, POD_GROUP, WORKLOAD
from services.adapters.postgres import schema as t
from services.adapters.postgres.selects import within


def page_of_gangs(
    namespace: str | None,
    name: str | None,
    seen: Collection[str] | None,
    limit: int,
    after: tuple[str, str] | None,
    placements: sa.Table = t.placements,
) -> sa.Select[Any]:
    """Return some gangs in order of namespace and name: of a PodGroup, or of pods that wait for one.

    Columns as of ``GangState``. Each is counted along the indexes of pods by their gang.
    """
    c, w = t.config_objects.c, t.pending.c
    conditions = (namespace, name, seen, after)
    groups = sa.select(c.namespace, c.name).where(c.kind == POD_GROUP, c.object.is_not(None))
    groups = groups.where(*_asked(c.namespace, c.name, *conditions)).order_by(c.namespace, c.name)
    waiting = sa.select(w.namespace, w.gang.label("name")).distinct().where(w.gang.is_not(None))
    waiting = waiting.where(*_asked(w.namespace, w.gang, *conditions)).order_by(w.namespace, w.gang)
    named = sa.union(*(sa.select(each.limit(limit).subquery()) for each in (groups, waiting))).subquery()
    some = sa.select(named).order_by(named.c.namespace, named.c.name).limit(limit).subquery("some")
    kind = sa.case((sa.func.strpos(some.c.name, GROUP_MARK) > 0, WORKLOAD), else_=POD_GROUP)
    of = sa.and_(
        c.kind == kind,
        c.namespace == some.c.namespace,
        c.name == sa.func.split_part(some.c.name, GROUP_MARK, 1),
    )
    own = [w.namespace == some.c.namespace, w.gang == some.c.name]
    p = placements.c
    of_gang = p.namespace == some.c.namespace, p.gang == some.c.name, p.released_at_ms.is_(None)
    placed = sa.select(sa.func.count()).where(*of_gang)
    waits = sa.select(sa.func.count().label("count"), sa.func.min(w.since_ms).label("since_ms")).where(*own)
    waits_of, why = waits.lateral("waits"), _why(own).lateral("why")
    joined = some.outerjoin(t.config_objects, of).join(waits_of, sa.true()).outerjoin(why, sa.true())
    return sa.select(
        some.c.namespace,
        some.c.name,
        c.object,
        placed.scalar_subquery().label("placed_count"),
        waits_of.c.count.label("waiting_count"),
        waits_of.c.since_ms,
        why.c.reasons,
        why.c.at_ms,
        why.c.shard,
        why.c.cycle_seq,
    ).select_from(joined)


def _asked(
    of_namespace: sa.ColumnElement[str],
    of_name: sa.ColumnElement[str],
    namespace: str | None,
    name: str | None,
    seen: Collection[str] | None,
    after: tuple[str, str] | None,
) -> list[sa.ColumnElement[bool]]:
    where = within(of_namespace, seen)
    if namespace is not None:
        where.append(of_namespace == namespace)
    if name is not None:
        where.append(of_name == name)
    if after is not None:
        where.append(sa.tuple_(of_namespace, of_name) > after)
    return where


def _why(own: list[sa.ColumnElement[bool]]) -> sa.Select[Any]:
    """Return why the pods of a gang wait: of its groups the one that others hold back rather than itself."""
    g, w = t.pending_groups.c, t.pending.c
    groups = sa.select(w.shard, w.signature).distinct().where(*own).correlate_except(t.pending).subquery()
    same = sa.and_(g.shard == groups.c.shard, g.signature == groups.c.signature)
    query = sa.select(g.reasons, g.at_ms, g.shard, g.cycle_seq).select_from(
        groups.join(t.pending_groups, same)
    )
    return query.order_by(g.unresolvable, g.at_ms.desc(), g.signature).limit(1)
