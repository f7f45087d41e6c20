"""What agents did, as the ledger numbers it."""

from __future__ import annotations

from typing import NamedTuple

from services.ports.ledger import ActionRow


class ActionState(NamedTuple):
    """What an agent did, and its number: of two, the later one was written later."""

    number: int
    row: ActionRow
