"""Keep the attempts of a batch together: a row per shard instead of one per group, packed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_SEQ = "seq of the attempt's first decision"
_DOC = "Cycle, as JSON"
_TABLE = "one row per scheduling attempt of a group: filter counts, candidates, seed, generation"


def upgrade() -> None:
    """Add the columns, empty: older rows are one attempt each, and stay readable."""
    _say(
        "the scheduling attempts of a batch: filter counts, candidates, seed, generation",
        seq="seq of the first attempt's first decision",
        signature="with doc: of the group",
        doc="one attempt as JSON: before attempts were packed",
    )
    op.alter_column("cycles", "signature", nullable=True)
    op.alter_column("cycles", "doc", nullable=True)
    of_last = "seq of the last attempt's first decision; null: one alone"
    revisions = "by which profiles: pairs of a name and a revision"
    op.add_column("cycles", sa.Column("last_seq", sa.BigInteger, comment=of_last))
    op.add_column("cycles", sa.Column("revisions", JSONB, comment=revisions))
    op.add_column("cycles", sa.Column("attempts", sa.LargeBinary, comment="services/codec/attempts.py"))
    op.execute("ALTER TABLE cycles ALTER attempts SET STORAGE EXTERNAL")  # they are packed as they come


def downgrade() -> None:
    """Drop the columns, and the rows that have nothing else."""
    op.execute("DELETE FROM cycles WHERE doc IS NULL")
    for column in ("last_seq", "revisions", "attempts"):
        op.drop_column("cycles", column)
    op.alter_column("cycles", "signature", nullable=False)
    op.alter_column("cycles", "doc", nullable=False)
    _say(_TABLE, seq=_SEQ, signature=None, doc=_DOC)


def _say(table: str, **columns: str | None) -> None:
    op.create_table_comment("cycles", table)
    for column, comment in columns.items():
        op.alter_column("cycles", column, comment=comment)
