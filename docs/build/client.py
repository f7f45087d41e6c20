"""Writes the generated files of the client: `python -m docs.build.client [--check]`.

The structs and the questions come from the contract that ``/openapi.json`` shows. The client that blocks is
the one that awaits, in other words.
"""

from __future__ import annotations

import keyword
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry

from docs.build.writing import write_or_check
from services.api.app import create_app
from services.api.auth import Gate
from services.api.deps import Deps
from services.metrics import ApiMetrics

HERE = Path(__file__).parent.parent.parent / "berth" / "client"
COMMAND = "python -m docs.build.client"
MODELS = HERE / "models.py"
QUESTIONS = HERE / "_async" / "resources.py"
LINE = 106

RESOURCES: Mapping[str, Mapping[str, str]] = {
    "pods": {
        "list": "list_pods",
        "get": "get_pod",
        "attempts": "get_pod_attempts",
        "why": "why_pod_waits",
        "history": "list_pod_history",
    },
    "nodes": {"list": "list_nodes", "get": "get_node", "history": "list_node_history"},
    "decisions": {"list": "list_decisions", "get": "get_decision", "explain": "explain_decision"},
    "pending": {"list": "list_pending_groups", "get": "get_pending_group", "why": "why_group_waits"},
    "nominations": {"list": "list_nominations"},
    "gangs": {"list": "list_gangs", "get": "get_gang"},
    "profiles": {
        "list": "list_profiles",
        "get": "get_profile",
        "history": "list_profile_history",
        "shadow": "list_shadow_profiles",
    },
    "config": {
        "list": "list_config_objects",
        "get": "get_config_object",
        "get_of_cluster": "get_cluster_config_object",
    },
    "replicas": {"list": "list_replicas", "get": "get_replicas"},
    "shards": {"list": "list_shards", "owners": "list_owners", "history": "list_shard_history"},
    "workers": {"list": "list_workers"},
    "actions": {"list": "list_actions"},
    "deadletters": {"list": "list_deadletters", "get": "get_deadletter", "resend": "resend_deadletter"},
    "usage": {"list": "list_usage"},
    "bill": {"list": "list_bill"},
    "keys": {"list": "list_keys", "create": "create_key", "revoke": "revoke_key", "caller": "get_caller"},
    "accesses": {"list": "list_accesses"},
    "cluster": {
        "field": "get_field",
        "moment": "get_moment",
        "totals": "get_totals",
        "diff": "diff_moments",
        "audit": "get_audit",
        "health": "check_health",
        "readiness": "check_readiness",
        "metrics": "get_metrics",
    },
}
"""What a client has, and which operation of the contract each of its methods asks."""

BY_HAND = ("stream_events", "append_events", "plan_pods", "export_table")
"""Operations that the client asks in a shape of its own: `watch`, `apply` and `delete`, `plan`, `export`."""

NOT_ASKED = ("begin_session", "end_session")
"""Operations that are for browsers: a client shows its key."""


def contract() -> dict[str, Any]:
    """Return the contract of the API, which needs no server to be told."""
    nothing = cast(Any, None)
    metrics = ApiMetrics(CollectorRegistry())
    app = create_app(
        Deps(nothing, nothing, nothing, Gate(nothing, keys_required=True), nothing, metrics, nothing)
    )
    return app.openapi()


# ---------------------------------------------------------------------------------------------- structs


def _name_of(ref: str) -> str:
    return ref.rpartition("/")[2]


def python_name(name: str) -> str:
    """Return a name that Python takes: `from` becomes `from_`."""
    return f"{name}_" if keyword.iskeyword(name) else name


def type_of(schema: Mapping[str, Any], enums: Mapping[str, Any], prefix: str = "") -> str:
    """Return the type of a value. One of several texts is a text: a later API may know another one."""
    match schema:
        case {"$ref": ref}:
            name = _name_of(ref)
            return "str" if name in enums else prefix + name
        case {"anyOf": several}:
            return " | ".join(dict.fromkeys(type_of(each, enums, prefix) for each in several))
        case {"enum": _} | {"type": "string"}:
            return "str"
        case {"type": "null"}:
            return "None"
        case {"type": "integer"}:
            return "int"
        case {"type": "number"}:
            return "float"
        case {"type": "boolean"}:
            return "bool"
        case {"type": "array", "prefixItems": several}:
            return f"tuple[{', '.join(type_of(each, enums, prefix) for each in several)}]"
        case {"type": "array"}:
            return f"list[{type_of(schema['items'], enums, prefix)}]" if schema.get("items") else "list[Any]"
        case {"type": "object", "additionalProperties": dict(inner)} if inner:
            return f"dict[str, {type_of(inner, enums, prefix)}]"
        case {"type": "object"}:
            return "dict[str, Any]"
    return "Any"


def _field(name: str, schema: Mapping[str, Any], required: bool, enums: Mapping[str, Any]) -> Iterator[str]:
    typed, own = type_of(schema, enums), python_name(name)
    settings = [] if own == name else [f'name="{name}"']
    if not required:
        default = schema.get("default")
        if isinstance(default, list | dict):
            settings.append(f"default_factory={type(default).__name__}")
            assert not default
        else:
            typed += "" if default is not None or typed == "Any" or "None" in typed else " | None"
            settings.append(f"default={default!r}")
    line = f"    {own}: {typed}"
    if settings:
        bare = settings[0].removeprefix("default=") if len(settings) == 1 else ""
        plain = settings[0].startswith("default=")
        line += f" = {bare}" if plain else f" = field({', '.join(settings)})"
    yield line
    if about := schema.get("description"):
        yield from _docstring(about, "    ")


def _docstring(text: str, indent: str) -> Iterator[str]:
    text = text.replace("\\", "\\\\").rstrip()
    end = " " if text.endswith('"') else ""
    if len(indent) + len(text) + 6 <= LINE:
        yield f'{indent}"""{text}{end}"""'
        return
    first, *rest = textwrap.wrap(text, LINE - len(indent) - 3, break_long_words=False)
    yield f'{indent}"""{first}'
    yield from (indent + each for each in rest)
    yield f'{indent}"""'


def models(spec: Mapping[str, Any]) -> str:
    """Return the file of structs."""
    schemas = spec["components"]["schemas"]
    enums = {name: each for name, each in schemas.items() if "enum" in each}
    lines = [
        '"""The structs of the API\'s answers, as its contract says them.',
        "",
        f"Made by `{COMMAND}`; edit `services/api`, not this file. A text that is one of several",
        "is a `str` here, and fields that a later API adds are passed over: the API may be newer.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any",
        "",
        "from msgspec import Struct, field",
    ]
    for name, each in sorted(enums.items()):
        lines += ["", f"{_constant(name)} = ("]
        lines += [f'    "{value}",' for value in each["enum"]]
        lines += [")"]
        lines += list(_docstring(each.get("description", "Which there are."), ""))
    for name, each in sorted(schemas.items()):
        if name in enums:
            continue
        lines += ["", "", f"class {name}(Struct, frozen=True, kw_only=True):"]
        lines += _docstring(each.get("description", f"See {name}."), "    ")
        required = each.get("required", ())
        for field, schema in each.get("properties", {}).items():
            lines += ["", *_field(field, schema, field in required, enums)]
    return _formatted("\n".join(lines) + "\n")


def _constant(name: str) -> str:
    words = re.findall(r"[A-Z][a-z]*", name)
    return "_".join(words).upper() + ("S" if not name.endswith("s") else "")


# --------------------------------------------------------------------------------------------- questions


def operations(spec: Mapping[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Return method, path and description of each operation, by its id."""
    return {
        each["operationId"]: (method, path, each)
        for path, methods in spec["paths"].items()
        for method, each in methods.items()
    }


def _answer(operation: Mapping[str, Any]) -> str | None:
    good = next(each for status, each in operation["responses"].items() if status.startswith("2"))
    content = good.get("content", {}).get("application/json", {}).get("schema", {})
    return _name_of(content["$ref"]) if "$ref" in content else None


_ASIDE = ("cursor", "limit", "wait", "at")


class _Question:
    """An operation as a method: its parameters, what it answers, and its lines."""

    def __init__(self, spec: Mapping[str, Any], name: str, operation_id: str) -> None:
        self.verb, self.path, self.about = operations(spec)[operation_id]
        self._schemas = spec["components"]["schemas"]
        self._enums = {key for key, each in self._schemas.items() if "enum" in each}
        self.name, self.operation_id = name, operation_id
        self.parameters: list[dict[str, Any]] = self.about.get("parameters", [])
        self.answer = _answer(self.about)
        fields = self._schemas.get(self.answer, {}).get("properties", {})
        self.item = (
            type_of(fields["items"]["items"], dict.fromkeys(self._enums), "models.")
            if {"items", "next"} <= fields.keys()
            else None
        )

    def _asked(self, place: str) -> list[dict[str, Any]]:
        return [each for each in self.parameters if each["in"] == place and each["name"] not in _ASIDE]

    def _has(self, name: str) -> bool:
        return any(each["name"] == name for each in self.parameters)

    def _body(self) -> str | None:
        content = self.about.get("requestBody", {}).get("content", {}).get("application/json", {})
        return _name_of(content["schema"]["$ref"]) if content else None

    def _signature(self) -> list[str]:
        given = [f"{python_name(each['name'])}: {self._typed(each)}" for each in self._asked("path")]
        if body := self._body():
            given.append(f"wanted: models.{body}")
        named = []
        for each in sorted(self._asked("query"), key=lambda each: not each.get("required", False)):
            default = "" if each.get("required") else " = None"
            named.append(f"{python_name(each['name'])}: {self._typed(each)}{default}")
        if self._has("at"):
            named.append("at: Moment | None = None")
        if self._has("cursor"):
            named.append("limit: int | None = None")
        return ["self", *given, *(["*", *named] if named else [])]

    def _typed(self, parameter: Mapping[str, Any]) -> str:
        typed = type_of(parameter["schema"], dict.fromkeys(self._enums), "models.")
        if parameter["name"] in ("since", "until", "from"):
            typed = typed.replace("str", "Moment")
        is_optional = parameter["in"] == "query" and not parameter.get("required") and "None" not in typed
        return f"{typed} | None" if is_optional else typed

    def lines(self) -> Iterator[str]:
        """Yield the method."""
        returned = (
            f"AsyncIterator[{self.item}]" if self.item else f"models.{self.answer}" if self.answer else "str"
        )
        starts = "def" if self.item else "async def"
        yield f"    {starts} {self.name}({', '.join(self._signature())}) -> {returned}:"
        summary = self.about["summary"].rstrip(".")
        notes = [
            f"``{python_name(each['name'])}``: {each['description'][0].lower()}{each['description'][1:]}."
            for each in self._asked("query")
            if each.get("description")
        ]
        yield f'        """{summary}.'
        if notes:
            yield ""
            for note in notes:
                yield from textwrap.wrap(
                    note.replace("\\", "\\\\"), LINE - 8, initial_indent=" " * 8, subsequent_indent=" " * 12
                )
        yield '        """'
        path = self.path
        parts = [f'"{path.partition("/{")[0]}"']
        parts += [
            python_name(piece[1:-1]) if piece.startswith("{") else f'"{piece}"'
            for piece in path.removeprefix(path.partition("/{")[0]).split("/")[1:]
        ]
        params = [f'"{each["name"]}": {python_name(each["name"])}' for each in self._asked("query")]
        if self._has("at"):
            params.append('"at": at')
        if self._has("cursor"):
            params.append('"limit": page_size(limit)')
        yield "        request = Request("
        yield f'            "{self.verb.upper()}",'
        yield f"            path({', '.join(parts)}),"
        yield f"            {f'models.{self.answer}' if self.answer else 'str'},"
        if params:
            yield f"            params={{{', '.join(params)}}},"
        if self._body():
            yield "            body=wanted,"
        if self._has("at"):
            yield "            has_past=True,"
        if self._has("wait"):
            yield "            may_wait=True,"
        if "503" in self.about["responses"]:
            yield "            accepts=(503,),"
        yield "        )"
        if self.item:
            limit = ", limit" if self._has("cursor") else ""
            yield f"        return self._asker.pages(request{limit})"
        else:
            yield "        return await self._asker.ask(request)"


def _class_name(resource: str) -> str:
    return f"Async{resource.capitalize()}"


def questions(spec: Mapping[str, Any]) -> str:
    """Return the file of the resources of the client that awaits."""
    asked = [each for methods in RESOURCES.values() for each in methods.values()]
    unasked = sorted(operations(spec).keys() - {*asked, *BY_HAND, *NOT_ASKED})
    if unasked:
        raise SystemExit(f"no method asks {', '.join(unasked)}; name them in RESOURCES of {__name__}")
    lines = [
        '"""What can be asked of the API: a class for each kind of thing, a method for each question.',
        "",
        f"Made by `{COMMAND}` from the contract; edit that script and `services/api`, not this file.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import AsyncIterator",
        "",
        "from berth.client import models",
        "from berth.client._async.asking import AsyncAsker, AsyncResource",
        "from berth.client.requests import Moment, Request, page_size, path",
    ]
    for resource, methods in RESOURCES.items():
        lines += ["", "", f"class {_class_name(resource)}(AsyncResource):"]
        lines += [f'    """What can be asked about {resource}."""']
        # A method `list` would hide the type of that name from the methods behind it.
        for name, operation_id in sorted(methods.items(), key=lambda each: each[0] == "list"):
            lines += ["", *_Question(spec, name, operation_id).lines()]
    lines += ["", "", "class AsyncResources(AsyncAsker):", '    """All that can be asked."""', ""]
    for resource in RESOURCES:
        lines += ["    @property", f"    def {resource}(self) -> {_class_name(resource)}:"]
        lines += [f'        """See `{_class_name(resource)}`."""']
        lines += [f"        return {_class_name(resource)}(self)", ""]
    return _formatted("\n".join(lines) + "\n")


# -------------------------------------------------------------------------------------- the one that blocks

_WORDS = (
    (r"async def", "def"),
    (r"async with", "with"),
    (r"async for", "for"),
    (r"await ", ""),
    (r"(?<!httpx\.)\bAsync([A-Z]\w*)", r"\1"),
    (r"httpx\.Async(\w+)", r"httpx.\1"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_(bytes|lines|rows)\b", r"iter_\1"),
    (r"\banext\(", "next("),
    (r"\baclosing\b", "closing"),
    (r"asynccontextmanager", "contextmanager"),
    (r"import asyncio$", "import time"),
    (r"asyncio\.sleep", "time.sleep"),
    (r"\b_async\b", "_sync"),
    (r"that awaits", "that blocks"),
    (r"with_async", "with_sync"),
)


def blocking(text: str) -> str:
    """Return the text of a module that awaits, as it is without."""
    for pattern, put in _WORDS:
        text = re.sub(pattern, put, text, flags=re.MULTILINE)
    head, _, rest = text.partition("from __future__")
    note = f"Made by `{COMMAND}` from the module of the same name in `_async`; edit that one.\n"
    first, _, more = head.partition("\n")
    title = first.removesuffix('"""')
    more = more.strip().removesuffix('"""').strip()
    more = "" if "Made by" in more else f"\n{more}\n" if more else ""
    return _formatted(f'{title}\n{more}\n{note}"""\n\nfrom __future__{rest}')


def _formatted(text: str) -> str:
    """Return a text as `ruff` writes it, with its imports in order."""
    ruff = str(Path(sys.executable).parent / "ruff")
    name = str(HERE / "_sync" / "client.py")
    for command in (("check", "--fix-only", "--select", "I,F401,UP028,C416", "--unsafe-fixes"), ("format",)):
        done = subprocess.run(
            [ruff, *command, "--quiet", "--stdin-filename", name, "-"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        )
        text = done.stdout
    return text


def files() -> Iterator[tuple[Path, str]]:
    """Yield each generated file with its text."""
    spec = contract()
    yield MODELS, models(spec)
    asked = questions(spec)
    yield QUESTIONS, asked
    for path in sorted((HERE / "_async").glob("*.py")):
        text = asked if path == QUESTIONS else path.read_text(encoding="utf-8")
        yield HERE / "_sync" / path.name, blocking(text) if text else ""


def main(arguments: Sequence[str]) -> int:
    """Write the files; with ``--check`` only say whether they are as the contract is."""
    told = [
        write_or_check(path, text, list(arguments), source="the contract says", command=COMMAND)
        for path, text in files()
    ]
    return max(told)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
