"""Proves to a command that this is the instance of its directory, before the command shows a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.address import CHALLENGE_PATH, Instance
from services.api.failures import json_answer


def instance_route(instance: Instance) -> APIRouter:
    """Return the route; it needs no key, and tells nothing to those who do not know the secret."""
    router = APIRouter()

    @router.get(CHALLENGE_PATH, include_in_schema=False)
    async def prove(challenge: Annotated[str, Query(min_length=16, max_length=128)]) -> Response:
        return json_answer({"answer": instance.answer(challenge)})

    return router
