"""Folds what other workers did, as their feeds say."""

from __future__ import annotations

from collections.abc import Sequence

from domain.state.changes import Change, Refused, Skipped


def is_news(changes: Sequence[Change]) -> bool:
    """Say whether an event changed anything, so that others have to fold it who do not read it."""
    return not all(isinstance(each, Skipped | Refused) for each in changes)
