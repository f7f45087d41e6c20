"""The version of berth that runs: the one place that says it."""

from __future__ import annotations

from importlib.metadata import version


def berth_version() -> str:
    """Return the version of this build."""
    return version("berth")
