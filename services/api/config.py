"""Configuration objects: by what pods are selected, counted and ranked, as the log has told it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec import convert

from domain.manifests.colocation_policy import policy_to_spec
from domain.model.colocation import CoLocationPolicy
from domain.model.config import CO_LOCATION_POLICY, CONTENTS
from domain.model.validation import check_choice
from services.api.answers import ConfigObject, ConfigPage
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import cursor, instant, parse_object
from services.api.routes import NAME_MAX, AsOf, Cursor, Limit, Namespace, as_of_store, found_answer
from services.ports.ledger import ConfigRow
from services.ports.store import ConfigFilter, Store

KindNamed = Annotated[str, Path(description=f"Kind: {', '.join(CONTENTS)}", max_length=NAME_MAX)]
ObjectNamespace = Annotated[str, Path(description="Namespace of the object", max_length=NAME_MAX)]
ObjectName = Annotated[str, Path(description="Name of the object", max_length=NAME_MAX)]


def _object(row: ConfigRow) -> ConfigObject:
    said = row.object
    assert said is not None, "those that are deleted are left out"
    if row.kind == CO_LOCATION_POLICY:  # it has a way back, and so may be taken, changed and sent again
        said = policy_to_spec(convert(said, CoLocationPolicy))
    return ConfigObject(
        kind=row.kind,
        namespace=row.namespace or None,
        name=row.name,
        object=said,
        resource_version=row.resource_version,
        since=instant(row.at_ms),
        sent_by=row.sent_by,
    )


async def list_config(store: Store, which: ConfigFilter, *, limit: int, at: str | None) -> ConfigPage:
    """Return a page of configuration objects."""
    rows = await store.config(which, limit, parse_object(at) if at else None)
    last = rows[-1] if rows.more else None
    after = None if last is None else cursor(last.kind, last.namespace, last.name)
    return ConfigPage(items=list(map(_object, rows)), next=after)


def config_routes(deps: Deps) -> APIRouter:
    """Return the routes of configuration objects."""
    router = APIRouter()

    @router.get(
        "/v1/config",
        operation_id="list_config_objects",
        responses=answering(ConfigPage),
        summary="List configuration objects",
    )
    async def config(
        request: Request,
        limit: Limit = 100,
        cursor: Cursor = None,
        kind: Annotated[str | None, Query(description="Only this kind", max_length=NAME_MAX)] = None,
        namespace: Namespace = None,
        at: AsOf = None,
    ) -> Response:
        if kind is not None:
            check_choice(kind, tuple(CONTENTS), "kind")
        which = ConfigFilter(kind, namespace)
        store = await as_of_store(deps, request, at, namespace)
        return json_answer(await list_config(store, which, limit=limit, at=cursor))

    async def show(request: Request, kind: str, namespace: str, name: str, at: str | None) -> Response:
        check_choice(kind, tuple(CONTENTS), "kind")
        which = ConfigFilter(kind, namespace, name)
        rows = await (await as_of_store(deps, request, at)).config(which, 1, None)
        where = f"{namespace}/{name}" if namespace else name
        return found_answer(_object(rows[0]) if rows else None, f"{kind}/{where}")

    @router.get(
        "/v1/config/{kind}/{name}",
        operation_id="get_cluster_config_object",
        responses=answering(ConfigObject),
        summary="Show a configuration object of a kind that has no namespaces",
    )
    async def of_cluster(request: Request, kind: KindNamed, name: ObjectName, at: AsOf = None) -> Response:
        return await show(request, kind, "", name, at)

    @router.get(
        "/v1/config/{kind}/{namespace}/{name}",
        operation_id="get_config_object",
        responses=answering(ConfigObject),
        summary="Show a configuration object of a namespace",
    )
    async def of_namespace(
        request: Request,
        kind: KindNamed,
        namespace: ObjectNamespace,
        name: ObjectName,
        at: AsOf = None,
    ) -> Response:
        return await show(request, kind, namespace, name, at)

    return router
