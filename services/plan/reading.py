"""Reads manifests from a text of a stranger: YAML or JSON, one or many, lists and watch events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from domain.model.errors import FieldError
from services.plan.kinds import Skipped, Use, use_of
from services.plan.objects import Given
from services.plan.plain import TOO_DEEP, VALUES_SPARE, NotParsed, Plain, parse
from services.plan.safe_yaml import DEPTH_MAX

PATH = "manifests"
_DEEP = f"is {TOO_DEEP}"
_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED")


def read_manifests(text: str) -> tuple[list[Given], list[str]]:
    """Return the objects that say where pods go, and a line for each kind of the others.

    Raises
    ------
    FieldError
        The text is neither YAML nor JSON, or holds what is no object; the path names the document.
    """
    found: list[Given] = []
    skipped = Skipped()
    for number, document in enumerate(_values(text), start=1):
        if document is not None:
            found += _objects(document, f"document {number}", skipped)
    return found, skipped.lines()


def _objects(document: Any, where: str, skipped: Skipped, depth: int = 0) -> Iterator[Given]:
    items = document if isinstance(document, list) else None
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
    if isinstance(items, list) and depth < DEPTH_MAX:
        for number, item in enumerate(items, start=1):
            yield from _objects(item, f"{where}, item {number}", skipped, depth + 1)
        return
    if not isinstance(document, dict):
        raise FieldError(PATH, f"{where} is no object with a kind")
    is_event = document.get("type") in _EVENT_TYPES and "object" in document
    thing = document["object"] if is_event else document
    if not isinstance(thing, dict) or not isinstance(thing.get("kind"), str):
        raise FieldError(PATH, f"{where} is neither a manifest (kind, metadata) nor a watch event")
    if use_of(thing) in (Use.EVENT, Use.WORKLOAD):
        kind = document["type"] if is_event else "ADDED"
        yield Given(kind, thing, where=where, wrapped=not is_event)
    else:
        skipped.add(thing)


def _values(text: str) -> Iterator[Any]:
    plain = Plain(len(text) + VALUES_SPARE)
    as_json = text.lstrip()[:1] in ("{", "[")
    try:
        for value in parse(text, as_json=as_json, divider="---"):
            yield plain.of(value, PATH)
    except NotParsed as error:
        if error.language:
            raise FieldError(PATH, f"line {error.line or 1} is not {error.language}: {error.said}") from None
        raise FieldError(PATH, _DEEP if error.said == TOO_DEEP else error.said) from None
    except RecursionError:
        raise FieldError(PATH, _DEEP) from None
