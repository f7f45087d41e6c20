r"""A part of kubectl's JSONPath: ``.a.b``, ``[0]``, ``[-1]``, ``["k"]``, ``[*]``, and text around ``{…}``.

``{.items[*].name}`` reads the names of a list; a path without braces is taken as if it had some. Filters,
ranges, slices and ``..`` are not there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from services.cli.options import CommandError

_STEP = re.compile(
    r"""\.?\[(?P<index>-?\d+)\] | \.?\[(?P<all>\*)\] | \.?\["(?P<double>[^"]*)"\] | \.?\['(?P<single>[^']*)'\]
    | \.(?P<every>\*) | \.(?P<field>(?:\\.|[^.\[\]{}"'\s\\])+)""",
    re.VERBOSE,
)
_PIECE = re.compile(r"""\{(?P<inside>(?:"[^"]*"|'[^']*'|[^{}])*)\}|(?P<text>[^{}]+)""")
_EVERY = object()

Step = Any
"""The name of a field, an index, or ``_EVERY``."""


class Piece(NamedTuple):
    """A text, or (``steps``) a path whose values are joined by spaces."""

    text: str
    steps: tuple[Step, ...] | None


def parsed(template: str) -> tuple[Piece, ...]:
    """Return the pieces of a template.

    Raises
    ------
    CommandError
        It is no template; the message shows what is allowed.
    """
    full = template if "{" in template else f"{{{template}}}"
    pieces, end = [], 0
    for found in _PIECE.finditer(full):
        if found.start() != end:
            break
        end = found.end()
        inside = found["inside"]
        if inside is None:
            pieces.append(Piece(found["text"], None))
        elif inside[:1] in ('"', "'") and inside[-1:] == inside[:1] and len(inside) > 1:
            pieces.append(Piece(inside[1:-1].replace(r"\n", "\n").replace(r"\t", "\t"), None))
        else:
            pieces.append(Piece("", steps_of(inside)))
    if end != len(full) or not pieces:
        raise _wrong(template)
    return tuple(pieces)


def steps_of(path: str) -> tuple[Step, ...]:
    """Return the steps of a path without braces; the dot before the first name may be left out."""
    text = path.strip().removeprefix("$").removeprefix("@")
    text = text if text[:1] in ("", ".", "[") else f".{text}"
    steps: list[Step] = []
    end = 0
    for found in _STEP.finditer(text):
        if found.start() != end:
            break
        end = found.end()
        if found["index"] is not None:
            steps.append(int(found["index"]))
        elif found["all"] or found["every"]:
            steps.append(_EVERY)
        else:
            name = next(each for each in found.group("double", "single", "field") if each is not None)
            steps.append(re.sub(r"\\(.)", r"\1", name) if found["field"] else name)
    if end != len(text) and text != ".":
        raise _wrong(path)
    return tuple(steps)


def _wrong(text: str) -> CommandError:
    return CommandError(
        f"{text!r} is not a JSON path that is read here; allowed are .a.b, [0], [-1], "
        "[\"key\"] and [*], as in '{[*].name}', and text around the braces"
    )


def values(value: Any, steps: Iterable[Step]) -> Iterator[Any]:
    """Yield what a path leads to, without what is not there; a list is its own ``items``, as kubectl's."""
    left = list(steps)
    if not left:
        yield value
        return
    step, rest = left[0], left[1:]
    if step is _EVERY:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for each in inner:
            yield from values(each, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            yield from values(value[step], rest)
    elif isinstance(value, dict):
        if step in value:
            yield from values(value[step], rest)
    elif isinstance(value, list) and step == "items":
        yield from values(value, rest)


def rendered(value: Any, pieces: Iterable[Piece]) -> str:
    """Return a template filled in: texts as they are, other values as JSON."""
    return "".join(
        piece.text if piece.steps is None else " ".join(map(_text, values(value, piece.steps)))
        for piece in pieces
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
