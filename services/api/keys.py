"""API keys as text and as what the ledger keeps of them."""

from __future__ import annotations

import hashlib
import secrets


def new_key() -> str:
    """Return a fresh key; it is shown once and only its hash is kept."""
    return f"berth_{secrets.token_urlsafe(32)}"


def key_hash(key: str) -> bytes:
    """Return what the ledger keeps of a key."""
    return hashlib.sha256(key.encode()).digest()
