"""Keys over HTTP: an admin makes, lists and revokes them without reaching the database."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request, Response

from services.api.answers import Key, KeyPage, KeyRevoked, KeyToMake, NewKey
from services.api.bodies import struct_of
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.formats import stamp
from services.api.ingest import read_body
from services.api.keys import checked_grant, in_force, key_hash, new_key
from services.ports.store import Grant


def key_routes(deps: Deps) -> APIRouter:
    """Return the routes of keys."""
    router = APIRouter()
    schema = {"$ref": "#/components/schemas/KeyToMake"}
    content = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.get(
        "/v1/keys",
        operation_id="list_keys",
        responses=answering(KeyPage),
        summary="List keys, revoked ones included",
    )
    async def keys() -> Response:
        rows = await deps.store.callers.keys()
        return json_answer(
            KeyPage(
                items=[
                    Key(
                        **in_force(row.grant)._asdict(),
                        created_at=stamp(row.created_at) or "",
                        revoked_at=stamp(row.revoked_at),
                    )
                    for row in rows
                ]
            )
        )

    @router.post(
        "/v1/keys",
        operation_id="create_key",
        status_code=201,
        responses=answering(NewKey, 201),
        summary="Make a key, which is shown this once",
        openapi_extra={"requestBody": content},
    )
    async def make_key(request: Request) -> Response:
        wanted = struct_of(await read_body(request), KeyToMake, "a key")
        grant, key = checked_grant(Grant(**msgspec.structs.asdict(wanted))), new_key()
        await deps.store.callers.create_key(key_hash(key), grant)
        return json_answer(NewKey(name=grant.name, key=key), 201)

    @router.delete(
        "/v1/keys/{name}",
        operation_id="revoke_key",
        responses=answering(KeyRevoked),
        summary="Revoke all keys of a name, at once",
    )
    async def revoke_key(name: Annotated[str, Path(description="Name of the keys")]) -> Response:
        count = await deps.store.callers.revoke_key(name)
        if not count:
            raise ApiError("not-found", f"there is no key named {name!a} to revoke")
        return json_answer(KeyRevoked(name=name, revoked=count))

    return router
