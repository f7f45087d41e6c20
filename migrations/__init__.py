"""Alembic migrations of the ledger's database, run by ``services.adapters.postgres.migrate``."""
