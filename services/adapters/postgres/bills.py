"""The bill on Postgres: sums over the hours that are asked for."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from domain.model.resources import CPU, MEMORY
from services.adapters.postgres import schema as t
from services.adapters.postgres.engine import Engine, Pool
from services.adapters.postgres.selects import within
from services.ports.bills import LENT, BillBy, BillFilter, BillSums
from services.ports.store import Rows

_DAY_MS = 86_400_000


class PostgresBills:
    """The ``Bills`` port on Postgres."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def lines(self, which: BillFilter, by: BillBy, limit: int, after: str | None) -> Rows[BillSums]:
        """Sum along the primary key, or along the index of namespaces."""
        key = _key(by)
        query = _sums(key, which).group_by(key)
        if after is not None:
            query = query.where(key > after)
        rows = await self._engine.page(query, limit, sa.func.octet_length(key), ["key"], pool=Pool.LISTS)
        return Rows(map(_of, rows), more=rows.more)

    async def total(self, which: BillFilter) -> BillSums:
        """Sum likewise."""
        row = await self._engine.row(_sums(sa.literal(""), which), Pool.LISTS)
        return BillSums("") if row is None else _of(row)


def _key(by: BillBy) -> sa.ColumnElement[str]:
    b = t.bill_hours.c
    if by is BillBy.DAY:
        return sa.cast(b.hour_ms - b.hour_ms % sa.literal_column(str(_DAY_MS)), sa.Text).collate("C")
    return (b.namespace if by is BillBy.NAMESPACE else b.quality).collate("C")


def _sums(key: sa.ColumnElement[str], which: BillFilter) -> sa.Select[Any]:
    b = t.bill_hours.c
    is_lent = b.part.in_(LENT)
    kinds = (b.resource == CPU, b.resource == MEMORY)
    amounts = [sa.func.sum(b.amount).filter(kind) for kind in kinds]
    amounts += [sa.func.sum(b.amount).filter(kind, is_lent) for kind in kinds]
    sums = (*amounts, sa.func.sum(b.price_micro), sa.func.sum(b.saved_micro))
    columns: list[sa.ColumnElement[Any]] = [key.label("key"), *(sa.func.coalesce(each, 0) for each in sums)]
    where = within(b.namespace, which.namespaces)
    if which.since_ms is not None:
        where.append(b.hour_ms >= which.since_ms)
    if which.until_ms is not None:
        where.append(b.hour_ms < which.until_ms)
    return sa.select(*columns).where(*where)


def _of(row: sa.Row[Any]) -> BillSums:
    return BillSums(row[0], *map(int, row[1 : len(BillSums._fields)]))
