"""Whether the ledger was written from this log: from Kafka, or from the table beside it."""

from __future__ import annotations

from domain.model.errors import BerthError
from services.adapters.postgres.connections import fresh

_IDS = """
SELECT o.topic_id, EXISTS (SELECT FROM log_topics t WHERE t.topic = o.topic AND t.id = o.topic_id) AS is_table
FROM shard_offsets o WHERE o.topic_id IS NOT NULL LIMIT 1
"""
_THERE = "SELECT to_regclass('shard_offsets') IS NOT NULL AND to_regclass('log_topics') IS NOT NULL"


class AnotherLog(BerthError):
    """The ledger was written from another log; its offsets mean nothing in this one."""

    code = "another-log"


async def check_log(dsn: str, *, is_kafka: bool) -> None:
    """Compare the topics by which the ledger goes with the log of the settings.

    Raises
    ------
    AnotherLog
        One is Kafka and the other the table in the database.
    """
    async with fresh(dsn, "berth-start") as connection:
        if not await connection.fetchval(_THERE):
            return  # nothing is laid down yet
        row = await connection.fetchrow(_IDS)
    if row is None or row["is_table"] is not is_kafka:
        return
    if is_kafka:
        raise AnotherLog(
            "this ledger's log is the table in its database, and BERTH_KAFKA_BOOTSTRAP names Kafka: "
            "unset it, or name a database of its own for Kafka"
        )
    raise AnotherLog(
        "this ledger's log is Kafka, and BERTH_KAFKA_BOOTSTRAP is not set: name its brokers; "
        "without them the log would be an empty table in the database"
    )
