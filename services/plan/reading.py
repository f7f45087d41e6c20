"""Reads manifests from a text of a stranger: YAML or JSON, one or many, lists and watch events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from domain.model.errors import FieldError
from services.plan import safe_yaml
from services.plan.kinds import Skipped, Use, use_of
from services.plan.objects import Given
from services.plan.plain import TOO_MANY, VALUES_SPARE, Plain

PATH = "manifests"
_DEEP = "is nested too deeply to be an object of Kubernetes"
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
    if isinstance(items, list) and depth < safe_yaml.DEPTH_MAX:
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
        for value in _json(text) if as_json else _yaml(text):
            yield plain.of(value, PATH)
    except RecursionError:
        raise FieldError(PATH, _DEEP) from None


def _yaml(text: str) -> Iterator[Any]:
    try:
        yield from safe_yaml.load_all(text, len(text) + VALUES_SPARE)
    except safe_yaml.TooDeep:
        raise FieldError(PATH, _DEEP) from None
    except safe_yaml.TooMany:
        raise FieldError(PATH, TOO_MANY) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or "it does not parse"
        raise FieldError(PATH, f"line {mark.line + 1 if mark else 1} is not YAML: {said}") from None


def _json(text: str) -> Iterator[Any]:
    decoder, at, end = json.JSONDecoder(), 0, len(text)
    while True:
        while at < end and (text[at].isspace() or text.startswith("---", at)):
            at += 1 if text[at].isspace() else 3
        if at == end:
            return
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as error:
            line = text.count("\n", 0, getattr(error, "pos", at)) + 1
            raise FieldError(PATH, f"line {line} is not JSON: {getattr(error, 'msg', error)}") from None
        yield document
