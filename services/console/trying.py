"""Try: paste manifests, and see where they would go."""

from __future__ import annotations

from fastapi import APIRouter


def add_routes(router: APIRouter) -> None:
    """Add the page."""
