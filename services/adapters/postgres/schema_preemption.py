"""The tables of preemption: nominations, and the pods that have to leave. Both hold what is open."""

from __future__ import annotations

import sqlalchemy as sa

from services.adapters.postgres.schema_api import metadata

nominations = sa.Table(
    "nominations",
    metadata,
    sa.Column("pod_uid", sa.Text, nullable=False),
    sa.Column("shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("signature", sa.LargeBinary, nullable=False),
    sa.Column("node", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_ms", sa.BigInteger, nullable=False),
    sa.PrimaryKeyConstraint("pod_uid", "shard"),
    comment="pending pods to which a node is promised",
)

evictions = sa.Table(
    "evictions",
    metadata,
    sa.Column("victim_uid", sa.Text, nullable=False),
    sa.Column("victim_shard", sa.Integer, nullable=False),
    sa.Column("namespace", sa.Text, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("preemptor_uid", sa.Text, nullable=False),
    sa.Column("preemptor_shard", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("victim_uid", "victim_shard"),
    sa.Index("evictions_preemptor", "preemptor_uid"),
    comment="placed pods that have to leave, and have not; nobody is evicted for two",
)
