"""The contract that ``/openapi.json`` shows: routes name structs, and the structs describe themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

_REF = "#/components/schemas/{name}"


def answering(
    answer: type[msgspec.Struct], status: int | str = 200, description: str = "The answer"
) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that answers with a struct."""
    schema = {"$ref": _REF.format(name=answer.__name__)}
    return {status: {"description": description, "content": {"application/json": {"schema": schema}}}}


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the contract, with the schemas of all structs and enumerations that routes name."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = found.setdefault("components", {})
        referred, of_framework = _referred(found["paths"]), components.get("schemas", {})
        named = [each for each in _structs(msgspec.Struct) if each.__name__ in referred]
        schemas = msgspec.json.schema_components(named, ref_template=_REF)[1]
        enumerations = {name: of_framework[name] for name in sorted(referred - schemas.keys())}
        components["schemas"] = {**schemas, **enumerations}
        # Every error has the one shape, so the framework's own is never answered.
        for operations in found["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = found
    return app.openapi_schema


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs of the API."""
    for each in base.__subclasses__():
        yield from _structs(each)
        if each.__module__.startswith(f"{__package__}.") and each.__name__ != "Page":
            yield each


def _referred(value: Any) -> set[str]:
    """Return the names of the schemas that a part of the contract refers to."""
    if isinstance(value, dict):
        parts = [_referred(each) for each in value.values()]
        own = {value["$ref"].rpartition("/")[2]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*parts)
    return set().union(*map(_referred, value)) if isinstance(value, list) else set()
