"""Label selectors of the command line: ``key=value``, ``key!=value``, ``key``, ``!key``, joined by commas."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import typer

_TERM = re.compile(r"(?P<no>!?)(?P<key>[\w./-]+)(?:\s*(?P<sign>==|!=|=)\s*(?P<value>[\w.-]*))?")


def labels_filter(text: str | None) -> Callable[[Mapping[str, Any]], bool] | None:
    """Return a check for the labels of a selector; None if the selector is empty.

    As in Kubernetes, ``key!=value`` is also true where there is no such label.
    """
    if text is None:
        return None
    terms = [_term(term.strip()) for term in text.split(",")]
    return lambda item: all(term(item["labels"]) for term in terms)


def _term(text: str) -> Callable[[Mapping[str, str]], bool]:
    found = _TERM.fullmatch(text)
    if found is None or (found["no"] and found["sign"]):
        raise typer.BadParameter(
            f"--selector: {text!r} is not allowed; key=value, key!=value, key and !key are"
        )
    key, value = found["key"], found["value"]
    if found["sign"] is None:
        return lambda labels: (key in labels) is not bool(found["no"])
    return lambda labels: (labels.get(key) == value) is (found["sign"] != "!=")
