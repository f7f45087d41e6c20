"""The API's own tables: accepted event ids, keys, who asked for what, and the secret of the seals."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

metadata = sa.MetaData()
"""Of all tables, those of ``schema.py`` too."""

ingested_events = sa.Table(
    "ingested_events",
    metadata,
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("digest", sa.LargeBinary, comment="SHA-256 of type, object and at; null: not kept then"),
    sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column(
        "holder",
        sa.Text,
        nullable=False,
        server_default="",
        comment="name of the key that sent it; empty: without a key",
    ),
    sa.PrimaryKeyConstraint("holder", "id"),
    sa.Index("ingested_events_time", "recorded_at"),
    comment="ids of events accepted by the API, so that a repeated request appends nothing",
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_hash", sa.LargeBinary, primary_key=True, comment="SHA-256 of the key"),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    sa.Column("revoked_at", sa.DateTime(timezone=True)),
    sa.Column("roles", ARRAY(sa.Text), nullable=False, comment="of producer, auditor, operator and admin"),
    sa.Column("namespaces", ARRAY(sa.Text), comment="null: all"),
    sa.Column("kinds", ARRAY(sa.Text), comment="kinds of events; null: those of its roles"),
    sa.Column("events_per_second", sa.Integer, comment="null: no limit"),
    sa.Column("bytes_per_second", sa.BigInteger, comment="null: no limit"),
    sa.Column("requests_at_once", sa.Integer, comment="null: the setting's"),
    sa.Column("priority_max", sa.Integer, comment="null: 0 with namespaces or priority_classes"),
    sa.Column("priority_classes", ARRAY(sa.Text), comment="null: none with namespaces or priority_max"),
    comment="who may use the API",
)

access_log = sa.Table(
    "access_log",
    metadata,
    sa.Column("minute_ms", sa.BigInteger, nullable=False, comment="when the minute of the request began"),
    sa.Column("digest", sa.LargeBinary, nullable=False, comment="of what equal requests have in common"),
    sa.Column("at_ms", sa.BigInteger, nullable=False, comment="of the first one"),
    sa.Column("last_at_ms", sa.BigInteger, nullable=False, comment="of the last one"),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("caller", sa.Text, comment="who was let in; null: nobody"),
    sa.Column("roles", ARRAY(sa.Text), nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("route", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False, comment="path and query, where somebody was let in"),
    sa.Column("status", sa.SmallInteger, nullable=False),
    sa.Column("code", sa.Text, nullable=False, comment="of the error; empty: none"),
    sa.Column("duration_ms", sa.BigInteger, nullable=False, comment="of the slowest one"),
    sa.Column("events_count", sa.Integer, comment="events that the log took; null: none were sent"),
    sa.Column("spans", sa.JSON, nullable=False, comment="where: topic, partition, first offset, end"),
    sa.PrimaryKeyConstraint("minute_ms", "digest"),
    sa.Index("access_log_caller", "caller", "minute_ms", "digest"),
    sa.Index("access_log_status", "status", "minute_ms", "digest"),
    comment="who asked the API for what",
)

log_seal = sa.Table(
    "log_seal",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False, comment="1"),
    sa.Column("secret", sa.LargeBinary, nullable=False),
    sa.CheckConstraint("id = 1", name="log_seal_one"),
    comment="the secret by which APIs seal a sender's name and workers check it",
)
