"""Says whether the database's tables are those that this version of berth reads and writes."""

from __future__ import annotations

import logging
from pathlib import Path

import migrations
from domain.model.errors import BerthError
from services.adapters.postgres.connections import fresh

_LOGGER = logging.getLogger(__name__)
_REVISION = "SELECT max(version_num) FROM alembic_version"


class Outdated(BerthError):
    """The tables are those of an older version; they have to be migrated first."""

    code = "tables-outdated"


def newest_revision() -> str:
    """Return the newest migration that this version knows; they are numbered."""
    return max(path.name[:4] for path in (Path(migrations.__file__).parent / "versions").glob("0*.py"))


def why_not(at: str | None) -> str:
    """Return why this version cannot work on a database at a revision; "" where it can."""
    known = newest_revision()
    return "" if at is not None and at >= known else f"at {at}, not {known}; run `berth init`"


async def check_revision(dsn: str) -> None:
    """Raise ``Outdated`` where the tables are older than this version of berth.

    Where a newer one has migrated them, this one goes on beside it: migrations take nothing away.
    """
    async with fresh(dsn, "berth-start") as connection:
        at = await connection.fetchval(_REVISION)
    if why := why_not(at):
        raise Outdated(f"the tables of the database are {why}")
    if at > newest_revision():
        _LOGGER.warning("the tables are at %s: a newer version of berth has migrated them; going on", at)
