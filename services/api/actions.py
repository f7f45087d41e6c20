"""What the agents of nodes did: `/v1/actions`."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from services.api.answers import ActionPage
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.routes import Cursor, Limit, NodeName, seen_store
from services.api.views import list_actions


def action_routes(deps: Deps) -> APIRouter:
    """Return the route of actions."""
    router = APIRouter()

    @router.get(
        "/v1/actions",
        operation_id="list_actions",
        responses=answering(ActionPage),
        summary="List what agents of nodes did",
    )
    async def actions(
        request: Request, limit: Limit = 100, cursor: Cursor = None, node: NodeName = None
    ) -> Response:
        return json_answer(await list_actions(seen_store(deps, request), node, limit=limit, at=cursor))

    return router
