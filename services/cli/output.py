"""How answers are shown: a table on a terminal, tab-separated in a pipe, or JSON and YAML for programs."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from services.phrases import reason_in_words

Json = dict[str, Any]


class Format(enum.StrEnum):
    """What `-o` takes."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[Format, typer.Option("-o", "--output", help="How to show it.")]


class Column(NamedTuple):
    """A column: its title, how to read it from an item, and how it is shown."""

    title: str
    read: Callable[[Json], object]
    wide: bool = False  # only `-o wide` shows it
    right: bool = False
    lines: Callable[[Json], list[str]] | None = None  # on a terminal, instead of ``read``


def _field(name: str) -> Callable[[Json], object]:
    return lambda item: item[name]


def _moment(title: str, name: str, *, wide: bool = False) -> Column:
    """Return a column with a time: to the second for a person, who has less room, in full for a program."""

    def lines(item: Json) -> list[str]:
        return [] if item[name] is None else [f"{item[name][:19]}Z"]

    return Column(title, _field(name), wide=wide, lines=lines)


def _amounts(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _counts(values: Mapping[str, int]) -> str:
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return " ".join(f"{code}={count}" for code, count in ordered)


def _reasons_in_lines(item: Json) -> list[str]:
    ordered = sorted(item["reasons"].items(), key=lambda each: (-each[1], each[0]))
    return [f"{count:,} {reason_in_words(code, count)}" for code, count in ordered]


def _used(resource: str) -> Callable[[Json], object]:
    return lambda node: f"{node['requested'].get(resource, '0')}/{node['allocatable'].get(resource, '0')}"


def _used_others(node: Json) -> str:
    names = [name for name in node["allocatable"] if name not in ("cpu", "memory", "pods")]
    return " ".join(f"{name}={_used(name)(node)}" for name in names)


def _taints(node: Json) -> str:
    return " ".join(f"{taint['key']}:{taint['effect']}" for taint in node["taints"])


def _node_state(node: Json) -> str:
    said = ["NotReady" * (node["ready"] is False), "cordoned" * node["unschedulable"]]
    return ",".join(filter(None, said)) or "ready"


def _pod_name(item: Json) -> str:
    return f"{item['pod']['namespace']}/{item['pod']['name']}"


def _raw(item: Json) -> str:
    text = item["raw_text"]
    return f"base64:{item['raw_base64']}" if text is None else str(text)


def _scores(profile: Json) -> list[str]:
    """Return ``2*NodeResourcesFit:MostAllocated`` per score: its weight, name and strategy."""
    lines = []
    for use in profile["spec"]["scores"]:
        strategy = use.get("args", {}).get("scoringStrategy", {}).get("type", "")
        lines.append(f"{use['weight']:g}*{use['name']}{':' if strategy else ''}{strategy}")
    return lines


def _filters(profile: Json) -> str:
    return " ".join(use["name"] for use in profile["spec"]["filters"])


COLUMNS: dict[str, tuple[Column, ...]] = {
    "nodes": (
        Column("NAME", _field("name")),
        Column("STATE", _node_state),
        Column("CPU", _used("cpu"), right=True),
        Column("MEMORY", _used("memory"), right=True),
        Column("PODS", _used("pods"), right=True),
        Column("OTHERS", _used_others),
        Column("VERSION", _field("version"), wide=True, right=True),
        Column("TAINTS", _taints, wide=True),
        Column("LABELS", lambda item: _amounts(item["labels"]), wide=True),
    ),
    "pods": (
        Column("NAMESPACE", _field("namespace")),
        Column("NAME", _field("name")),
        Column("PHASE", _field("phase")),
        Column("NODE", _field("node")),
        _moment("SINCE", "since"),
        Column("REQUESTS", lambda item: _amounts(item["requests"]), wide=True),
        Column("UID", _field("uid"), wide=True),
        Column("DECISION", _field("decision"), wide=True),
        Column("SIGNATURE", _field("signature"), wide=True),
    ),
    "decisions": (
        Column("ID", _field("id")),
        Column("POD", _pod_name),
        Column("OUTCOME", _field("outcome")),
        Column("NODE", _field("node")),
        _moment("DECIDED", "decided_at"),
        Column("REASON", _field("reason")),
        Column("SCORE", _field("score"), wide=True, right=True),
        Column("PROFILE", _field("profile"), wide=True),
        Column("REVISION", _field("profile_revision"), wide=True, right=True),
        Column("CYCLE", _field("cycle"), wide=True),
        _moment("RECORDED", "recorded_at", wide=True),
    ),
    "pending": (
        Column("COUNT", _field("count"), right=True),
        Column("REASONS (NODES)", lambda item: _counts(item["reasons"]), lines=_reasons_in_lines),
        Column("REQUESTS", lambda item: _amounts(item["requests"])),
        _moment("SINCE", "since"),
        Column("EXAMPLES", lambda item: " ".join(item["examples"]), lines=lambda item: item["examples"]),
        Column("UNRESOLVABLE", _field("unresolvable"), wide=True),
        Column("SHARD", _field("shard"), wide=True, right=True),
        Column("PRIORITY", _field("priority"), wide=True, right=True),
        Column("PROFILE", _field("profile"), wide=True),
        Column("SIGNATURE", _field("signature"), wide=True),
    ),
    "profiles": (
        Column("NAME", _field("name")),
        Column("REVISION", _field("revision"), right=True),
        Column("SINCE", lambda item: "built in" if item["built_in"] else item["since"]),
        Column("FILTERS", lambda item: len(item["spec"]["filters"]), right=True),
        Column("SCORES", lambda item: " ".join(_scores(item)), lines=_scores),
        Column("FILTER NAMES", _filters, wide=True),
        Column("RESOURCE VERSION", _field("resource_version"), wide=True, right=True),
    ),
    "shards": (
        Column("SHARD", _field("shard"), right=True),
        Column("OWNER", _field("owner")),
        Column("EPOCH", _field("epoch"), right=True),
        Column("DECISIONS", _field("decisions"), right=True),
        Column("PUBLISHED", _field("published"), right=True),
        Column("DEADLETTERS", _field("deadletters"), right=True),
        _moment("LOG TIME", "log_time"),
        _moment("LEASE UNTIL", "lease_until", wide=True),
        Column("RELAY", _field("relay"), wide=True),
        Column(
            "OFFSETS",
            lambda item: " ".join(
                f"{at['topic']}/{at['partition']}={at['next_offset']}" for at in item["offsets"]
            ),
            wide=True,
        ),
    ),
    "deadletters": (
        Column("ID", _field("id")),
        Column("TOPIC", _field("topic")),
        Column("OFFSET", _field("offset"), right=True),
        Column("CODE", _field("code")),
        Column("PATH", _field("path")),
        Column("MESSAGE", _field("message")),
        Column("RAW", _raw),
        Column("KEY", _field("key"), wide=True),
        Column("PARTITION", _field("partition"), wide=True, right=True),
        _moment("AT", "at", wide=True),
    ),
}


def on_terminal() -> bool:
    """Return whether a person is likely to read standard output."""
    return sys.stdout.isatty()


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _shown(column: Column, item: Json) -> str:
    """Return a cell for a person's eyes."""
    if column.lines is None:
        return _cell(column.read(item))
    return "\n".join(map(_cell, column.lines(item))) or "-"


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    import orjson

    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def print_yaml(value: object) -> None:
    """Print a value as YAML."""
    import yaml

    typer.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110).rstrip())


def print_table(title: str, columns: Sequence[Column], items: Sequence[Json]) -> None:
    """Print items as a table on a terminal, else one tab-separated line each after a header."""
    if not on_terminal():
        typer.echo("\t".join(column.title for column in columns))
        for item in items:
            typer.echo("\t".join(_cell(column.read(item)) for column in columns))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for item in items:
        cells = (_shown(column, item) for column in columns)
        table.add_row(*(Text(cell if len(cell) <= 400 else cell[:399] + "…") for cell in cells))
    console = Console()
    console.print(table if items else f"[dim]no {title}[/dim]")


def print_items(title: str, columns: Sequence[Column], items: Sequence[Json], form: Format) -> None:
    """Print a list in the wanted form."""
    if form is Format.JSON:
        print_json(list(items))
    elif form is Format.YAML:
        print_yaml(list(items))
    else:
        shown = [column for column in columns if form is Format.WIDE or not column.wide]
        print_table(title, shown, items)
