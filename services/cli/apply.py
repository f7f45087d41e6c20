"""`berth apply` and `berth delete`: manifests and watch events from files and streams into the log."""

from __future__ import annotations

import contextlib
import enum
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from services.cli import options
from services.cli.get import split_pod
from services.cli.options import CLIENT, CommandError, some, with_settings
from services.cli.output import say
from services.cli.terminal import echo
from services.cli.told import Told, print_waiting
from services.config import Settings
from services.phrases import plural

if TYPE_CHECKING:
    from services.cli.documents import Document
    from services.codec.gateway import Gateway
    from services.plan.kinds import Skipped
    from services.plan.notices import Notices

QUICKLY = "3s"
"""How long a command waits by itself for decisions, to name the pods that wait."""
WITHOUT_NAMESPACE = ("Node", "NodeUsage", "NodeAction", "SchedulingProfile")

Files = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar="FILE",
        help="YAML or JSON, manifests or watch events, one or many; - is standard input. Repeatable.",
    ),
]


class Wait(enum.StrEnum):
    """What `berth apply` waits for."""

    FOLDED = "folded"
    DECIDED = "decided"


class WaitCommand(TyperCommand):
    """Reads ``--wait`` without a value as ``--wait=folded``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Fill in the value. A value that stands by itself, as in ``--wait decided``, counts as well."""
        full = [
            f"{arg}={Wait.FOLDED}" if arg == "--wait" and after not in list(Wait) else arg
            for arg, after in itertools.zip_longest(args, args[1:])
        ]
        return super().parse_args(ctx, full)


class Deleted(enum.StrEnum):
    """What `berth delete` deletes by name."""

    POD = "pod"
    NODE = "node"
    PROFILE = "profile"
    POLICY = "policy"


_OBJECTS = {
    Deleted.POD: ("v1", "Pod"),
    Deleted.NODE: ("v1", "Node"),
    Deleted.PROFILE: ("berth/v1", "SchedulingProfile"),
    Deleted.POLICY: ("berth/v1", "CoLocationPolicy"),
}


Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", help="The namespace of objects that name none.")
]


@with_settings(*CLIENT)
async def apply(
    settings: Settings,
    files: Files = None,
    namespace: Namespace = None,
    wait: Annotated[
        Wait | None,
        typer.Option(help="Return when all is folded (--wait alone), or decided, with the decisions."),
    ] = None,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="How long to wait for each 1,000 events, as 30s or 500ms.")
    ] = "30s",
) -> None:
    """Send nodes, pods, profiles and measured usage, as manifests or watch events, into the log.

    Lists of kubectl and a KubeSchedulerConfiguration are taken too. Kinds that say nothing about where pods
    go are skipped and counted; so are workloads, which a controller turns into pods (`berth plan` does).
    Nothing is sent unless everything is valid; a stream of JSON lines on standard input is checked and sent
    in chunks as it comes. Prints a line for each object, then the pods that wait, with the reason.
    """
    if not files:
        raise typer.BadParameter("name a file with -f FILE, or -f - for standard input")
    await _send(settings, _chunks(files, "ADDED", namespace), wait, timeout)


@with_settings(*CLIENT)
async def delete(
    settings: Settings,
    kind: Annotated[Deleted | None, typer.Argument(help="What to delete.")] = None,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Pod NAMESPACE/NAME, node, profile or policy.")
    ] = None,
    files: Files = None,
    namespace: Namespace = None,
) -> None:
    """Delete a pod, a node, a profile or a policy by name, or all objects of a file."""
    if bool(files) == (kind is not None) or (kind is not None) != (name is not None):
        what = "`pod NAMESPACE/NAME`, `node NAME`, `profile NAME`, `policy NAME`, or `-f FILE`"
        raise typer.BadParameter(f"say what: {what}")
    if kind is None or name is None:
        await _send(settings, _chunks(files or [], "DELETED", namespace))
        return
    where = [f"/v1/{kind}s", name]
    metadata = {"name": name}
    if kind is Deleted.POD:
        of, pod = split_pod(name, namespace)
        metadata = {"namespace": of, "name": pod}
        where[1:] = [of, pod]
    api_version, object_kind = _OBJECTS[kind]
    if kind is Deleted.POLICY:
        where[0] = f"/v1/config/{object_kind}"
    thing = {"apiVersion": api_version, "kind": object_kind, "metadata": metadata}
    await _send_deletion(settings, {"type": "DELETED", "object": thing}, where)


def _chunks(files: list[str], event_type: str, namespace: str | None = None) -> Iterator[list[Any]]:
    """Return checked events, chunk by chunk; all files are checked before the first chunk."""
    from services.cli import documents
    from services.codec.gateway import Gateway
    from services.plan.kinds import Skipped
    from services.plan.notices import Notices

    gateway, skipped, notices, sent = Gateway(), Skipped(), Notices(), 0
    ready, wrong = [], list[str]()
    for name in files:
        if name != "-":
            of_file: list[str] = []
            found = _in_namespace(documents.read_file(name, event_type, of_file), namespace, of_file)
            ready.append(_checked(gateway, found, skipped, notices, of_file))
            wrong += documents.in_order(of_file)
    options.warn(notices.lines())
    _refuse(wrong, 0)
    for events in filter(None, ready):
        yield events
        sent += len(events)
    stream = documents.read_stream(documents.stdin(), event_type) if "-" in files else iter(())
    while True:
        try:
            chunk = next(stream, None)
        except CommandError as error:
            raise CommandError(f"{error}\n{_fate(sent)}") from None
        if chunk is None:
            break
        events = _checked(gateway, _in_namespace(chunk, namespace, wrong), skipped, notices, wrong)
        options.warn(notices.lines())
        _refuse(wrong, sent)
        if events:
            yield events
            sent += len(events)
    if skipped and not sent:
        raise CommandError("\n".join([*skipped.lines(), "nothing was sent"]))
    for line in skipped.lines():
        echo(line, err=True)


def _fate(sent: int) -> str:
    fate = f"{plural(sent, 'event')} before it sent, nothing since" if sent else "nothing was sent"
    return f"{fate}; correct the input and apply it again"


def _refuse(wrong: list[str], sent: int) -> None:
    if wrong:
        raise CommandError("\n".join([*some(wrong), _fate(sent)]))


def _in_namespace(found: Iterable[Document], namespace: str | None, wrong: list[str]) -> Iterator[Document]:
    """Yield documents; manifests that name no namespace get this one."""
    from domain.model.config import OF_CLUSTER
    from services.cli import documents

    for document in found:
        thing = document.event.get("object") if isinstance(document.event, dict) else None
        meta = thing.get("metadata") if isinstance(thing, dict) else None
        if (
            namespace is None
            or not isinstance(thing, dict)
            or not isinstance(meta, dict)
            or thing.get("kind") in (*OF_CLUSTER, *WITHOUT_NAMESPACE)
        ):
            yield document
        elif meta.get("namespace") in (None, namespace):
            full = {**thing, "metadata": {**meta, "namespace": namespace}}
            yield document._replace(event={**document.event, "object": full})
        else:
            where = f"{document.place}{documents.named(document.event)}"
            wrong.append(f"{where}: metadata.namespace: is another than -n {namespace}; give one of the two")


def _checked(
    gateway: Gateway, found: Iterable[Document], skipped: Skipped, notices: Notices, wrong: list[str]
) -> list[Any]:
    """Return the events of the documents that are of use; ``wrong`` collects all that is wrong."""
    from domain.model.errors import FieldError
    from services.cli import documents
    from services.plan.spelling import ignored, unknown_fields

    events: list[Any] = []
    warnings: list[str] = []
    for document in documents.usable(found, skipped, warnings, workloads=False):
        try:
            outgoing = gateway.prepare(document.event)
        except FieldError as error:
            path = error.path.removeprefix("object.") if document.wrapped else error.path
            where = f"{document.place}{documents.named(document.event)}: {path}"
            wrong.append(f"{where.removesuffix(': ')}: {error.message}")
        else:
            events.append(document.event)
            if document.event["type"] != "DELETED":
                notices.note_event(outgoing.event)
        if document.wrapped:
            where = f"{document.place}{documents.named(document.event)}"
            warnings += [f"{where}: {ignored(*slip)}" for slip in unknown_fields(document.event["object"])]
    options.warn(warnings)
    return events


async def _send_deletion(settings: Any, event: dict[str, Any], where: list[str]) -> None:
    """Send the deletion of one object. An unknown object may be one whose event is still on its way."""
    from services.cli.source import open_source, send_events, target

    async with open_source(settings) as source:
        status, _ = await source.request("GET", target(*where))
        if status == 404:
            options.warn([f"{'/'.join(where[1:])} is not known here; the deletion is sent all the same"])
        await send_events(source, [event])
        echo("the deletion is in the log", err=True)
        await _warn_without_worker(source)


async def _send(
    settings: Any, chunks: Iterator[list[Any]], wait: Wait | None = None, timeout: str = "30s"
) -> None:
    from services.cli.source import Refused, open_source, send_events

    waiting = {} if wait is None else {"wait": timeout, "until": wait.value}

    first = next(chunks, None)  # all files are read and checked before anything is opened
    if first is None:
        raise CommandError("there is nothing in the input; write at least one manifest or event")
    told, accepted, duplicates, decided = Told(), 0, 0, list[dict[str, Any]]()
    is_late = False
    async with open_source(settings, make=True) as source:
        quick = {} if waiting or await _missing_workers(source) else {"wait": QUICKLY, "until": "decided"}
        while first is not None:
            known = await told.before(source, first)
            try:
                sums = await send_events(source, first, **(waiting or (quick if known else {})))
            except Refused as refused:
                before = accepted + duplicates + refused.sent_count
                raise CommandError("\n".join([*some(refused.reasons), _fate(before)])) from None
            accepted += sums["accepted"]
            duplicates += sums["duplicates"]
            told.sent(first, known)
            decided += sums["decisions"]
            is_late |= bool(quick) and not sums["folded"]
            if waiting:
                _show_fate(sums, timeout, "" if sums["folded"] else await _missing_workers(source))
            first = next(chunks, None)
        told.end()
        if not waiting:
            print_waiting(decided)
        if is_late:
            say(f"not all of it is decided after {QUICKLY}; `berth get pending` shows what waits", err=True)
        known_already = f", {duplicates} known already" if duplicates else ""
        echo(f"{plural(accepted, 'event')} sent{known_already}", err=True)
        if not waiting:
            await _warn_without_worker(source)


def _show_fate(sums: dict[str, Any], timeout: str, missing: str) -> None:
    """Print what became of events; raise an error where they are not folded yet, or one was refused.

    ``missing`` says which workers are; "": none.
    """
    for decision in sums["decisions"]:
        pod = decision["pod"]
        where = f" on {decision['node']}" if decision["node"] else ""
        why = f": {decision['reason']}" if decision["reason"] else ""
        echo(f"{pod['namespace']}/{pod['name']} {decision['outcome']}{where}{why}")
    if not sums["folded"]:
        late = f"the events are in the log, but were not folded within {timeout}"
        if missing:
            raise CommandError(
                f"{late}: {missing}. They are folded as soon as a worker is ready; its first start compiles "
                "the kernels, which takes minutes at most"
            )
        raise CommandError(f"{late}; `berth get shards` and the API's /readyz show how far the workers are")
    if sums["older"]:
        options.warn(
            [f"{pod}: a higher resourceVersion of it stands, so nothing changed" for pod in sums["older"]]
        )
    refused = [f"{each['topic']}: {each['path']}: {each['message']}" for each in sums["deadletters"]]
    if refused:
        raise CommandError("\n".join(["refused by the worker:", *refused[: options.ERRORS_SHOWN_MAX]]))


async def _warn_without_worker(source: Any) -> None:
    """Warn that the events stay in the log for now if no worker holds the shards."""
    if missing := await _missing_workers(source):
        options.warn([f"nothing is placed yet: {missing}"])


async def _missing_workers(source: Any) -> str:
    """Return a text that says which shards no worker holds, and how many workers are up; "": all are held."""
    import orjson

    _, body = await source.request("GET", "/readyz")
    with contextlib.suppress(orjson.JSONDecodeError, KeyError, TypeError):
        missing = orjson.loads(body)["checks"]["workers"]
        return "" if missing == "ok" else str(missing)
    return ""
