"""Reads manifests and watch events from files and streams: YAML or JSON, single, lists, or many."""

from __future__ import annotations

import io
import json
import queue
import re
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from domain.model.errors import FieldError
from services.cli.options import CommandError
from services.plan.plain import TOO_DEEP, TOO_MANY, VALUES_SPARE, NotParsed, Plain, parse

if TYPE_CHECKING:
    from services.plan.kinds import Skipped

CHUNK = 1000
_IDLE_SECONDS = 0.01
_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BIND_FAILED")


class Document(NamedTuple):
    """An object as read: its place in the input, and the event that it stands for."""

    place: str
    event: Any
    wrapped: bool  # it was a manifest, so users see paths without ``object.``


def read_file(name: str, event_type: str, wrong: list[str] | None = None) -> list[Document]:
    """Read all documents of a file.

    With ``wrong`` it collects what is wrong, and goes on with the next document where the text lets it.

    Raises
    ------
    CommandError
        The file does not read; the message says where.
    """
    found: list[Document] = []
    try:
        for number, value in enumerate(read_values(name, wrong), start=1):
            if value is not None:
                found += _expanded(value, f"{name}, document {number}", event_type, wrong)
    except CommandError as error:
        if wrong is None:
            raise
        wrong.append(str(error))
    return found


def in_order(wrong: Iterable[str]) -> list[str]:
    """Return what is wrong with a file in the order of its documents."""

    def number(text: str) -> int:
        found = re.search(r", document (\d+)", text)
        return int(found[1]) if found else 0

    return sorted(wrong, key=number)


def _expanded(value: Any, place: str, event_type: str, wrong: list[str] | None) -> list[Document]:
    try:
        return list(expand(value, place, event_type))
    except CommandError as error:
        if wrong is None:
            raise
        wrong.append(str(error))
        return []


def read_values(name: str, wrong: list[str] | None = None) -> list[Any]:
    """Read a file document by document, without interpreting it; - is standard input.

    Raises
    ------
    CommandError
        The file does not read; the message says where.
    """
    path = Path(name)
    try:
        data = stdin().read() if name == "-" else path.read_bytes()
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}; name a file, or - for stdin") from None
    return list(_values(_text(name, data), name, path.suffix.lower(), wrong))


def read_stream(stream: BinaryIO, event_type: str) -> Iterator[list[Document]]:
    """Read documents from a stream in chunks: JSON lines as they come, anything else at the end."""
    first = _first_line(stream)
    if not first:
        return
    if not _is_json_object(first):
        text = _text("stdin", first + stream.read())
        found = list(_documents(text, "stdin", "", event_type))
        for start in range(0, len(found), CHUNK):
            yield found[start : start + CHUNK]
        return
    chunk: list[Document] = []
    for number, line in enumerate(_lines(first, stream), start=1):
        if line is not None and line.strip():
            chunk += expand(_json_line(line, number), f"stdin, line {number}", event_type)
        if chunk and (line is None or len(chunk) >= CHUNK):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _first_line(stream: BinaryIO) -> bytes:
    for line in iter(stream.readline, b""):
        if line.strip():
            return line
    return b""


def _lines(first: bytes, stream: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines of a stream, and None whenever it falls silent for a moment."""
    lines: queue.Queue[bytes] = queue.Queue(maxsize=4 * CHUNK)

    def read() -> None:
        for line in iter(stream.readline, b""):
            lines.put(line)
        lines.put(b"")

    threading.Thread(target=read, daemon=True).start()
    yield first
    idle = False
    while True:
        try:
            line = lines.get(timeout=None if idle else _IDLE_SECONDS)
        except queue.Empty:
            idle = True
            yield None
            continue
        idle = False
        if not line:
            return
        yield line


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def _is_json_object(line: bytes) -> bool:
    if not line.lstrip().startswith(b"{"):
        return False
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _json_line(line: bytes, number: int) -> Any:
    import orjson

    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise CommandError(f"stdin, line {number}: not JSON: {error}") from None


def _documents(text: str, name: str, suffix: str, event_type: str) -> Iterator[Document]:
    for number, value in enumerate(_values(text, name, suffix), start=1):
        if value is not None:
            yield from expand(value, f"{name}, document {number}", event_type)


def _values(text: str, name: str, suffix: str, wrong: list[str] | None = None) -> Iterator[Any]:
    """Yield documents; where one is no JSON ``wrong`` says it, if given, and None stands for it."""
    as_json = suffix in (".json", ".jsonl", ".ndjson")
    if not as_json and suffix not in (".yaml", ".yml"):
        as_json = text.lstrip()[:1] in ("{", "[")
    found = _parsed(text, name, as_json=as_json)
    plain = Plain(len(text) + VALUES_SPARE)
    for number, value in enumerate(found, start=1):
        try:
            yield plain.of(value, "")
        except FieldError as error:
            where = f"{error.path.lstrip('.')}: " if error.path else ""
            said = f"{name}, document {number}: {where}{error.message}"
            if wrong is None or error.message == TOO_MANY:
                raise CommandError(said) from None
            wrong.append(said)
            yield None
        except RecursionError:
            raise CommandError(f"{name}: {TOO_DEEP}") from None


def _parsed(text: str, name: str, *, as_json: bool) -> Iterator[Any]:
    try:
        yield from parse(text, as_json=as_json)
    except NotParsed as error:
        where = f", line {error.line}" if error.line else ""
        said = f"not {error.language}: {error.said}" if error.language else error.said
        raise CommandError(f"{name}{where}: {said}") from None


def expand(document: Any, place: str, event_type: str) -> Iterator[Document]:
    """Turn one parsed document into events: lists into their items, manifests into ``event_type``."""
    items: Any = document if isinstance(document, list) else None
    if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
        items = document.get("items")
    if isinstance(items, list):
        for number, item in enumerate(items, start=1):
            yield from expand(item, f"{place}, item {number}", event_type)
    elif isinstance(document, dict) and document.get("type") in _EVENT_TYPES and "object" in document:
        if event_type == "DELETED":
            document = {**document, "type": "DELETED"}
        yield Document(place, document, False)
    elif isinstance(document, dict) and document.get("type") == "BOOKMARK":
        return  # a bookmark of a watch: nothing happened to any object
    elif isinstance(document, dict) and document.get("type") == "ERROR":
        said = document.get("object")
        raise CommandError(f"{place}: the watch ended with an error: {said}; start it again")
    elif isinstance(document, dict) and "kind" in document:
        yield Document(place, {"type": event_type, "object": document}, True)
    else:
        raise CommandError(f"{place}: neither a manifest (kind, metadata) nor a watch event (type, object)")


def usable(
    found: Iterable[Document], skipped: Skipped, warnings: list[str], *, workloads: bool
) -> Iterator[Document]:
    """Yield the documents that a command has a use for.

    Parameters
    ----------
    found : iterable of Document
        As read.
    skipped : Skipped
        Counts the others.
    warnings : list of str
        Collects what a KubeSchedulerConfiguration names and berth does not have; its profiles are yielded.
    workloads : bool
        Whether what a controller turns into pods is of use. Without, its selector is.
    """
    from services.plan.kinds import SELECTING, Use, use_of

    for document in found:
        thing = document.event["object"]
        use = use_of(thing)
        if use is Use.CONFIGURATION:
            yield from _profiles(document, warnings)
        elif use is Use.EVENT or (use is Use.WORKLOAD and workloads) or not _has_kind(thing):
            yield document  # it has no kind: the reader will say what is wrong
        elif use is Use.WORKLOAD and thing["kind"] in SELECTING:
            skipped.add_selecting(thing)
            yield document
        else:
            skipped.add(thing)


def _has_kind(thing: Any) -> bool:
    return isinstance(thing, dict) and isinstance(thing.get("kind"), str)


def _profiles(document: Document, warnings: list[str]) -> Iterator[Document]:
    from services.plan.kube_scheduler import profiles_of

    where = f"{document.place} (KubeSchedulerConfiguration)"
    try:
        translation = profiles_of(document.event["object"])
    except FieldError as error:
        raise CommandError(f"{where}: {error}") from None
    warnings += [f"{where}: {text}" for text in translation.warnings]
    for path, manifest in translation.profiles:
        yield Document(f"{where}, {path}", {**document.event, "object": manifest}, document.wrapped)


def stdin() -> BinaryIO:
    """Return standard input as bytes, through a reader of our own.

    At exit Python closes ``sys.stdin``, and aborts when a thread still waits for a line in it.
    """
    try:
        number = sys.stdin.fileno()
    except io.UnsupportedOperation:
        return sys.stdin.buffer  # no file: nothing ever waits in it
    return open(number, "rb", closefd=False)


def named(event: Any) -> str:
    """Return `` (Pod default/web)`` if the document names kind and object."""
    thing = event.get("object") if isinstance(event, dict) else None
    meta = thing.get("metadata") if isinstance(thing, dict) else None
    if not isinstance(meta, dict) or not isinstance(thing, dict) or not meta.get("name"):
        return ""
    namespace = f"{meta['namespace']}/" if meta.get("namespace") else ""
    return f" ({thing.get('kind')} {namespace}{meta['name']})"
