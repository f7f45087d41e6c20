"""Configuration objects: what berth keeps of each, whatever its kind."""

from __future__ import annotations

import msgspec

from domain.model.priorities import PriorityClass

PRIORITY_CLASS = "PriorityClass"


class ConfigObject(msgspec.Struct, frozen=True, kw_only=True):
    """The latest of one object; ``content`` is None from its deletion on.

    ``resource_version`` is the newest seen, so that a late duplicate stays late.
    """

    kind: str
    namespace: str
    name: str
    content: PriorityClass | None
    resource_version: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace ("" where the kind has none) and name."""
        return (self.kind, self.namespace, self.name)
