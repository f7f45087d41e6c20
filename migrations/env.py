"""Alembic's entry: runs the migrations on the connection, and in the transaction, that it is given.

Then it notes which older versions of berth may work on what the newest migration left. Each migration says
so: its ``works_from`` is the number of the oldest migration whose version can read and write these tables,
and read what this version writes in them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context
from alembic.script import ScriptDirectory

_NOTED = sa.text("SELECT works_from FROM alembic_version")
_NOTE = sa.text("UPDATE alembic_version SET works_from = :works_from")


def note(connection: sa.Connection) -> None:
    """Write down what the migration says at which the tables are now."""
    scripts = ScriptDirectory.from_config(context.config)
    for head in context.get_context().get_current_heads():
        works_from = scripts.get_revision(head).module.works_from
        # A login that owns nothing may see that nothing is to be done.
        if connection.scalar(_NOTED) != works_from:
            connection.execute(_NOTE, {"works_from": works_from})


_connection = context.config.attributes["connection"]
context.configure(connection=_connection)
with context.begin_transaction():
    context.run_migrations()
    note(_connection)
