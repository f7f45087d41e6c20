"""Indexes for what people ask of decisions: by node, rare outcome, time, profile and signature."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the indexes; docs/adr/0010 says what each costs and gains."""
    op.create_index(
        "decisions_node",
        "decisions",
        ["node"],
        postgresql_ops={"node": "text_pattern_ops"},
        postgresql_where="node IS NOT NULL",
    )
    op.create_index(
        "decisions_outcome",
        "decisions",
        ["outcome", "shard", "seq"],
        postgresql_where="outcome <> ALL (ARRAY['bound', 'adopted', 'released'])",
    )
    op.create_index(
        "decisions_ranges",
        "decisions",
        ["decided_at_ms", "profile_revision", "profile", "signature"],
        postgresql_using="brin",
        postgresql_ops={
            "profile": "text_bloom_ops (n_distinct_per_range = 16)",
            "signature": "bytea_bloom_ops (n_distinct_per_range = 200)",
        },
        postgresql_with={"pages_per_range": 64},
    )


def downgrade() -> None:
    """Drop them."""
    for name in ("decisions_ranges", "decisions_outcome", "decisions_node"):
        op.drop_index(name, "decisions")
