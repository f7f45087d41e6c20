"""Sessions of the console: each is of a key, ends with it, and is known by the hash of its token alone."""

from __future__ import annotations

from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None
works_from = "0050"  # as of the migrations before: a build of then has no console

_TABLE = """
CREATE TABLE sessions (
    token_hash bytea PRIMARY KEY,
    key_hash bytea NOT NULL REFERENCES api_keys (key_hash) ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_key ON sessions (key_hash, created_at);
CREATE INDEX sessions_expiry ON sessions (expires_at);
"""


def upgrade() -> None:
    """Create the table."""
    for statement in filter(str.strip, _TABLE.split(";\n")):
        op.execute(statement)
    op.execute("COMMENT ON TABLE sessions IS 'who is signed in at the console; good while the key is'")
    op.execute("COMMENT ON COLUMN sessions.token_hash IS 'SHA-256 of the token, which is kept nowhere'")
