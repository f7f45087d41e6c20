"""The tables by which events of gangs come to the shards that decide for them."""

from __future__ import annotations

import sqlalchemy as sa

from services.adapters.postgres.schema_api import metadata

inbox = sa.Table(
    "inbox",
    metadata,
    sa.Column("home", sa.Integer, nullable=False, comment="the shard that decides"),
    sa.Column("source", sa.Integer, nullable=False, comment="the shard that read the event"),
    sa.Column("number", sa.BigInteger, nullable=False, comment="next_offset of ~handed/HOME before it"),
    sa.Column("log_offset", sa.BigInteger, nullable=False, comment="in the partition of the source"),
    sa.Column("key", sa.LargeBinary),
    sa.Column("value", sa.LargeBinary),
    sa.Column("at_ms", sa.BigInteger, nullable=False, comment="when the log took it"),
    sa.Column("seal", sa.LargeBinary, comment="who sent it, sealed; null: nobody says so"),
    sa.PrimaryKeyConstraint("home", "source", "number"),
    comment="events of pods that another shard decides for; read ones stay as long as the journal",
)

forwarded = sa.Table(
    "forwarded",
    metadata,
    sa.Column("shard", sa.Integer, nullable=False, comment="the shard that reads the events"),
    sa.Column("key", sa.Text, nullable=False, comment="namespace/name of a pod"),
    sa.Column("home", sa.Integer, nullable=False, comment="the shard to which all of them go"),
    sa.Column("uid", sa.Text, nullable=False, comment="of a pod of this name"),
    sa.Column("gone_number", sa.BigInteger, comment="of the event by which it was deleted; null: it was not"),
    sa.Column("gone_at_ms", sa.BigInteger, comment="log time of that"),
    sa.PrimaryKeyConstraint("shard", "key", "uid"),
    comment="pods whose events go to another shard",
)
