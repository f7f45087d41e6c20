"""`berth get`: what is where, what waits, and what was decided."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domain.model.config import OF_CLUSTER
from services.cli import output
from services.cli.labels import labels_filter
from services.cli.options import CLIENT, CommandError, with_settings
from services.cli.output import Format, Json, Output
from services.cli.tables import TABLES
from services.config import Settings

if TYPE_CHECKING:
    from services.cli.source import Source


class Kind(enum.StrEnum):
    """What `berth get` lists."""

    NODES = "nodes"
    PODS = "pods"
    DECISIONS = "decisions"
    PENDING = "pending"
    NOMINATIONS = "nominations"
    GANGS = "gangs"
    PROFILES = "profiles"
    CONFIG = "config"
    SHARDS = "shards"
    DEADLETTERS = "deadletters"


CONFIG_NAMES: dict[str, tuple[str, ...]] = {
    "Namespace": ("namespaces", "namespace", "ns"),
    "Service": ("services", "service", "svc"),
    "ReplicationController": ("replicationcontrollers", "replicationcontroller", "rc"),
    "ReplicaSet": ("replicasets", "replicaset", "rs"),
    "StatefulSet": ("statefulsets", "statefulset", "sts"),
    "Deployment": ("deployments", "deployment", "deploy"),
    "Job": ("jobs", "job"),
    "PodDisruptionBudget": ("poddisruptionbudgets", "poddisruptionbudget", "pdb"),
    "PodGroup": ("podgroups", "podgroup", "pg"),
    "Workload": ("workloads", "workload"),
    "PriorityClass": ("priorityclasses", "priorityclass", "pc"),
}
"""The kinds of configuration objects, by the names that kubectl gives them."""
OTHER_NAMES: dict[Kind, tuple[str, ...]] = {
    Kind.NODES: ("node", "no"),
    Kind.PODS: ("pod", "po"),
    Kind.DECISIONS: ("decision", "dec"),
    Kind.PENDING: (),
    Kind.NOMINATIONS: ("nomination", "nom"),
    Kind.GANGS: ("gang",),
    Kind.PROFILES: ("profile", "prof"),
    Kind.CONFIG: tuple(name for names in CONFIG_NAMES.values() for name in names),
    Kind.SHARDS: ("shard",),
    Kind.DEADLETTERS: ("deadletter", "dl"),
}
FILTERS: dict[Kind, frozenset[str]] = {
    Kind.NODES: frozenset({"name", "selector"}),
    Kind.PODS: frozenset({"namespace", "node", "phase", "selector", "gang"}),
    Kind.DECISIONS: frozenset(
        {
            "namespace",
            "node",
            "outcome",
            "shard",
            "pod",
            "since",
            "until",
            "signature",
            "profile",
            "revision",
            "order",
        }
    ),
    Kind.PENDING: frozenset({"shard"}),
    Kind.NOMINATIONS: frozenset(),
    Kind.GANGS: frozenset({"namespace"}),
    Kind.PROFILES: frozenset(),
    Kind.CONFIG: frozenset({"namespace"}),
    Kind.SHARDS: frozenset(),
    Kind.DEADLETTERS: frozenset(),
}
SORTED_BY: dict[Kind, Callable[[Json], Any]] = {
    Kind.NODES: lambda item: item["name"],
    Kind.PODS: lambda item: (item["namespace"], item["name"]),
    Kind.PROFILES: lambda item: item["name"],
}
"""The other lists have the API's order: decisions as committed, groups by size, dead letters by age."""


def kind_of(text: str) -> Kind:
    """Return the kind by its plural, singular or short name."""
    known = {name: kind for kind, others in OTHER_NAMES.items() for name in (kind.value, *others)}
    if text.lower() in known:
        return known[text.lower()]
    close = difflib.get_close_matches(text.lower(), known, 1)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise typer.BadParameter(f"{text!r} cannot be listed; allowed are {', '.join(Kind)}{meant}")


def config_kind_of(text: str) -> str | None:
    """Return the kind of configuration object that a name stands for; None: it stands for all of them."""
    return next((kind for kind, names in CONFIG_NAMES.items() if text.lower() in names), None)


def _parameters(kind: Kind, name: str | None, given: dict[str, Any]) -> dict[str, Any]:
    found = {option: value for option, value in given.items() if value is not None}
    allowed = FILTERS[kind] if name is None else FILTERS[kind] & {"namespace"}
    for option in found.keys() - allowed:
        takes = ", ".join(f"--{each}" for each in sorted(allowed)) or "no filter"
        what = kind if name is None else f"{kind} {name}"
        raise typer.BadParameter(f"--{option} does not apply to {what}; it takes {takes}")
    return found


async def _one(
    source: Source, kind: Kind, name: str, namespace: str | None, config_kind: str | None = None
) -> Json:
    """Return one of a kind by its name or id."""
    from services.cli.source import fetch, fetch_all, target

    match kind:
        case Kind.PODS:
            return dict(await fetch(source, target("/v1/pods", *split_pod(name, namespace))))
        case Kind.GANGS:
            return dict(await fetch(source, target("/v1/gangs", *split_pod(name, namespace, "gang"))))
        case Kind.NODES | Kind.DECISIONS | Kind.PROFILES | Kind.DEADLETTERS:
            return dict(await fetch(source, target(f"/v1/{kind}", name)))
        case Kind.CONFIG:
            if config_kind is None:
                raise typer.BadParameter(f"config has many kinds; say which, as in `berth get svc {name}`")
            names = (name,) if config_kind in OF_CLUSTER else split_pod(name, namespace)
            return dict(await fetch(source, target("/v1/config", config_kind, *names)))
        case Kind.SHARDS:
            for item in await fetch_all(source, "/v1/shards", None):
                if str(item["shard"]) == name:
                    return item
            raise CommandError(f"shard {name} is not known here")
        case Kind.NOMINATIONS:
            raise typer.BadParameter("nominations have no names; see `berth get pods NAMESPACE/NAME`")
        case Kind.PENDING:
            raise typer.BadParameter("groups of pending pods have no names; leave the name out")


KindName = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="nodes, pods, decisions, pending, nominations, gangs, profiles, config, shards or deadletters; "
        "or `po`; of config also namespaces, services, priorityclasses and so on.",
    ),
]
ItemName = Annotated[
    str | None, typer.Argument(metavar="NAME", help="Only this one: a name, NAMESPACE/NAME or an id.")
]
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Only this namespace (pods, gangs, decisions, …)."),
]
Selector = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--selector",
        metavar="KEY=VALUE,…",
        help="Only with these labels (nodes, pods); also `key!=value`, `key` and `!key`.",
    ),
]
NodeName = Annotated[str | None, typer.Option("--node", help="Only this node (pods, decisions).")]
Phase = Annotated[str | None, typer.Option("--phase", help="Only bound or pending pods.")]
Outcome = Annotated[str | None, typer.Option("--outcome", help="Only decisions with this outcome.")]
PodName = Annotated[str | None, typer.Option("--pod", help="Only decisions about NAMESPACE/NAME.")]
PartOfName = Annotated[str | None, typer.Option("--name", help="Only nodes whose name contains this.")]
GangName = Annotated[str | None, typer.Option("--gang", help="Only pods of the gang NAMESPACE/NAME.")]
Shard = Annotated[int | None, typer.Option("--shard", min=0, help="Only this shard (decisions, pending).")]
Signature = Annotated[
    str | None, typer.Option("--signature", help="Only decisions of this equivalence group.")
]
ProfileName = Annotated[
    str | None, typer.Option("--profile", help="Only decisions about pods that name this profile.")
]
Revision = Annotated[
    int | None, typer.Option("--revision", min=1, help="Only decisions by this revision of --profile.")
]
Since = Annotated[
    str | None, typer.Option("--since", help="Only decisions at or after this time (RFC 3339).")
]
Until = Annotated[str | None, typer.Option("--until", help="Only decisions before this time (RFC 3339).")]
Newest = Annotated[bool, typer.Option("--newest", help="Latest decisions first.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; all without it.")]
Watched = Annotated[bool, typer.Option("-w", "--watch", help="Then also print what changes, until Ctrl-C.")]


@with_settings(*CLIENT)
async def get(
    settings: Settings,
    kind_name: KindName,
    item_name: ItemName = None,
    form: Output = Format.TABLE,
    namespace: Namespace = None,
    selector: Selector = None,
    node: NodeName = None,
    phase: Phase = None,
    gang: GangName = None,
    outcome: Outcome = None,
    pod: PodName = None,
    name: PartOfName = None,
    shard: Shard = None,
    signature: Signature = None,
    profile: ProfileName = None,
    revision: Revision = None,
    since: Since = None,
    until: Until = None,
    newest: Newest = False,
    limit: Limit = None,
    watched: Watched = False,
) -> None:
    """List nodes, pods, decisions, pending groups, configuration and more, or show one of them."""
    kind, config_kind = kind_of(kind_name), config_kind_of(kind_name)
    parameters = _parameters(
        kind,
        item_name,
        {
            "namespace": namespace,
            "selector": selector,
            "node": node,
            "phase": phase,
            "gang": gang,
            "outcome": outcome,
            "pod": pod,
            "name": name,
            "shard": shard,
            "signature": signature,
            "profile": profile,
            "revision": revision,
            "since": since,
            "until": until,
            "order": "newest" if newest else None,
        },
    )
    if watched and kind is Kind.DECISIONS and (item_name or newest):
        raise typer.BadParameter("--watch prints decisions as they come; leave the id and --newest out")
    keep = labels_filter(parameters.pop("selector", None))

    from services.cli.source import fetch_all, open_source

    async with open_source(settings) as source:

        async def items() -> list[Json]:
            if item_name is not None:
                return [await _one(source, kind, item_name, namespace, config_kind)]
            found = await fetch_all(source, f"/v1/{kind}", limit, keep, kind=config_kind, **parameters)
            return sorted(found, key=SORTED_BY[kind]) if kind in SORTED_BY else found

        if watched:
            from services.cli.watch import watch_decisions, watch_list

            if kind is Kind.DECISIONS:
                await watch_decisions(source, parameters, limit, form)
            await watch_list(kind, items, form)
        elif item_name is not None and form in (Format.JSON, Format.YAML):
            output.print_value((await items())[0], form)
        else:
            output.print_items(kind, TABLES[kind], await items(), form)


def split_pod(text: str, namespace: str | None = None, what: str = "pod") -> tuple[str, str]:
    """Return namespace and name of ``NAMESPACE/NAME``; without one, it is that of ``-n``, or ``default``."""
    given, slash, name = text.rpartition("/")
    if not name or "/" in given or (slash and not given):
        raise typer.BadParameter(f"{text!r} is not a {what}; NAMESPACE/NAME is allowed")
    if given and namespace not in (None, given):
        raise typer.BadParameter(f"{text} is not in the namespace {namespace}; give one of the two")
    return given or namespace or "default", name
