"""`berth describe`: all that is known of a node, a pod, a gang, a policy or of replicas, top to bottom."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from domain.model.config import CO_LOCATION_POLICY, HOSTED_REPLICAS
from domain.model.devices import DEVICE_ONE
from domain.model.quantities import parse_quantity
from services.cli import output
from services.cli.get import Kind, config_kind_of, kind_of, split_pod
from services.cli.options import CLIENT, moment_of, with_settings
from services.cli.output import Column, Format, Json, Output, Table, cell, say, wrapped
from services.cli.tables import (
    TABLES,
    amounts,
    moment,
    node_status,
    nodes_of,
    percent,
    policy_fields,
    qos_class,
    reasons_in_lines,
    taints,
)
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import devices_free_in_words, devices_in_words, plural
from services.times import MOMENTS

RESOURCES = (
    Column("RESOURCE", lambda item: item["name"]),
    Column("ALLOCATABLE", lambda item: item["allocatable"], right=True),
    Column("REQUESTED", lambda item: item["requested"], right=True),
    Column("%", lambda item: item["percent"], right=True),
    Column("FREE", lambda item: item["free"], right=True),
)
DEVICES = (
    Column("DEVICE", lambda item: item["device"], right=True),
    Column("TAKEN", lambda item: item["taken"], right=True),
    Column("FREE", lambda item: item["free"], right=True),
)
USAGE = (
    Column("RESOURCE", lambda item: item["name"]),
    Column("AVERAGE", lambda item: _percent(item["avg"]), right=True),
    Column("DEVIATION", lambda item: _percent(item["std"]), right=True),
    Column("LATEST", lambda item: _percent(item["latest"]), right=True),
    Column("PEAK YESTERDAY", lambda item: _percent(item["peak_yesterday"]), right=True),
    Column("SAMPLES", lambda item: item["samples"], right=True),
)
PODS = (
    Column("POD", lambda item: f"{item['namespace']}/{item['name']}"),
    Column("REQUESTS", lambda item: amounts(item["requests"])),
    moment("SINCE", "since"),
)
MEMBERS = (
    Column("POD", lambda item: item["name"]),
    Column("PHASE", lambda item: item["phase"]),
    Column("NODE", lambda item: item["node"]),
    moment("SINCE", "since"),
)
PLACEMENTS = (
    Column("NODE", lambda item: item["node"]),
    moment("FROM", "from"),
    moment("TO", "to"),
    Column("DECISION", lambda item: item["decision"], keep=True),
    Column("ADOPTED", lambda item: item["adopted"], keep=True),
)
FIELDS = (
    Column("FIELD", lambda item: item["name"], keep=True),
    Column("VALUE", lambda item: item["value"]),
    Column("DEFAULT", lambda item: item["default"]),
)
ACTIONS = tuple(column for column in TABLES["actions"] if column.title != "NODE")
MOVES = (
    Column("POD", lambda item: f"{item['namespace']}/{item['name']}"),
    Column("ROOM ON", lambda item: item["to"]),
    moment("SINCE", "since"),
    moment("MAY STAY FROM", "expires"),
)
DECISIONS = tuple(column for column in TABLES["decisions"] if column.title != "POD")


class Described(enum.StrEnum):
    """What `berth describe` describes."""

    NODE = "node"
    POD = "pod"
    GANG = "gang"
    POLICY = "policy"
    REPLICAS = "replicas"


def _described(text: str) -> Described:
    """Return the kind by any of its names."""
    known = {
        Kind.NODES: Described.NODE,
        Kind.PODS: Described.POD,
        Kind.GANGS: Described.GANG,
        Kind.REPLICAS: Described.REPLICAS,
    }
    if config_kind_of(text) == CO_LOCATION_POLICY:
        return Described.POLICY
    if config_kind_of(text) == HOSTED_REPLICAS:
        return Described.REPLICAS
    if (kind := kind_of(text)) not in known:
        can = "node, pod, gang, policy and replicas can"
        raise typer.BadParameter(f"{text!r} cannot be described; {can}; try `berth get {kind}`")
    return known[kind]


@with_settings(*CLIENT)
async def describe(
    settings: Settings,
    kind_name: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="What to describe: node, pod, gang, policy or replicas, by any of their names.",
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Name of the node or policy; of the others also NAMESPACE/NAME."),
    ],
    namespace: Annotated[
        str | None,
        typer.Option("-n", "--namespace", help="Namespace of pod, gang or replicas; without it, `default`."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="MOMENT", help=f"As it was then (node, pod, gang, policy): {MOMENTS}."),
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Show all that is known of a node, a pod, a gang, a policy or of replicas: what it has and asks."""
    from services.cli.source import fetch, open_source, target

    kind, then = _described(kind_name), moment_of(at)
    match kind:
        case Described.POLICY:
            where = target("/v1/config", CO_LOCATION_POLICY, name, at=then)
        case Described.NODE:
            where = target("/v1/nodes", name, at=then)
        case Described.REPLICAS if then is not None:
            raise typer.BadParameter("what was said of replicas in the past is not kept; leave --at out")
        case Described.REPLICAS:
            where = target("/v1/replicas", *split_pod(name, namespace, "workload"))
        case Described.POD | Described.GANG:
            where = target(f"/v1/{kind}s", *split_pod(name, namespace, kind), at=then)
    async with open_source(settings) as source:
        item = await fetch(source, where)
    if form in (Format.JSON, Format.YAML):
        output.print_value(item, form)
    else:
        _SHOWN[kind](item)


def _node(node: Json) -> None:
    over = node["overcommitted"]
    _facts(
        ("Name", [node["name"]]),
        ("Status", [node_status(node) + (f" ({', '.join(over)})" if over else "")]),
        (
            "Version",
            [f"{node['version'] or 'not kept'}, last changed by its producer at {node['spec_changed_at']}"],
        ),
        ("Sent by", [node["spec_sent_by"]]),
        ("Labels", [f"{key}={value}" for key, value in sorted(node["labels"].items())]),
        ("Taints", taints(node)),
        *([("Policy", [_policy_of(node)])] if "policy" in node else ()),  # an API of before does not say it
    )
    _section("Resources", RESOURCES, [_resource(node, name) for name in node["allocatable"]])
    if taken := node["devices"]:
        rows = [
            {"device": i, "taken": each, "free": max(0, DEVICE_ONE - each)} for i, each in enumerate(taken)
        ]
        _section(f"Devices (thousandths): {devices_free_in_words(taken)}", DEVICES, rows)
    if usage := node["usage"]:
        rows = [{"name": name} | figures for name, figures in usage["resources"].items()]
        _section(f"Measured usage, latest at {usage['at']}", USAGE, rows)
    else:
        echo("\nMeasured usage: none")
    if heat := node.get("heat"):
        echo(f"\nHot: {'; '.join(heat['why']) or 'yes'}" if heat["hot"] else "\nHot: no")
    if moves := node.get("moves"):
        _section("Has to leave it", MOVES, moves)
    if actions := node.get("actions"):  # an API of before has none
        _section("What its agent did, the latest first", ACTIONS, actions)
    pods = sorted(node["pods"], key=lambda pod: (pod["namespace"], pod["name"]))
    _section(f"Pods ({len(pods):,})", PODS, pods)
    if node["pods_next"]:
        echo(f"and more: `berth get pods --node {node['name']} --phase bound` lists all")
    if others := node["others"]:
        asks = ", ".join(f"{amount} {resource}" for resource, amount in others.items())
        say(f"and those of namespaces that your key does not see, together: {asks}")


def _policy_of(node: Json) -> str:
    """Return which co-location policy holds on a node, with its version."""
    return node["policy"] or "default: no CoLocationPolicy selects this node"


def _resource(node: Json, name: str) -> Json:
    offered, requested = node["allocatable"][name], node["requested"].get(name, "0")
    total = parse_quantity(offered)
    percent = f"{float(parse_quantity(requested) / total * 100):.0f}%" if total else None
    return {
        "name": name,
        "allocatable": offered,
        "requested": requested,
        "percent": percent,
        "free": node["free"].get(name, "0"),
    }


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.1f}%"


def _pod(pod: Json) -> None:
    on = f" on {pod['node']}" if pod["node"] else ""
    adopted = ", adopted: it arrived already bound" if pod["adopted"] else ""
    _facts(
        ("Name", [f"{pod['namespace']}/{pod['name']}"]),
        ("Uid", [pod["uid"]]),
        ("Phase", [f"{pod['phase']}{on} since {pod['since']}{adopted}"]),
        ("Asks for", [f"{name} {value}" for name, value in pod["requests"].items()]),
        *([("Has", [devices_in_words(pod["devices"])])] if pod["devices"] else []),
        *([("QoS class", [qos])] if (qos := qos_class(pod)) else []),
        ("Labels", [f"{key}={value}" for key, value in sorted(pod["labels"].items())]),
        ("Shard", [pod["shard"]]),
        ("Signature", [pod["signature"]]),
    )
    if group := pod["group"]:
        tried = (
            f", last tried at {group['tried_at']}" if group["tried_at"] else ", not tried yet: waits its turn"
        )
        others = f" with {plural(group['count'] - 1, 'equal pod')}" if group["count"] > 1 else ""
        echo(f"\nWaits{others}{tried}")
        for line in reasons_in_lines(group["reasons"]):
            _lines([line], 2)
    _section("Decisions, latest first", DECISIONS, pod["decisions"])
    _section("Placements, latest first", PLACEMENTS, pod["placements"])
    echo(f"\n`berth explain pod {pod['namespace']}/{pod['name']}` says why.")


def _gang(gang: Json) -> None:
    least, timeout = gang["min_member"], gang["schedule_timeout_seconds"]
    limit = [] if timeout is None else [f"{timeout} s without success; then it is tried less often"]
    _facts(
        ("Name", [f"{gang['namespace']}/{gang['name']}"]),
        ("Placed", [f"{gang['placed']:,}" + ("" if least is None else f" of at least {least:,}")]),
        ("Waiting", [f"{gang['waiting']:,}" + (f" since {gang['since']}" if gang["since"] else "")]),
        ("Why", [gang["why"]] if gang["why"] else []),
        ("Last tried", [_tried(gang)] if gang["missing"] else []),
        ("Must be free", [f"{name} {value}" for name, value in gang["min_resources"].items()]),
        ("Time-out", limit),
        ("One domain", [f"{gang['topology_key']} ({gang['topology_mode']})"] if gang["topology_key"] else []),
    )
    pods = sorted(gang["pods"], key=lambda pod: (pod["node"] is not None, pod["name"]))
    _section(f"Pods ({len(pods):,})", MEMBERS, pods)
    if gang["pods_next"]:
        echo(f"and more: `berth get pods --gang {gang['namespace']}/{gang['name']}` lists all")


def _tried(gang: Json) -> str:
    within = f" in {gang['domain']}" if gang["domain"] else ""
    return f"{gang['found']:,} more would have had a node{within}; {gang['missing']} found none"


# ------------------------------------------------------------------------------------------------ printing


def _policy(policy: Json) -> None:
    version, spec = policy["resource_version"], policy["object"]
    _facts(
        ("Name", [policy["name"]]),
        ("Holds on", [nodes_of(spec)]),
        ("Version", ["not said" if version is None else version]),
        ("Since", [policy["since"]]),
        ("Sent by", [policy["sent_by"]]),
    )
    fields = policy_fields(spec, all_of_them=True)
    rows = [{"name": name, "value": value, "default": default} for name, value, default in fields]
    _section("Fields", FIELDS, rows)


def _replicas(said: Json) -> None:
    workload = said["workload"]
    _facts(
        ("Name", [f"{said['namespace']}/{said['name']}"]),
        ("Workload", [f"{workload['kind']} {workload['name']}"]),
        ("Wanted", [f"{said['wanted']:,}, of {said['min']:,} to {said['max']:,}"]),
        ("Because", [said["reason"]]),
        ("Running", [f"{said['running']:,}"]),
        ("Waits since", [said["waiting_since"] or "none waits"]),
        ("Load", [percent(said["load_percent"]) or "not known"]),
        ("Said", [f"{said['at']}, change {said['seq']:,} in berth.scales"]),
    )


_SHOWN = {
    Described.NODE: _node,
    Described.POD: _pod,
    Described.GANG: _gang,
    Described.POLICY: _policy,
    Described.REPLICAS: _replicas,
}


def _facts(*facts: tuple[str, Iterable[Any]]) -> None:
    """Print names with their values, a line each."""
    width = max(len(name) for name, _ in facts) + 3
    for name, values in facts:
        lines = [cell(value) for value in values] or ["none"]
        _lines(lines, width, f"{name}:")


def _lines(lines: list[str], indent: int, first: str = "") -> None:
    """Print lines that fit the terminal; the first one follows a title."""
    from rich.console import Console

    console = Console(highlight=False)
    parts = [part for line in lines for part in wrapped(line, console.width - indent)]
    for at, part in enumerate(parts):
        echo(f"{first if at == 0 else '':{indent}}{part}")


def _section(title: str, columns: tuple[Column, ...], rows: list[Json]) -> None:
    echo(f"\n{title}" + ("" if rows else ": none"))
    if rows:
        Table(columns, aligned=True, indent=2).add(rows)
