"""Says whether the database's tables are ones that this version of berth reads and writes."""

from __future__ import annotations

import logging
from pathlib import Path

import migrations
from domain.model.errors import BerthError
from services.adapters.postgres.connections import fresh

_LOGGER = logging.getLogger(__name__)
_REVISION = "SELECT max(version_num) FROM alembic_version"
WORKS_FROM = "SELECT max(works_from) FROM alembic_version"
"""Only asked of newer tables: older ones may not have the column."""


class Outdated(BerthError):
    """The tables are those of an older version; they have to be migrated first."""

    code = "tables-outdated"


class TooNew(BerthError):
    """A newer version has migrated the tables, and this one is too old to work on them."""

    code = "tables-too-new"


def newest_revision() -> str:
    """Return the newest migration that this version knows; they are numbered."""
    return max(path.name[:4] for path in (Path(migrations.__file__).parent / "versions").glob("0*.py"))


def is_newer(at: str | None) -> bool:
    """Return whether a newer version of berth has migrated the tables."""
    return at is not None and at > newest_revision()


def why_not(at: str | None, works_from: str | None) -> str:
    """Return why this version cannot work on a database at a revision; "" where it can.

    Parameters
    ----------
    at : str or None
        The migration at which the tables are; None: at none.
    works_from : str or None
        The oldest migration whose version of berth may work on them, as they say themselves. It counts where
        they are newer than this version.
    """
    known = newest_revision()
    if at is None or at < known:
        return f"at {at}, not {known}; run `berth init`"
    if at == known or (works_from is not None and works_from <= known):
        return ""
    needed = f"{works_from} at least" if works_from else "a newer one"
    return f"at {at}, for versions of berth that know migration {needed}; this one knows {known}"


async def check_revision(dsn: str) -> None:
    """Go on beside a newer version that has migrated the tables, where they say that this one may.

    Raises
    ------
    Outdated
        The tables are older than this version of berth.
    TooNew
        They are newer, and not for this version.
    """
    async with fresh(dsn, "berth-start") as connection:
        at = await connection.fetchval(_REVISION)
        newer = is_newer(at)
        works_from = await connection.fetchval(WORKS_FROM) if newer else None
    if why := why_not(at, works_from):
        raise (TooNew if newer else Outdated)(f"the tables of the database are {why}")
    if newer:
        _LOGGER.warning("the tables are at %s: a newer version of berth has migrated them; going on", at)
