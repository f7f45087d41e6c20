"""The columns of what `berth get` lists, and the short ways to write amounts and reasons in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from domain.model.config import CO_LOCATION_POLICY, HOSTED_REPLICAS
from domain.model.quantities import parse_quantity
from domain.model.selectors import LabelSelector
from services.cli.output import Column, Json, short_time
from services.phrases import plural, reason_in_words, weighted

_MIB, _GIB = 1 << 20, 1 << 30
REASONS_SHOWN_MAX = 3


def _field(name: str) -> Callable[[Json], object]:
    """Return a function that reads a field. An older API may not have the field."""
    return lambda item: item.get(name)


def moment(title: str, name: str, *, wide: bool = False) -> Column:
    """Return a column with a time: short for a person, in full for a program."""
    return Column(title, _field(name), wide=wide, keep=True, lines=lambda item: [short_time(item.get(name))])


# ------------------------------------------------------------------------------------------------- amounts


def percent(value: float | None) -> str | None:
    """Return a share as people read it; None: it is not known."""
    return None if value is None else f"{value:.1f}%"


def amounts(values: Mapping[str, str]) -> str:
    """Return ``cpu=2 memory=1Gi``."""
    return " ".join(f"{name}={value}" for name, value in values.items())


def short_amount(name: str, value: str) -> str:
    """Return an amount in about three digits: cores, Gi of memory, thousands of anything else."""
    exact = float(parse_quantity(value))
    unit = ""
    if name in ("memory", "ephemeral-storage") and exact:
        exact, unit = (exact / _GIB, "Gi") if exact >= _GIB else (exact / _MIB, "Mi")
    elif name != "cpu" and exact >= 1000:
        exact, unit = exact / 1000, "k"
    return (f"{exact:.3g}" if exact < 1000 else f"{exact:.0f}") + unit


def _of(node: Json, name: str) -> tuple[str, str]:
    return node["requested"].get(name, "0"), node["allocatable"].get(name, "0")


def _short_of(node: Json, name: str) -> str:
    """Return ``29.8/256Gi``: requested and allocatable. The unit appears once if both have the same."""
    requested, offered = (short_amount(name, value) for value in _of(node, name))
    unit = offered.lstrip("0123456789.")
    return f"{requested.removesuffix(unit) if unit else requested}/{offered}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return resource names without their domain where that is unambiguous."""
    known = list(names)
    tails = [name.rpartition("/")[2] for name in known]
    return {name: tail if tails.count(tail) == 1 else name for name, tail in zip(known, tails, strict=True)}


def _short_amounts(values: Mapping[str, str]) -> list[str]:
    names = short_names(values)
    return [" ".join(f"{names[name]}={short_amount(name, value)}" for name, value in values.items())]


def _used_column(title: str, name: str) -> Column:
    return Column(
        title, lambda node: "/".join(_of(node, name)), right=True, lines=lambda node: [_short_of(node, name)]
    )


def _others(node: Json) -> list[str]:
    return [name for name in node["allocatable"] if name not in ("cpu", "memory", "pods")]


def _used_others(node: Json) -> str:
    return " ".join(f"{name}={'/'.join(_of(node, name))}" for name in _others(node))


def _short_used_others(node: Json) -> list[str]:
    names = short_names(node["allocatable"])
    return [" ".join(f"{names[name]}={_short_of(node, name)}" for name in _others(node))]


# -------------------------------------------------------------------------------------------------- states


def taints(node: Json) -> list[str]:
    """Return ``key=value:NoSchedule`` per taint."""
    return [
        f"{each['key']}{'=' if each['value'] else ''}{each['value']}:{each['effect']}"
        for each in node["taints"]
    ]


def node_status(node: Json) -> str:
    """Return the states of a node: ``Ready``, ``NotReady,cordoned``, and so on."""
    if node["deleted"]:
        return "deleted"
    said = ["NotReady" if node["ready"] is False else "Ready"]
    said += ["cordoned"] * bool(node["unschedulable"]) + ["overcommitted"] * bool(node["overcommitted"])
    return ",".join(said)


def pod_name(item: Json) -> str:
    """Return ``namespace/name`` of what a decision is about."""
    return f"{item['pod']['namespace']}/{item['pod']['name']}"


# ------------------------------------------------------------------------------------------------- reasons


REASON = Column(
    "REASON",
    lambda item: item["reason"],
    lines=lambda item: [reason_in_words(item["reason"], item["count"])],
)


def _ordered(reasons: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda each: (-each[1], each[0]))


def reasons_in_lines(reasons: Mapping[str, int]) -> list[str]:
    """Return ``310 lack cpu`` per reason, the most frequent first, with the short names of resources."""
    parts = {part for code in reasons for part in code.split(",")}
    names = short_names({part.partition(":")[2] for part in parts if part.startswith("insufficient:")})
    lines = []
    for code, count in _ordered(reasons):
        kinds = [part.partition(":") for part in code.split(",")]
        code = ",".join(f"{kind}{colon}{names.get(detail, detail)}" for kind, colon, detail in kinds)
        lines.append(f"{count:,} {reason_in_words(code, count)}")
    return lines


def _some_reasons(group: Json) -> list[str]:
    lines = reasons_in_lines(group["reasons"])
    if not lines and group["tried_at"] is None:
        return ["not tried yet: waits its turn"]
    more = len(lines) - REASONS_SHOWN_MAX
    return lines[:REASONS_SHOWN_MAX] + [f"and {plural(more, 'more reason')}"] * (more > 0)


def _node_or_why(decision: Json) -> list[str]:
    """Return the node, or the most frequent reason why there is none."""
    if decision["node"]:
        return [decision["node"]]
    return reasons_in_lines(decision["reasons"])[:1] or [decision["reason"]]


def _raw(item: Json) -> str:
    text = item["raw_text"]
    return f"base64:{item['raw_base64']}" if text is None else str(text)


def _what_is_wrong(letter: Json) -> str:
    return f"{letter['path']}: {letter['message']}" if letter["path"] else str(letter["message"])


def _scores(profile: Json) -> list[str]:
    """Return ``2*NodeResourcesFit:MostAllocated`` per score: its weight, name and strategy."""
    lines = []
    for use in profile["spec"]["scores"]:
        strategy = use.get("args", {}).get("scoringStrategy", {}).get("type", "")
        lines.append(weighted(f"{use['name']}{':' if strategy else ''}{strategy}", use["weight"]))
    return lines


def _filters(profile: Json) -> str:
    return " ".join(use["name"] for use in profile["spec"]["filters"])


def _offsets(shard: Json) -> str:
    return " ".join(f"{at['topic']}/{at['partition']}={at['next_offset']}" for at in shard["offsets"])


def _content(item: Json) -> str:
    """Return what a configuration object says: ``app=web``, ``at least 2 of app=web``, ``value 1000``."""
    said = item["object"]
    if said is None:
        return "deleted"
    if item["kind"] == CO_LOCATION_POLICY:
        return ",".join((nodes_of(said), *(f"{name} {value}" for name, value, _ in policy_fields(said))))
    if item["kind"] == HOSTED_REPLICAS:
        return f"{said['least']} to {said['most']} of {said['kind']} {said['workload']}"
    if "selector" in said:
        selector = said["selector"]
        of = "nothing" if selector is None else str(msgspec.convert(selector, LabelSelector))
        if said.get("min_available") is not None:
            return f"at least {said['min_available']} of {of}"
        return of if said.get("max_unavailable") is None else f"all but {said['max_unavailable']} of {of}"
    if "value" in said:
        return f"value {said['value']}{', for pods that name none' if said.get('global_default') else ''}"
    return ",".join(f"{key}={value}" for key, value in sorted(said.get("labels", {}).items()))


def qos_class(item: Json) -> str | None:
    """Return ``Burstable (mid)``: the QoS class of a pod, and its quality."""
    found = item.get("qos_class")
    quality = item.get("quality")  # an older API does not say it
    return f"{found} ({quality})" if found and quality else found


def nodes_of(spec: Json) -> str:
    """Return for which nodes a policy is."""
    labels = " ".join(f"{key}={value}" for key, value in sorted(spec.get("nodeSelector", {}).items()))
    return f"nodes with {labels}" if labels else "all nodes"


def policy_fields(spec: Json, *, all_of_them: bool = False) -> Iterator[tuple[str, Any, Any]]:
    """Yield each field of a policy in which it differs from the default: name, value and default."""
    from domain.manifests.colocation_policy import FIELDS, value_of
    from domain.model.colocation import DEFAULT_POLICY

    for field in FIELDS:
        said: Any = spec
        for name in field.name.split("."):
            said = None if said is None else said.get(name)
        default = value_of(DEFAULT_POLICY, field)
        is_there = said is not None or field.name.partition(".")[0] in spec
        if is_there and (all_of_them or said != default):
            yield field.name, said, default


def spans(numbers: Iterable[int]) -> str:
    """Return ``0-3,7`` of whole numbers in their order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


DEVICES = Column("DEVICES", lambda item: ",".join(map(str, item["devices"])), wide=True)

EMPTY = {
    "replicas": "replicas; a new HostedReplicas is counted within 30 s (`replicas.step`)",
}
"""What a list without items is of, where that has to be explained."""

TABLES: dict[str, tuple[Column, ...]] = {
    "nodes": (
        Column("NAME", _field("name")),
        Column("STATUS", node_status, keep=True, coloured=True),
        _used_column("CPU", "cpu"),
        _used_column("MEMORY", "memory"),
        _used_column("PODS", "pods"),
        Column("OTHERS", _used_others, lines=_short_used_others),
        Column("VERSION", _field("version"), wide=True, right=True),
        Column("TAINTS", lambda item: " ".join(taints(item)), wide=True),
        Column("LABELS", lambda item: amounts(item["labels"]), wide=True),
    ),
    "pods": (
        Column("NAMESPACE", _field("namespace")),
        Column("NAME", _field("name")),
        Column("PHASE", _field("phase"), keep=True, coloured=True),
        Column("NODE", _field("node")),
        moment("SINCE", "since"),
        Column("REQUESTS", lambda item: amounts(item["requests"]), wide=True),
        DEVICES,
        Column("QOS CLASS", qos_class, wide=True),
        Column("LABELS", lambda item: amounts(item["labels"]), wide=True),
        Column("UID", _field("uid"), wide=True),
        Column("DECISION", _field("decision"), wide=True),
        Column("SIGNATURE", _field("signature"), wide=True),
    ),
    "decisions": (
        Column("ID", _field("id"), keep=True),
        Column("POD", pod_name),
        Column("OUTCOME", _field("outcome"), keep=True, coloured=True),
        Column("NODE OR WHY", lambda item: item["node"] or item["reason"], lines=_node_or_why),
        moment("DECIDED", "decided_at"),
        moment("RECORDED", "recorded_at"),
        moment("EVENT AT", "event_at", wide=True),
        Column("SENT BY", _field("sent_by"), wide=True),
        Column("SCORE", _field("score"), wide=True, right=True),
        Column("PROFILE", _field("profile"), wide=True),
        Column("REVISION", _field("profile_revision"), wide=True, right=True),
        Column("CYCLE", _field("cycle"), wide=True),
        Column("WARNINGS", lambda item: " ".join(item.get("warnings") or []), wide=True),
    ),
    "pending": (
        Column("COUNT", _field("count"), right=True),
        Column(
            "WHY (NODES)",
            lambda item: " ".join(f"{code}={count}" for code, count in _ordered(item["reasons"])),
            lines=_some_reasons,
        ),
        Column(
            "REQUESTS",
            lambda item: amounts(item["requests"]),
            lines=lambda item: _short_amounts(item["requests"]),
        ),
        moment("SINCE", "since"),
        Column("EXAMPLES", lambda item: " ".join(item["examples"]), lines=lambda item: item["examples"]),
        Column("UNRESOLVABLE", _field("unresolvable"), wide=True),
        Column("ATTEMPTS", lambda item: item.get("attempts"), wide=True, right=True),
        Column("GROUPS BEFORE", lambda item: item.get("groups_before"), wide=True, right=True),
        Column("PODS BEFORE", lambda item: item.get("pods_before"), wide=True, right=True),
        Column("SHARD", _field("shard"), wide=True, right=True),
        Column("PRIORITY", _field("priority"), wide=True, right=True),
        Column("PROFILE", _field("profile"), wide=True),
        Column("SIGNATURE", _field("signature"), wide=True),
    ),
    "nominations": (
        Column("POD", lambda item: f"{item['namespace']}/{item['name']}"),
        Column("PRIORITY", _field("priority"), right=True),
        Column("NODE", _field("node")),
        Column("HAVE TO LEAVE", lambda item: " ".join(item["victims"]), lines=lambda item: item["victims"]),
        moment("SINCE", "since"),
        moment("EXPIRES", "expires"),
        Column("SHARD", _field("shard"), wide=True, right=True),
        Column("UID", _field("uid"), wide=True),
    ),
    "gangs": (
        Column("GANG", lambda item: f"{item['namespace']}/{item['name']}"),
        Column("MIN", _field("min_member"), right=True),
        Column("PLACED", _field("placed"), right=True),
        Column("WAITING", _field("waiting"), right=True),
        Column("WHY THEY WAIT", _field("why")),
        moment("SINCE", "since"),
    ),
    "profiles": (
        Column("NAME", _field("name")),
        Column("REVISION", _field("revision"), right=True),
        Column(
            "SINCE",
            lambda item: "built in" if item["built_in"] else item["since"],
            lines=lambda item: ["built in" if item["built_in"] else short_time(item["since"])],
            keep=True,
        ),
        Column("FILTERS", lambda item: len(item["spec"]["filters"]), right=True),
        Column("SCORES", lambda item: " ".join(_scores(item)), lines=_scores),
        Column("FILTER NAMES", _filters, wide=True),
        Column("SENT BY", _field("sent_by"), wide=True),
        Column("RESOURCE VERSION", _field("resource_version"), wide=True, right=True),
    ),
    "config": (
        Column("KIND", _field("kind"), keep=True),
        Column("NAMESPACE", _field("namespace")),
        Column("NAME", _field("name")),
        Column(
            "WHAT IT SAYS", _content, lines=lambda item: [each.strip() for each in _content(item).split(",")]
        ),
        moment("SINCE", "since"),
        Column("SENT BY", _field("sent_by"), wide=True),
        Column("RESOURCE VERSION", _field("resource_version"), wide=True, right=True),
    ),
    "shards": (
        Column("SHARD", _field("shard"), right=True),
        Column("OWNER", _field("owner")),
        Column("EPOCH", _field("epoch"), right=True),
        moment("SINCE", "owned_since"),
        Column("DECISIONS", _field("decisions"), right=True),
        Column("PUBLISHED", _field("published"), right=True),
        Column("DEAD", _field("deadletters"), right=True),
        Column("LAG", _field("lag_records"), right=True),
        Column("LAG S", _field("lag_seconds"), right=True),
        Column("JOURNAL S", _field("journal_lag_seconds"), wide=True, right=True),
        Column("PER S", _field("decisions_per_second"), wide=True, right=True),
        Column("MOVED", _field("moved"), wide=True, right=True),
        Column("CONFLICTS", _field("conflicts"), wide=True, right=True),
        moment("LOG TIME", "log_time", wide=True),
        moment("LEASE UNTIL", "lease_until", wide=True),
        Column("RELAY", _field("relay"), wide=True),
        Column("ALARM", _field("alarm"), wide=True),
        Column("OFFSETS", _offsets, wide=True),
    ),
    "workers": (
        Column("NAME", _field("name")),
        Column("STATE", _field("state"), keep=True, coloured=True),
        Column("SHARDS", lambda item: spans(item["shards"])),
        moment("STARTED", "started"),
        moment("SEEN", "seen"),
        moment("STOPPED", "stopped"),
        Column("BUILD", _field("build")),
        Column("PER S", _field("decisions_per_second"), wide=True, right=True),
        Column("MOVED", _field("moved"), wide=True, right=True),
        Column("CONFLICTS", _field("conflicts"), wide=True, right=True),
        Column("JOURNAL S", _field("journal_lag_seconds"), wide=True, right=True),
        Column("INCARNATION", _field("incarnation"), wide=True),
    ),
    "owners": (
        Column("SHARD", _field("shard"), right=True),
        Column("OWNER", _field("owner")),
        Column("EPOCH", _field("epoch"), right=True),
        moment("FROM", "from"),
        moment("TO", "to"),
    ),
    "actions": (
        moment("AT", "at"),
        Column("NODE", _field("node"), keep=True),
        Column("ACTION", _field("action"), keep=True),
        Column("OF", lambda item: item["pod"] or f"{item['quality']} pods"),
        Column("AMOUNT", _field("amount"), right=True),
        Column("REASON", _field("reason")),
        Column("QUALITY", _field("quality"), wide=True),
        Column("TIMES", _field("times"), wide=True, right=True),
        Column("POLICY", _field("policy"), wide=True),
        Column("UID", _field("uid"), wide=True),
        Column("SENT BY", _field("sent_by"), wide=True),
        Column("ID", _field("id"), wide=True, right=True),
    ),
    "replicas": (
        Column("NAMESPACE", _field("namespace"), keep=True),
        Column("NAME", _field("name"), keep=True),
        Column("MIN", _field("min"), right=True),
        Column("MAX", _field("max"), right=True),
        Column("WANTED", _field("wanted"), right=True),
        Column("RUNS", _field("running"), right=True),
        moment("WAITS", "waiting_since"),
        Column("LOAD", lambda item: percent(item["load_percent"]), right=True),
        Column("REASON", _field("reason")),
        Column("WORKLOAD", lambda item: f"{item['workload']['kind']}/{item['workload']['name']}", wide=True),
        moment("SAID", "at", wide=True),
        Column("SEQ", _field("seq"), wide=True, right=True),
    ),
    "totals": (
        Column("NODES", _field("nodes"), right=True),
        Column("BOUND", _field("bound"), right=True),
        Column("ORPHANED", _field("orphaned"), right=True, wide=True),
        Column("PENDING", _field("pending"), right=True),
        Column("GROUPS", _field("groups"), right=True),
        _used_column("CPU", "cpu"),
        _used_column("MEMORY", "memory"),
        moment("AT", "at"),
        Column("REQUESTED", lambda item: amounts(item["requested"]), wide=True),
        Column("ALLOCATABLE", lambda item: amounts(item["allocatable"]), wide=True),
    ),
    "deadletters": (
        Column("ID", _field("id"), keep=True),
        Column("TOPIC", _field("topic"), keep=True),
        Column("OFFSET", _field("offset"), right=True),
        Column("WHAT IS WRONG", _what_is_wrong, paths=True),
        moment("AT", "at", wide=True),
        Column("CODE", _field("code"), wide=True),
        Column("SENT BY", _field("sent_by"), wide=True),
        Column("PARTITION", _field("partition"), wide=True, right=True),
        Column("KEY", _field("key"), wide=True),
        Column("RAW", _raw, wide=True),
    ),
}
