"""`berth get` and `berth explain`: what is where, what waits, what was decided and why."""

from __future__ import annotations

import enum
from typing import Annotated, Any

import typer

from services.cli import output
from services.cli.options import CLIENT, with_settings
from services.cli.output import Format, Output
from services.config import Settings

READ = "Look"


class Kind(enum.StrEnum):
    """What `berth get` lists."""

    NODES = "nodes"
    PODS = "pods"
    DECISIONS = "decisions"
    PENDING = "pending"
    PROFILES = "profiles"
    SHARDS = "shards"
    DEADLETTERS = "deadletters"


FILTERS: dict[Kind, frozenset[str]] = {
    Kind.NODES: frozenset({"name"}),
    Kind.PODS: frozenset({"namespace", "node", "phase"}),
    Kind.DECISIONS: frozenset(
        {"namespace", "node", "outcome", "shard", "pod", "since", "until", "signature", "order"}
    ),
    Kind.PENDING: frozenset({"shard"}),
    Kind.PROFILES: frozenset(),
    Kind.SHARDS: frozenset(),
    Kind.DEADLETTERS: frozenset(),
}


def _parameters(kind: Kind, given: dict[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in given.items() if value is not None}
    for name in found.keys() - FILTERS[kind]:
        allowed = ", ".join(f"--{each}" for each in sorted(FILTERS[kind])) or "no filter"
        raise typer.BadParameter(f"--{name} does not apply to {kind}; it takes {allowed}")
    return found


@with_settings(*CLIENT)
async def get(
    settings: Settings,
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    form: Output = Format.TABLE,
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Only this namespace (pods, decisions).")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="Only this node (pods, decisions).")] = None,
    phase: Annotated[str | None, typer.Option("--phase", help="Only bound or pending pods.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="Only decisions with this outcome.")
    ] = None,
    pod: Annotated[str | None, typer.Option("--pod", help="Only decisions about NAMESPACE/NAME.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only nodes whose name contains this.")] = None,
    shard: Annotated[
        int | None, typer.Option("--shard", min=0, help="Only this shard (decisions, pending).")
    ] = None,
    signature: Annotated[
        str | None, typer.Option("--signature", help="Only decisions of this equivalence group.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only decisions at or after this time (RFC 3339).")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="Only decisions before this time (RFC 3339).")
    ] = None,
    newest: Annotated[bool, typer.Option("--newest", help="Latest decisions first.")] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="At most so many; all without it.")
    ] = None,
) -> None:
    """List nodes, pods, decisions, pending groups, profiles, shards or dead letters."""
    parameters = _parameters(
        kind,
        {
            "namespace": namespace,
            "node": node,
            "phase": phase,
            "outcome": outcome,
            "pod": pod,
            "name": name,
            "shard": shard,
            "signature": signature,
            "since": since,
            "until": until,
            "order": "newest" if newest else None,
        },
    )

    from services.cli.source import fetch_all, open_source

    async with open_source(settings) as source:
        items = await fetch_all(source, f"/v1/{kind}", limit, **parameters)
    output.print_items(kind, output.COLUMNS[kind], items, form)


def split_pod(text: str) -> tuple[str, str]:
    """Return namespace and name of ``NAMESPACE/NAME``; the namespace is ``default`` without one."""
    namespace, slash, name = text.rpartition("/")
    if not name or "/" in namespace or (slash and not namespace):
        raise typer.BadParameter(f"{text!r} is not a pod; NAMESPACE/NAME is allowed")
    return namespace or "default", name


class Explained(enum.StrEnum):
    """What `berth explain` explains."""

    POD = "pod"


@with_settings(*CLIENT)
async def explain(
    settings: Settings,
    kind: Annotated[Explained, typer.Argument(help="What to explain.")],
    name: Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Which one.")],
    form: Output = Format.TABLE,
) -> None:
    """Say why a pod is where it is, or why it waits."""
    namespace, pod = split_pod(name)

    from services.cli.source import open_source

    async with open_source(settings) as source:
        answer = await explained(source, namespace, pod)
    if form is Format.JSON:
        output.print_json(answer)
    elif form is Format.YAML:
        output.print_yaml(answer)
    else:
        from services.cli.story import print_story

        print_story(answer)


async def explained(source: Any, namespace: str, name: str) -> dict[str, Any]:
    """Return a pod with the explanation of the decision that matters: the latest."""
    from services.cli.source import fetch, target

    pod = await fetch(source, target("/v1/pods", namespace, name))
    explanation = None
    if pod["decisions"]:
        latest = pod["decisions"][0]["id"]
        explanation = await fetch(source, target("/v1/decisions", latest, "explanation"))
    return {"pod": pod, "explanation": explanation}
