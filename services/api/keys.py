"""API keys: their text, and the hash that the ledger keeps."""

from __future__ import annotations

import hashlib
import secrets


def new_key() -> str:
    """Return a fresh key; it is shown once and only its hash is kept."""
    return f"berth_{secrets.token_urlsafe(32)}"


def key_hash(key: str) -> bytes:
    """Return the hash of a key, which is all that the ledger keeps."""
    return hashlib.sha256(key.encode()).digest()
