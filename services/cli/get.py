"""`berth get`: what is where, what waits, and what was decided."""

from __future__ import annotations

import difflib
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from domain.model.config import OF_CLUSTER
from services.cli.labels import labels_filter
from services.cli.options import CLIENT, CommandError, check_times, moment_of, with_settings
from services.cli.output import Json
from services.cli.shapes import (
    Shape,
    Shaped,
    SortBy,
    print_document,
    print_line,
    print_list,
    shape_of,
    sorted_by,
)
from services.cli.tables import EMPTY, TABLES
from services.cli.terminal import echo
from services.config import Settings
from services.times import MOMENTS, TIMES

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
    WORKERS = "workers"
    ACTIONS = "actions"
    REPLICAS = "replicas"
    DEADLETTERS = "deadletters"
    TOTALS = "totals"


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
    "HostedReplicas": ("hostedreplicas", "hosted"),
    "CoLocationPolicy": ("policies", "policy", "colocationpolicies", "colocationpolicy", "cop"),
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
    Kind.WORKERS: ("worker",),
    Kind.ACTIONS: ("action",),
    Kind.REPLICAS: ("replica", "rep"),
    Kind.DEADLETTERS: ("deadletter", "dl"),
    Kind.TOTALS: ("total",),
}
NAMES: dict[Kind, Callable[[Json], str]] = {
    Kind.NODES: lambda item: f"node/{item['name']}",
    Kind.PODS: lambda item: f"pod/{item['namespace']}/{item['name']}",
    Kind.DECISIONS: lambda item: f"decision/{item['id']}",
    Kind.NOMINATIONS: lambda item: f"pod/{item['namespace']}/{item['name']}",
    Kind.GANGS: lambda item: f"gang/{item['namespace']}/{item['name']}",
    Kind.PROFILES: lambda item: f"profile/{item['name']}",
    Kind.CONFIG: lambda item: "/".join(filter(None, (item["kind"].lower(), item["namespace"], item["name"]))),
    Kind.SHARDS: lambda item: f"shard/{item['shard']}",
    Kind.WORKERS: lambda item: f"worker/{item['name']}",
    Kind.REPLICAS: lambda item: f"replicas/{item['namespace']}/{item['name']}",
    Kind.DEADLETTERS: lambda item: f"deadletter/{item['id']}",
}
"""What `-o name` prints, and `berth get` takes again. Pending groups, actions and totals have no name."""
FILTERS: dict[Kind, frozenset[str]] = {
    Kind.NODES: frozenset({"name", "selector", "at"}),
    Kind.PODS: frozenset({"namespace", "node", "phase", "selector", "gang", "quality", "at"}),
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
    Kind.PENDING: frozenset({"shard", "at"}),
    Kind.NOMINATIONS: frozenset(),
    Kind.GANGS: frozenset({"namespace", "at"}),
    Kind.PROFILES: frozenset({"at"}),
    Kind.CONFIG: frozenset({"namespace", "at"}),
    Kind.SHARDS: frozenset({"shard", "history"}),
    Kind.WORKERS: frozenset({"since"}),
    Kind.ACTIONS: frozenset({"node"}),
    Kind.REPLICAS: frozenset({"namespace"}),
    Kind.DEADLETTERS: frozenset(),
    Kind.TOTALS: frozenset({"at"}),
}
HISTORY_FILTERS = frozenset({"shard", "since", "until", "history"})
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


def _parameters(kind: Kind, given: dict[str, Any], names: list[str]) -> dict[str, Any]:
    found = {option: value for option, value in given.items() if value is not None}
    allowed = HISTORY_FILTERS if "history" in found and kind is Kind.SHARDS else FILTERS[kind]
    allowed = allowed & {"namespace", "at"} if names else allowed
    if kind is Kind.PROFILES and names:  # a profile keeps its revisions, each with its time
        allowed = allowed - {"at"}
    for option in found.keys() - allowed:
        takes = ", ".join(f"--{each}" for each in sorted(allowed)) or "no filter"
        what = " ".join((kind, *names))
        raise typer.BadParameter(f"--{option} does not apply to {what}; it takes {takes}")
    return found


async def _one(
    source: Source,
    kind: Kind,
    name: str,
    namespace: str | None,
    config_kind: str | None = None,
    at: str | None = None,
) -> Json:
    """Return one of a kind by its name or id, as it was at a moment."""
    from services.cli.source import fetch, fetch_all, target

    match kind:
        case Kind.PODS:
            return dict(await fetch(source, target("/v1/pods", *split_pod(name, namespace), at=at)))
        case Kind.REPLICAS:
            return dict(await fetch(source, target("/v1/replicas", *split_pod(name, namespace, "workload"))))
        case Kind.GANGS:
            return dict(await fetch(source, target("/v1/gangs", *split_pod(name, namespace, "gang"), at=at)))
        case Kind.NODES | Kind.DECISIONS | Kind.PROFILES | Kind.DEADLETTERS:
            return dict(await fetch(source, target(f"/v1/{kind}", name, at=at)))
        case Kind.CONFIG:
            if config_kind is None:
                raise typer.BadParameter(f"config has many kinds; say which, as in `berth get svc {name}`")
            names = (name,) if config_kind in OF_CLUSTER else split_pod(name, namespace)
            return dict(await fetch(source, target("/v1/config", config_kind, *names, at=at)))
        case Kind.SHARDS:
            for item in await fetch_all(source, "/v1/shards", None):
                if str(item["shard"]) == name:
                    return item
            raise CommandError(f"shard {name} is not known here")
        case Kind.WORKERS:
            for item in await fetch_all(source, "/v1/workers", None):
                if item["name"] == name:
                    return item
            raise CommandError(
                f"worker {name} was not heard of for an hour; see `berth get workers --since 1d`"
            )
        case Kind.NOMINATIONS:
            raise typer.BadParameter("nominations have no names; see `berth get pods NAMESPACE/NAME`")
        case Kind.ACTIONS:
            raise typer.BadParameter("actions have no names; see `berth get actions --node NODE`")
        case Kind.TOTALS:
            raise typer.BadParameter("totals are of the whole cluster; leave the name out")
        case Kind.PENDING:
            raise typer.BadParameter("groups of pending pods have no names; leave the name out")


KindNames = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help="nodes, pods, decisions, pending, nominations, gangs, profiles, config, shards, workers, "
        "actions, replicas, deadletters or totals; `po` or `po,no` too; of config also namespaces, services, "
        "policies, …",
    ),
]
ItemNames = Annotated[
    list[str] | None, typer.Argument(metavar="NAME…", help="Only these: a name, NAMESPACE/NAME or an id.")
]
Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", help="Only this namespace (pods, gangs, decisions, …)."),
]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="All namespaces, as without -n.")]
Selector = Annotated[
    str | None,
    typer.Option(
        "-l",
        "--selector",
        metavar="KEY=VALUE,…",
        help="Only with these labels (nodes, pods); also `key!=value`, `key` and `!key`.",
    ),
]
NodeName = Annotated[str | None, typer.Option("--node", help="Only this node (pods, decisions, actions).")]
Phase = Annotated[str | None, typer.Option("--phase", help="Only bound, orphaned or pending pods.")]
QualityName = Annotated[str | None, typer.Option("--quality", help="Only pods of quality high, mid or low.")]
Outcome = Annotated[str | None, typer.Option("--outcome", help="Only decisions with this outcome.")]
PodName = Annotated[str | None, typer.Option("--pod", help="Only decisions about NAMESPACE/NAME.")]
PartOfName = Annotated[str | None, typer.Option("--name", help="Only nodes whose name contains this.")]
GangName = Annotated[str | None, typer.Option("--gang", help="Only pods of the gang NAMESPACE/NAME.")]
Shard = Annotated[
    int | None, typer.Option("--shard", min=0, help="Only this shard (decisions, pending, history).")
]
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
    str | None,
    typer.Option("--since", metavar="TIME", help=f"Only at or after (decisions, workers, history): {TIMES}."),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only before this time (decisions, history).")
]
History = Annotated[
    bool, typer.Option("--history", help="Which worker owned which shard when, the latest first (shards).")
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="MOMENT",
        help=f"As it was then (nodes, pods, pending, gangs, profiles, config, totals): {MOMENTS}.",
    ),
]
Newest = Annotated[bool, typer.Option("--newest", help="Latest decisions first.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; all without it.")]
Watched = Annotated[bool, typer.Option("-w", "--watch", help="Then also print what changes, until Ctrl-C.")]


class Listed(NamedTuple):
    """One of the lists that `berth get` is asked for."""

    kind: Kind
    config_kind: str | None
    names: list[str]
    parameters: dict[str, Any]

    @property
    def table(self) -> str:
        """The name of its table, and of its path in the API."""
        return "owners" if "history" in self.parameters else self.kind.value

    @property
    def is_paged(self) -> bool:
        """Whether the API has it page by page."""
        return not self.names and self.kind not in (Kind.SHARDS, Kind.TOTALS)


@with_settings(*CLIENT)
async def get(
    settings: Settings,
    kinds: KindNames,
    names: ItemNames = None,
    form: Shaped = "table",
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    node: NodeName = None,
    phase: Phase = None,
    gang: GangName = None,
    quality: QualityName = None,
    outcome: Outcome = None,
    pod: PodName = None,
    name: PartOfName = None,
    shard: Shard = None,
    signature: Signature = None,
    profile: ProfileName = None,
    revision: Revision = None,
    since: Since = None,
    until: Until = None,
    history: History = False,
    at: At = None,
    newest: Newest = False,
    sort_by: SortBy = None,
    limit: Limit = None,
    watched: Watched = False,
) -> None:
    """List nodes, pods, decisions, pending groups, configuration and more, or show some of them."""
    given = {
        "namespace": namespace,
        "selector": selector,
        "node": node,
        "phase": phase,
        "gang": gang if gang is None else "/".join(split_pod(gang, namespace, "gang")),
        "quality": quality,
        "outcome": outcome,
        "pod": pod,
        "name": name,
        "shard": shard,
        "signature": signature,
        "profile": profile,
        "revision": revision,
        "since": since,
        "until": until,
        "history": history or None,
        "at": moment_of(at),
        "order": "newest" if newest else None,
    }
    if all_namespaces and (namespace is not None or names):
        raise typer.BadParameter("-A means all namespaces; leave -n and names out")
    check_times(since=since, until=until)
    shape, lists = shape_of(form), _lists(kinds, names or [], given)
    _check_form(lists, shape, watched=watched)

    from services.cli.source import open_source

    async with open_source(settings) as source:
        if watched:
            await _watch(source, lists[0], shape, limit)
        if shape.form == "jsonl" and sort_by is None and lists[0].is_paged:
            await _print_lines(source, lists[0], limit)
            return
        found = [await _items(source, each, namespace, limit) for each in lists]
    if sort_by is not None:
        found = [sorted_by(items, sort_by) for items in found]
    _print(lists, found, shape)


def _lists(kinds: str, names: list[str], given: dict[str, Any]) -> list[Listed]:
    """Return what is asked for: `po,no`, `pod web-0 web-1`, or `pod/default/web-0` as `-o name` prints it."""
    if "/" in kinds:
        kind, _, name = kinds.partition("/")
        kinds, names = kind, [name, *names]
    asked = [each for each in kinds.split(",") if each]
    if not asked or (names and len(asked) > 1):
        raise typer.BadParameter("one kind is allowed before names, or several kinds without: `po,no`")
    lists = []
    for each in asked:
        elsewhere = set().union(*(FILTERS[kind_of(other)] for other in asked)) - FILTERS[kind_of(each)]
        own = {option: value for option, value in given.items() if len(asked) == 1 or option not in elsewhere}
        parameters = _parameters(kind_of(each), own, names)
        lists.append(Listed(kind_of(each), config_kind_of(each), names, parameters))
    return lists


def _check_form(lists: list[Listed], shape: Shape, *, watched: bool) -> None:
    if shape.form == "name" and any(each.kind not in NAMES or each.table == "owners" for each in lists):
        raise typer.BadParameter("pending groups, actions, owners and totals have no names")
    if shape.form in ("csv", "jsonl") and len(lists) > 1:
        raise typer.BadParameter(f"-o {shape.form} is of one kind; leave the others out")
    if not watched:
        return
    if "at" in lists[0].parameters or lists[0].kind is Kind.TOTALS:
        raise typer.BadParameter("--watch is of what changes from now on; leave --at and totals out")
    if len(lists) > 1 or len(lists[0].names) > 1 or lists[0].table == "owners":
        raise typer.BadParameter("--watch is of one list; leave the others out")
    if shape.form in ("name", "csv", "jsonpath"):
        raise typer.BadParameter(f"--watch prints table, wide, json, jsonl or yaml, not {shape.form}")
    if lists[0].kind is Kind.DECISIONS and (lists[0].names or "order" in lists[0].parameters):
        raise typer.BadParameter("--watch prints decisions as they come; leave the id and --newest out")


async def _items(source: Source, asked: Listed, namespace: str | None, limit: int | None) -> list[Json]:
    from services.cli.source import fetch, fetch_all, target

    kind, parameters = asked.kind, dict(asked.parameters)
    if asked.names:
        at = parameters.get("at")
        return [await _one(source, kind, name, namespace, asked.config_kind, at) for name in asked.names]
    keep = labels_filter(parameters.pop("selector", None))
    if asked.table == "owners":
        del parameters["history"]
        return await fetch_all(source, "/v1/owners", limit, **parameters)
    if kind is Kind.TOTALS:
        return [dict(await fetch(source, target("/v1/totals", **parameters)))]
    if kind is Kind.SHARDS and parameters:
        return [
            item
            for item in await fetch_all(source, "/v1/shards", limit)
            if item["shard"] == parameters["shard"]
        ]
    found = await fetch_all(source, f"/v1/{kind}", limit, keep, kind=asked.config_kind, **parameters)
    return sorted(found, key=SORTED_BY[kind]) if kind in SORTED_BY else found


async def _print_lines(source: Source, asked: Listed, limit: int | None) -> None:
    """Print the items of a list as they come, in the API's order: none is held."""
    from services.cli.source import fetch_pages

    parameters = dict(asked.parameters)
    keep = labels_filter(parameters.pop("selector", None))
    path = f"/v1/{asked.kind}"
    async for page in fetch_pages(source, path, limit, keep, kind=asked.config_kind, **parameters):
        for item in page:
            print_line(item)


async def _watch(source: Source, asked: Listed, shape: Shape, limit: int | None) -> None:
    """Print a list and what changes in it, until Ctrl-C."""
    from services.cli.watch import watch_decisions, watch_list

    if asked.kind is Kind.DECISIONS:
        await watch_decisions(source, asked.parameters, limit, shape)
    await watch_list(
        asked.kind, lambda: _items(source, asked, asked.parameters.get("namespace"), limit), shape, source
    )


def _print(lists: list[Listed], found: list[list[Json]], shape: Shape) -> None:
    if shape.is_document:
        values: Any = {each.table: items for each, items in zip(lists, found, strict=True)}
        if len(lists) == 1:
            values = found[0][0] if len(lists[0].names) == 1 else found[0]
        print_document(values, shape)
        return
    for at, (each, items) in enumerate(zip(lists, found, strict=True)):
        if at and shape.form != "name":
            echo()
        title = each.config_kind or EMPTY.get(each.table, each.table)
        print_list(title, TABLES[each.table], items, shape, NAMES.get(each.kind))


def split_pod(text: str, namespace: str | None = None, what: str = "pod") -> tuple[str, str]:
    """Return namespace and name of ``NAMESPACE/NAME``; without one, it is that of ``-n``, or ``default``."""
    given, slash, name = text.rpartition("/")
    if not name or "/" in given or (slash and not given):
        raise typer.BadParameter(f"{text!r} is not a {what}; NAMESPACE/NAME is allowed")
    if given and namespace not in (None, given):
        raise typer.BadParameter(f"{text} is not in the namespace {namespace}; give one of the two")
    return given or namespace or "default", name
