"""How a list is sorted and printed: as a table, by name, as CSV, JSON, JSON lines, YAML or by a JSON path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from domain.model.errors import FieldError
from domain.model.quantities import parse_quantity
from services.cli import jsonpath, output
from services.cli.output import Column, Format, Json, cell
from services.cli.terminal import echo
from services.codec.exported import csv_line, guarded

FORMS = ("table", "wide", "name", "csv", "json", "jsonl", "yaml")
JSONPATH = "jsonpath="

Shaped = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FORM",
        help=f"How to show it: {', '.join(FORMS)} or {JSONPATH}PATH, as {JSONPATH}'{{.items[*].name}}'.",
    ),
]
SortBy = Annotated[
    str | None,
    typer.Option("--sort-by", metavar="PATH", help="Sort by this field of what -o json shows, as .node."),
]


class Shape(NamedTuple):
    """What ``-o`` asks for: one of ``FORMS``, or a template."""

    form: str
    template: tuple[jsonpath.Piece, ...] | None = None

    @property
    def is_document(self) -> bool:
        """Whether it shows values as the API has them."""
        return self.form in (Format.JSON, Format.YAML) or self.template is not None


def shape_of(text: str, *, names: bool = True) -> Shape:
    """Read the value of ``-o``."""
    if text.startswith(JSONPATH):
        return Shape("jsonpath", jsonpath.parsed(text.removeprefix(JSONPATH)))
    forms = [form for form in FORMS if names or form != "name"]
    if text not in forms:
        raise typer.BadParameter(f"-o {text}: allowed are {', '.join(forms)} and {JSONPATH}PATH")
    return Shape(text)


def print_document(value: Any, shape: Shape) -> None:
    """Print a value in a shape that is of documents."""
    if shape.template is not None:
        echo(jsonpath.rendered(value, shape.template))
    else:
        output.print_value(value, Format(shape.form))


def print_list(
    title: str,
    columns: Sequence[Column],
    items: Sequence[Json],
    shape: Shape,
    name: Callable[[Json], str] | None = None,
) -> None:
    """Print a list; ``name`` returns an item's for ``-o name``."""
    if shape.is_document:
        print_document(list(items), shape)
    elif shape.form == "jsonl":
        for item in items:
            print_line(item)
    elif shape.form == "name":
        assert name is not None
        for item in items:
            echo(name(item))
    elif shape.form == "csv":
        _print_csv(columns, items)
    else:
        output.print_items(title, columns, items, Format(shape.form))


def print_line(item: Json) -> None:
    """Print an item as one line of JSON."""
    import orjson

    echo(orjson.dumps(item))


def _print_csv(columns: Sequence[Column], items: Sequence[Json]) -> None:
    """Print all columns, the wide ones too, in full, quoted as exports are; what is not there is empty."""
    echo(csv_line(column.title for column in columns).rstrip("\n"))
    for item in items:
        read = [column.read(item) for column in columns]
        echo(csv_line(map(_csv_cell, read)).removesuffix("\n"))


def _csv_cell(value: object) -> str:
    if value in (None, "", "-"):  # as tables show what is not there
        return ""
    return guarded(cell(value)) if isinstance(value, str) else cell(value)


def sorted_by(items: Sequence[Json], path: str) -> list[Json]:
    """Return items by the first value that a path leads to: numbers and quantities by size, none last."""
    template = jsonpath.parsed(path)
    if len(template) != 1 or template[0].steps is None:
        raise typer.BadParameter(f"--sort-by {path}: one path is allowed, as .node")
    steps = template[0].steps
    found = [next(jsonpath.values(item, steps), None) for item in items]
    if items and all(value is None for value in found):
        known = ", ".join(f".{field}" for field in items[0])
        raise typer.BadParameter(f"--sort-by {path}: no item has it; the fields are {known}")
    keys = _sizes(found) or [None if value is None else str(value) for value in found]
    order = sorted(range(len(items)), key=lambda at: (keys[at] is None, 0 if keys[at] is None else keys[at]))
    return [items[at] for at in order]


def _sizes(found: Sequence[Any]) -> list[Any] | None:
    """Return the values as numbers, None where there is none; None: not all others are numbers."""
    sizes: list[Any] = []
    for value in found:
        if value is None or isinstance(value, int | float):
            sizes.append(value)
            continue
        try:
            sizes.append(parse_quantity(value))
        except (FieldError, ValueError, TypeError, AttributeError):
            return None
    return sizes
