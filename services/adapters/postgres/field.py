"""The field on Postgres: one statement whose one row has a whole column in each of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from domain.model.devices import DEVICE_ONE, GPU
from services.adapters.postgres.engine import Engine, Pool
from services.ports.field import Column, Field, FieldFilter, groups_of
from services.ports.past import Moment

_FLAGS = ("unschedulable", "not_ready", "repelling", "hot")

# Devices that are told apart are summed; those of a node that has too many for that are counted.
_OFFERED = "coalesce(n.allocatable[(SELECT id FROM resources WHERE name = :r{at})], 0)"
_TAKEN = "coalesce(n.requested[(SELECT id FROM resources WHERE name = :r{at})], 0)"
_OF_DEVICES = f"""CASE WHEN {_OFFERED} = 0 AND {_TAKEN} = 0 THEN 0 ELSE greatest({DEVICE_ONE} * {_TAKEN}, (
    SELECT coalesce(sum(n.requested[d.id]), 0)::bigint FROM resources d WHERE d.name LIKE '{GPU}#%'
)) END"""

_OFFERED_THEN = "coalesce((s.spec->'allocatable'->>:r{at})::bigint, 0)"
_TAKEN_THEN = "coalesce(max(h.held) FILTER (WHERE h.resource = :r{at}), 0)"
_OF_DEVICES_THEN = f"""greatest({DEVICE_ONE} * {_TAKEN_THEN},
    coalesce(sum(h.held) FILTER (WHERE h.resource LIKE '{GPU}#%'), 0))"""

# A figure that came with a later measurement than the last sample goes before it (domain/state/usage.py).
_LATEST = """CASE
    WHEN coalesce((e.value->>'given_ago_ms')::bigint, 0)
        <= coalesce((e.value->'ago_ms'->>-1)::bigint, 9223372036854775807)
    THEN coalesce(e.value->'given'->>'latest', e.value->'percent'->>-1) ELSE e.value->'percent'->>-1 END"""
_MEASURED = "round((max(f.latest) FILTER (WHERE f.key = :r{at}))::numeric, 1)::float8 AS m{at}"
_USAGE = """LEFT JOIN node_usage m ON m.node = n.name LEFT JOIN LATERAL (
    SELECT {sums} FROM (
        SELECT e.key, CASE
            WHEN e.value->'given' IS NULL THEN e.value->'percent'->>-1 ELSE {latest}
        END AS latest
        FROM json_each(m.series) AS e OFFSET 0
    ) AS f
) AS u ON true"""

_FIELD = """
{before}SELECT {arrays} FROM (
    SELECT n.name, {label} AS label, {columns},
        coalesce((s.spec->>'unschedulable')::boolean, false) AS unschedulable,
        coalesce(s.spec->>'ready' = 'false', false) AS not_ready,
        coalesce(s.spec->'taints' @? '$[*] ? (@.effect != "PreferNoSchedule")', false) AS repelling,
        {hot} AS hot,
        row_number() OVER (ORDER BY {label} COLLATE "C" NULLS LAST, n.name COLLATE "C") - 1 AS at
    FROM nodes n JOIN node_specs s ON s.node_id = n.id AND s.version = n.spec_version {joins}
    WHERE NOT n.deleted ORDER BY at
) AS node
"""


class PostgresFields:
    """The ``Fields`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def field(self, which: FieldFilter, moment: Moment | None) -> Field:
        """See ``Fields.field``."""
        engine = self._engine if moment is None else self._engine.as_of(moment)
        has_measured = which.measured and moment is None
        row = (await engine.rows(_statement(which, is_past=moment is not None), Pool.LISTS))[0]
        found = row._mapping
        names: Sequence[str] = found["names"] or []
        return Field(
            groups=groups_of(found["labels"] or []),
            names=names,
            columns={
                resource: Column(
                    offered=found[f"o{at}"] or [],
                    taken=found[f"t{at}"] or [],
                    measured=(found[f"m{at}"] or [])
                    if has_measured
                    else [None] * len(names) * which.measured,
                )
                for at, resource in enumerate(which.resources)
            },
            **{flag: found[flag] or [] for flag in _FLAGS},
        )


def _statement(which: FieldFilter, *, is_past: bool) -> sa.Executable:
    indices = range(len(which.resources))
    has_measured = which.measured and not is_past
    columns, sums = [], []
    for at, resource in enumerate(which.resources):
        of_devices = resource == GPU
        offered = _OFFERED_THEN if is_past else _OFFERED
        taken = (_OF_DEVICES if of_devices else _TAKEN).format(at=at)
        if is_past:
            sums.append(f"{(_OF_DEVICES_THEN if of_devices else _TAKEN_THEN).format(at=at)}::bigint AS t{at}")
            taken = f"coalesce(h.t{at}, 0)"
        factor = f"{DEVICE_ONE} * " if of_devices else ""
        columns += [f"{factor}{offered.format(at=at)} AS o{at}", f"{taken} AS t{at}"]
        columns += [f"u.m{at}"] if has_measured else []
    every = ["name", "label", *(f"{kind}{at}" for kind in ("ot" + "m" * has_measured) for at in indices)]
    arrays = [f"array_agg({each} ORDER BY at) AS {each}" for each in every[2:]]
    arrays += ["array_agg(name ORDER BY at) AS names", "array_agg(label ORDER BY at) AS labels"]
    arrays += [f"array_agg(at ORDER BY at) FILTER (WHERE {flag}) AS {flag}" for flag in _FLAGS]
    joins = "LEFT JOIN held h ON h.node = n.name" if is_past else ""
    if has_measured:
        joins = _USAGE.format(sums=", ".join(_MEASURED.format(at=at) for at in indices), latest=_LATEST)
    text = _FIELD.format(
        before=_held(sums) if is_past else "",
        arrays=", ".join(arrays),
        label="s.spec->'labels'->>:label" if which.by else "NULL::text",
        columns=", ".join(columns),
        hot="coalesce(m.quality #>> '{heat,is_hot}' = 'true', false)" if has_measured else "false",
        joins=joins,
    )
    values: dict[str, Any] = {f"r{at}": resource for at, resource in enumerate(which.resources)}
    if which.by:
        values["label"] = which.by
    binds = [sa.bindparam(name, value, type_=sa.Text) for name, value in values.items()]
    return sa.text(text).bindparams(*binds)


def _held(sums: Sequence[str]) -> str:
    """Return the part that sums what the pods of each node asked for then."""
    of_node = f"SELECT h.node, {', '.join(sums)} FROM past.held(NULL) h GROUP BY h.node"
    return f"WITH held AS MATERIALIZED ({of_node})\n"
