"""The contract that ``/openapi.json`` shows: routes name structs, and the structs describe themselves."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from services.api import answers, answers_audit, answers_decisions, answers_live, answers_past

_REF = "#/components/schemas/{name}"


def answering(
    answer: type[msgspec.Struct], status: int | str = 200, description: str = "The answer"
) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that answers with a struct."""
    schema = {"$ref": _REF.format(name=answer.__name__)}
    return {status: {"description": description, "content": {"application/json": {"schema": schema}}}}


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the contract, with the schemas of all structs that routes name, and of the structs in them."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        modules = (answers, answers_audit, answers_decisions, answers_live, answers_past)
        everything = {name: each for module in modules for name, each in vars(module).items()}.values()
        named = [each for each in everything if _is_answer(each)]
        schemas = msgspec.json.schema_components(named, ref_template=_REF)[1]
        found.setdefault("components", {})["schemas"] = schemas
        # Every error has the one shape, so the framework's own is never answered.
        for operations in found["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        app.openapi_schema = found
    return app.openapi_schema


def _is_answer(value: object) -> bool:
    is_struct = isinstance(value, type) and issubclass(value, msgspec.Struct)
    return is_struct and value not in (msgspec.Struct, answers.Page)
