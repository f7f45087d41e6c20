"""What pods used, hour by hour, is billed."""

from __future__ import annotations

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None
works_from = "0045"  # a build of before bills nothing


def upgrade() -> None:
    """Change the database."""
    op.execute("""
CREATE TABLE bill_hours (
    hour_ms bigint NOT NULL,
    namespace text NOT NULL,
    quality text NOT NULL,
    part text NOT NULL,
    resource text NOT NULL,
    amount numeric NOT NULL,
    price_micro numeric NOT NULL,
    saved_micro numeric NOT NULL,
    PRIMARY KEY (hour_ms, namespace, quality, part, resource)
) WITH (fillfactor = 60)
""")
    op.execute("CREATE INDEX bill_hours_namespace ON bill_hours (namespace, hour_ms)")
    op.execute("COMMENT ON TABLE bill_hours IS 'BillLine; added to by the owner of the shard of usage alone'")
