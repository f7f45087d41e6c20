"""Which build of berth this is: the release, and the commit that it was made from where that is known."""

from __future__ import annotations

import functools
import re
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent
COMMIT_FILE = "COMMIT"
"""Beside this file, where ``make wheel`` and ``Dockerfile`` write the commit."""

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHOWN_CHARS = 12


@functools.cache
def build() -> str:
    """Return the build, such as ``0.1.0+85ee777f3a1b``, or the release alone.

    A checkout says its commit even where files in it were changed since.
    """
    release, found = version("berth"), commit(_HERE)
    return f"{release}+{found[:_SHOWN_CHARS]}" if found else release


def commit(folder: Path) -> str:
    """Return the commit of the checkout that holds this folder, or else that noted in it; "": unknown."""
    top = folder.parent
    try:
        if (top / "pyproject.toml").exists() and (top / ".git").exists():
            found = _head(top / ".git")
        else:
            found = (folder / COMMIT_FILE).read_text()
    except OSError:
        return ""
    return found.strip() if _COMMIT.fullmatch(found.strip()) else ""


def _head(git: Path) -> str:
    """Return the commit that is checked out, read from git's own files: git need not be installed."""
    if git.is_file():  # a work tree beside the first one
        git = git.parent / git.read_text().removeprefix("gitdir:").strip()
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head
    name = head.removeprefix("ref: ")
    shared = git / "commondir"
    home = git / shared.read_text().strip() if shared.exists() else git
    loose = home / name
    if loose.exists():
        return loose.read_text()
    packed = (line.split(" ") for line in (home / "packed-refs").read_text().splitlines())
    return next((pair[0] for pair in packed if pair[-1] == name), "")
