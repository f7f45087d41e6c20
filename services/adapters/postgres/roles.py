"""Roles of the database with the least that each process needs: the grants of `berth init --roles`.

They are roles without login. A login is made a member of one (docs/operations.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import asyncpg

from domain.model.errors import BerthError
from services.adapters.postgres import sql
from services.adapters.postgres.connections import fresh
from services.adapters.postgres.engine import NotGranted
from services.ports.store import Grant

WORKER, RELAY, API, AUDITOR = "berth_worker", "berth_relay", "berth_api", "berth_auditor"
REPLAY, PRUNE = "berth_replay", "berth_prune"
ROLES = (WORKER, RELAY, API, AUDITOR, REPLAY, PRUNE)

VIEWS = "audit"
"""The schema of the views that auditors read; they have the columns of exports (docs/export.md)."""

_READ = "SELECT"
_CUT = "SELECT, DELETE"
_ADD = "SELECT, INSERT"
_CHANGE = "SELECT, INSERT, UPDATE"
_ALL = "SELECT, INSERT, UPDATE, DELETE"
_KEY_COLUMNS = ", ".join((*Grant._fields, "created_at", "revoked_at"))


class Grants(NamedTuple):
    """What the roles may do with a table; empty: nothing.

    Without more said, the API, auditors and the pruner read it.
    """

    worker: str = ""
    relay: str = ""
    api: str = _READ
    auditor: str = _READ
    replay: str = ""
    prune: str = _READ


GRANTS: Mapping[str, Grants] = {
    "alembic_version": Grants(_READ, _READ, replay=_READ),
    "resources": Grants(_CHANGE),  # locking the table takes UPDATE
    "nodes": Grants(_CHANGE),
    "node_specs": Grants(_ADD, prune=_CUT),
    "templates": Grants(_ADD),
    "placements": Grants(_CHANGE, prune=_CUT),
    "decisions": Grants(_ADD, _READ, replay=_READ, prune=_CUT),
    "cycles": Grants(_ADD, prune=_CUT),
    "pending": Grants(_ALL, _READ),
    "past_pending": Grants(_ADD, prune=_CUT),
    "past_labels": Grants(_ADD, prune=_CUT),
    "past_groups": Grants(_ADD, prune=_CUT),
    "past_config": Grants(_ADD, prune=_CUT),
    "past_reach": Grants(prune="SELECT, UPDATE"),
    "pending_groups": Grants(_ALL),
    "group_attempts": Grants(_ALL),
    "nominations": Grants(_ALL),
    "evictions": Grants(_ALL),
    "moves": Grants(_ALL),
    "pod_tombstones": Grants(_ALL),
    "inbox": Grants(_ADD, replay=_READ, prune=_CUT),
    "forwarded": Grants(_ALL),
    "shards": Grants("SELECT, UPDATE", _READ),
    "worker_leases": Grants("SELECT, UPDATE"),
    "workers": Grants(_ALL, prune=_CUT),
    "shard_owners": Grants(_ALL, prune=_CUT),
    "shard_offsets": Grants(_CHANGE, _READ, replay=_READ),
    "dead_letters": Grants("SELECT, INSERT, DELETE", _READ),
    "claims": Grants(_ALL),
    "journal": Grants(_ADD, replay=_READ, prune=_CUT),
    "checkpoints": Grants("SELECT, INSERT, DELETE", replay=_READ),
    "checkpoint_parts": Grants("SELECT, INSERT, DELETE", replay=_READ),
    "audits": Grants(prune=_ADD),
    "rollup_cursors": Grants(_CHANGE, prune=_CHANGE),
    "rollup_counts": Grants(_CHANGE, prune=_ALL),
    "rollup_samples": Grants(_ADD, prune=_CUT),
    "rollup_gauges": Grants(_ADD, prune=_CUT),
    "pruned": Grants(relay=_READ, prune=_CHANGE),
    "profiles": Grants(_CHANGE),
    "config_objects": Grants(_ALL, _READ),  # where replicas are hosted, time passes in a quiet log
    "node_usage": Grants(_ALL),
    "bill_hours": Grants(_CHANGE, prune=_CUT),
    "node_actions": Grants("SELECT, INSERT, DELETE"),
    "hosted_replicas": Grants(_ALL, _READ),  # as of config_objects
    "hosted_waits": Grants(_ALL),
    "scales": Grants("SELECT, INSERT, DELETE", _READ),
    "relay_cursor": Grants(_READ, "SELECT, UPDATE"),
    "relay_leases": Grants(relay="SELECT, UPDATE"),
    "ingested_events": Grants(api=_ALL, prune=""),
    "access_log": Grants(api=_ALL, prune=""),
    "api_keys": Grants(auditor=f"SELECT ({_KEY_COLUMNS})", prune=""),
    "sessions": Grants(api=_ALL, auditor="", prune=""),
    "log_faults": Grants(_ADD, replay=_READ),
    "unmentioned": Grants(_ADD),
    "ledger_name": Grants(_READ, _READ),
    "log_topics": Grants("SELECT, UPDATE", "SELECT, UPDATE", "SELECT, UPDATE", replay=_READ),
    "log_records": Grants("SELECT, DELETE", _ADD, _ADD, replay=_READ, prune=""),
    "log_seal": Grants(_READ, auditor="", replay=_READ, prune=""),
}
"""Per table. Keys are made, and the database is migrated, by the owner of the tables alone."""


_NOT_OWNED = "SELECT 1 FROM pg_tables WHERE schemaname = 'public' AND NOT pg_has_role(tableowner, 'USAGE')"


_LACKED = (
    "SELECT current_user, name FROM unnest($1::text[], $2::text[]) AS w (name, privilege) "
    "WHERE NOT has_table_privilege(to_regclass(name), privilege)"  # null where there is no such table
)
_TABLES_SHOWN_MAX = 3


class RolesRefused(BerthError):
    """The database does not let us make roles, or give them anything."""

    code = "roles-refused"


async def create_roles(dsn: str) -> list[str]:
    """Make the roles that are missing, and give each of them exactly its grants; return which were made.

    Raises
    ------
    RolesRefused
        The user of the DSN may not do this.
    """
    try:
        async with fresh(dsn, "berth-init") as connection, connection.transaction():
            await connection.execute(sql.MIGRATION_LOCK)
            if await connection.fetchval(_NOT_OWNED):  # else Postgres only warns and grants nothing
                raise asyncpg.InsufficientPrivilegeError("must be owner of the tables")
            there = {row["rolname"] for row in await connection.fetch("SELECT rolname FROM pg_roles")}
            made = [role for role in ROLES if role not in there]
            for statement in _statements(made):
                await connection.execute(statement)
    except asyncpg.InsufficientPrivilegeError as error:
        raise RolesRefused(
            f"the user of the DSN may not do this ({error}): it has to own the tables and have CREATEROLE, "
            f"or an administrator makes the roles {', '.join(ROLES)} (NOLOGIN) first"
        ) from error
    return made


async def check_grants(dsn: str, process: str) -> None:
    """Raise ``NotGranted`` where the user of the DSN lacks a grant of a process (a field of ``Grants``)."""
    wanted = [
        (table, privilege)
        for table, grants in GRANTS.items()
        for privilege in filter(None, grants._asdict()[process].split(", "))
    ]
    async with fresh(dsn, "berth-start") as connection:
        rows = await connection.fetch(_LACKED, *zip(*wanted, strict=True))
    if not rows:
        return
    tables = list(dict.fromkeys(row["name"] for row in rows))
    more = len(tables) - _TABLES_SHOWN_MAX
    named = ", ".join(tables[:_TABLES_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
    raise NotGranted(
        f"`berth {process}` logs in to the database as {rows[0]['current_user']}, which lacks grants on "
        f"{named}: make it a member of berth_{process}, and let the tables' owner run `berth init --roles`, "
        "after each upgrade too"
    )


def _statements(made: list[str]) -> Iterator[str]:
    yield from (f"CREATE ROLE {role} NOLOGIN" for role in made)
    yield "REVOKE CREATE ON SCHEMA public FROM PUBLIC"  # given by servers before Postgres 15
    for role in ROLES:
        yield f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {role}"
        yield f"GRANT USAGE ON SCHEMA public TO {role}"
        yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {VIEWS} FROM {role}"
    for role in (API, AUDITOR):
        yield f"GRANT USAGE ON SCHEMA past TO {role}"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA past TO {role}"
        yield f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA past TO {role}"
    yield f"GRANT USAGE ON SCHEMA {VIEWS} TO {AUDITOR}"
    yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {VIEWS} TO {AUDITOR}"
    for table, grants in GRANTS.items():
        for role, what in zip(ROLES, grants, strict=True):
            if what:
                yield f"GRANT {what} ON {table} TO {role}"
