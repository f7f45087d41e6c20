"""Makes the passwords of a new deployment: each once, in a file of its own, for nobody else to read."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

ROLES = ("berth", "postgres")
"""The database roles that log in: the one that berth uses, and the superuser, whom berth does not know."""


def make_passwords(own: Path, postgres: Path) -> list[str]:
    """Make the passwords that are missing, and return the names of their roles.

    Parameters
    ----------
    own : Path
        What berth's processes see: the password of ``berth``, for the account of the image alone.
    postgres : Path
        What the database's container sees: both. It runs under another account, so that everybody who sees
        the folder can read them; only that container does.
    """
    made = [role for role in ROLES if _write(postgres / role, secrets.token_urlsafe(32), 0o444)]
    _write(own / "berth", (postgres / "berth").read_text(), 0o400)
    return made


def _write(path: Path, text: str, mode: int) -> bool:
    """Write a file at once and whole, unless it is there."""
    if path.exists():
        return False
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
        os.fsync(file.fileno())
    part.rename(path)
    return True


if __name__ == "__main__":
    made = make_passwords(Path(sys.argv[1]), Path(sys.argv[2]))
    print(f"passwords made: {', '.join(made) or 'none, all are there'}")
