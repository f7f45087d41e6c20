"""Says whether the database's tables are ones that this version of berth reads and writes."""

from __future__ import annotations

import logging
from pathlib import Path

import migrations
from domain.model.errors import BerthError
from services.adapters.postgres.connections import fresh

_LOGGER = logging.getLogger(__name__)
WORKS_FROM = "to_jsonb(alembic_version) ->> 'works_from'"
"""By name in the row: tables of before migration 0041, or of something else, lack the column."""
_REVISION = f"SELECT max(version_num), max({WORKS_FROM}) FROM alembic_version"


LAST_TO_MIGRATE = "0.1.0+dbc91af"
"""The last build that brings a ledger of before revision 0044 there (docs/adr/0039)."""


class Outdated(BerthError):
    """The tables are those of an older version; they have to be migrated first."""

    code = "tables-outdated"


class TooNew(BerthError):
    """A newer version has migrated the tables, and this one is too old to work on them."""

    code = "tables-too-new"


def _revisions() -> list[str]:
    """Return the migrations that this version has, in order; they are numbered."""
    return sorted(path.name[:4] for path in (Path(migrations.__file__).parent / "versions").glob("0*.py"))


def newest_revision() -> str:
    """Return the newest migration that this version knows."""
    return _revisions()[-1]


def check_origin(at: str | None) -> None:
    """Raise ``Outdated`` where tables are older than the first migration that this version has."""
    if at is not None and at < _revisions()[0]:
        raise Outdated(f"the tables of the database are {why_not(at, None)}")


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
    first, known = _revisions()[0], newest_revision()
    if at is not None and at < first:
        return (
            f"at {at}, which this version does not migrate; run `berth init` of build {LAST_TO_MIGRATE}, "
            f"which brings them to {first}, and start this version then"
        )
    if at is None or at < known:
        return f"at {at}, not {known}; run `berth init`"
    if at == known or (works_from is not None and works_from <= known):
        return ""
    if works_from is None:
        return f"at {at}, of a newer version of berth or of something else; this one knows {known}"
    return f"at {at}, for versions of berth that know migration {works_from} at least; this one knows {known}"


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
        at, works_from = await connection.fetchrow(_REVISION)
    newer = is_newer(at)
    if why := why_not(at, works_from):
        raise (TooNew if newer else Outdated)(f"the tables of the database are {why}")
    if newer:
        _LOGGER.warning("the tables are at %s: a newer version of berth has migrated them; going on", at)
