"""How `berth plan` shows its answers: a summary, pod by pod, or JSON that is written as it is made."""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import msgspec

from services.cli.output import Column, Json, on_terminal, print_json, print_table, say
from services.cli.tables import REASON
from services.cli.terminal import echo
from services.phrases import (
    devices_in_words,
    gang_in_words,
    parts_in_words,
    plural,
    reason_in_words,
    reasons_in_words,
    rule_in_words,
    weighted,
    why_evicted,
)

if TYPE_CHECKING:
    from domain.engine.evaluate import Verdict
    from domain.model.decisions import Attempt
    from services.plan.capacity import Capacity
    from services.plan.plan import Plan, Planned
    from services.plan.summary import Summary

NODES_SHOWN_MAX = 5
MOVED_SHOWN_MAX = 10
REASONS_SHOWN_MAX = 5
RULES_SHOWN_MAX = 5
DOMAINS_SHOWN_MAX = 8


class Answer(NamedTuple):
    """The plan of one scenario, or of all manifests together."""

    name: str
    plan: Plan
    planned: list[Planned]
    is_scenario: bool


def write_json(
    stream: TextIO, answers: Iterable[Answer], is_whole: Callable[[Answer], bool], *, is_named: bool
) -> None:
    """Write a list of pods, or of files with their pods, pod by pod, without keeping it in memory.

    ``is_whole`` says of an answer whether its pods have every node, ``is_named`` whether there are files.
    """
    before = "["
    for answer in answers:
        if not is_named:
            _write_list(stream, _pods(answer, is_whole(answer)))
            stream.write("\n")
            return
        stream.write(f'{before}\n{{"file":{_dumps(answer.name)},"pods":')
        _write_list(stream, _pods(answer, is_whole(answer)))
        stream.write("}")
        before = ","
        del answer  # before the next one is planned
    stream.write("\n]\n")


def _write_list(stream: TextIO, items: Iterable[object]) -> None:
    before = "[\n"
    for item in items:
        stream.write(before + _dumps(item))
        before = ",\n"
    stream.write("[]" if before == "[\n" else "\n]")


def _pods(answer: Answer, every_node: bool) -> Iterator[object]:
    from services.plan.summary import compact, full

    if every_node:
        yield from map(full, answer.plan.verdicts())
    else:
        yield from map(compact, answer.planned)


def _dumps(value: object) -> str:
    import orjson

    return orjson.dumps(value).decode()


# ---------------------------------------------------------------------------------------------- summary


def print_tables(answers: Iterable[Answer], *, details: bool, detailed_max: int, is_named: bool) -> None:
    """Print the summary of each plan, and then some pods, or all of them, one by one."""
    for answer in answers:
        if is_named:
            echo(f"{answer.name}:\n")
        is_short = len(answer.planned) <= detailed_max
        if not is_short:
            _show_summary(answer)
        if details or is_short:
            attempts = {each.pod.key: each.attempt for each in answer.planned}
            for verdict in answer.plan.verdicts():
                _show(verdict, attempts[verdict.pod])
        del answer  # before the next one is planned


def _show_summary(answer: Answer) -> None:
    from services.plan.summary import WAITING_MAX, in_units, summarise

    found = summarise(answer.plan.state, answer.planned)
    echo(
        f"{found.placed_count:,} of {plural(found.pods_count, 'pod')} placed, on "
        f"{found.nodes_used_count:,} of {plural(found.nodes_count, 'node')}\n"
    )
    _show_pools(found)
    waiting_count = found.pods_count - found.placed_count
    if waiting_count:
        echo(f"\n{plural(waiting_count, 'pod')} {'waits' if waiting_count == 1 else 'wait'}:")
    for each in found.waiting[:WAITING_MAX]:
        such = f"{each.pods_count:,}, such as {each.example}" if each.pods_count > 1 else each.example
        why = _why(each.reasons, each.nodes_count)
        _say(f"{such}: {gang_in_words(each.gang, why) if each.gang else why}", "  ")
    if (more := sum(each.pods_count for each in found.waiting[WAITING_MAX:])) > 0:
        echo(f"  {more:,} for other reasons; --details shows every pod")
    if found.short_of:
        echo("")
        _say(f"short of: {', '.join(in_units(*each) for each in found.short_of.items())}")
        free = ", ".join(in_units(*each) for each in found.free.items())
        _say(f"(that much the waiting pods ask for; free, on all nodes together: {free})")


def _why(reasons: Mapping[str, int], nodes_count: int) -> str:
    """Return why a pod waits. Nodes are not counted if all have the same reason."""
    if not reasons or "no-nodes" in reasons:
        return "there is no node"
    if list(reasons.values()) == [nodes_count] and nodes_count > 1:
        text = f"all nodes {reason_in_words(next(iter(reasons)))}"
        return text.replace("all nodes were not tried", "no node was tried")
    return reasons_in_words(reasons, REASONS_SHOWN_MAX)


def _say(text: str, indent: str = "") -> None:
    """Print a sentence, in lines of 80 columns."""
    lines = textwrap.wrap(
        text, 80, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )
    echo("\n".join(lines))


def _show_pools(found: Summary) -> None:
    resources = list(dict.fromkeys(name for pool in found.pools for name in pool.used))
    columns = [
        Column("POOL", lambda pool: pool["name"]),
        Column("NODES", lambda pool: pool["nodes"], right=True),
        Column("PLACED", lambda pool: pool["placed"], right=True),
        *(Column(name.rpartition("/")[2].upper(), _percent(name), right=True) for name in resources),
    ]
    if found.grouped_by:
        echo(f"node pools by {found.grouped_by}; requested of each resource:")
    else:
        echo("node pools by what their nodes offer; requested of each resource:")
    print_table("nodes", columns, [
        {"name": pool.name, "nodes": pool.nodes_count, "placed": pool.placed_count, "used": pool.used}
        for pool in found.pools
    ])  # fmt: skip


def _percent(resource: str) -> Any:
    def read(pool: Json) -> object:
        return f"{pool['used'][resource]:.0f}%" if resource in pool["used"] else None

    return read


# ------------------------------------------------------------------------------------ how many, compared


def print_capacities(found: Sequence[tuple[Plan, Capacity]], as_json: bool) -> None:
    """Print how many more of each pod fit, where, and what stops the next one."""
    from services.plan.summary import apart, pool_names

    answers = []
    for plan, capacity in found:
        _, names = pool_names(plan.state.table.specs)
        rows = plan.state.table.rows
        pools = Counter(names[rows[each.node]] for each in capacity.placed if each.node is not None)
        stopped = capacity.stopped_by
        answers.append(
            {
                "pod": capacity.pod.key,
                "count": len(capacity.placed),
                "is_all": stopped is not None,
                "nodes": len({each.node for each in capacity.placed}),
                "pools": dict(pools.most_common()),
                "stopped_by": {} if stopped is None else stopped.reasons_at_failure,
            }
        )
        if not as_json:
            _show_capacity(
                answers[-1],
                "" if stopped is None else _why(apart(stopped.reasons_at_failure), stopped.nodes_count),
            )
    if as_json:
        print_json(answers)


def _show_capacity(answer: Json, why: str) -> None:
    least = "" if answer["is_all"] else "at least "
    where = f" on {plural(answer['nodes'], 'node')}" if answer["count"] else ""
    echo(f"{answer['pod']}: {least}{answer['count']:,} more fit{where}")
    for pool, count in list(answer["pools"].items())[:NODES_SHOWN_MAX]:
        echo(f"  {count:,} on {pool}")
    if (more := len(answer["pools"]) - NODES_SHOWN_MAX) > 0:
        echo(f"  and {plural(more, 'pool')} more")
    if why:
        _say(f"the next one waits: {why}", "  ")


def print_diff(before: Answer, after: Answer, before_name: str, after_name: str, as_json: bool) -> None:
    """Print the pods that another profile places elsewhere, pods per node pool, and the imbalance of cpu."""
    from services.plan.summary import imbalance, pool_names

    label, names = pool_names(before.plan.state.table.specs)
    rows = before.plan.state.table.rows
    nodes = [{each.pod.key: each.node for each in answer.planned} for answer in (before, after)]
    moved = [
        {"pod": key, "node": node, "other_node": nodes[1].get(key)}
        for key, node in nodes[0].items()
        if nodes[1].get(key) != node
    ]
    counts = [Counter(names[rows[node]] for node in each.values() if node is not None) for each in nodes]
    pools = {
        name: [count[name] for count in counts]
        for name in dict.fromkeys(names)
        if counts[0][name] or counts[1][name]
    }
    found: Json = {
        "profile": before_name,
        "other_profile": after_name,
        "pods": len(before.planned),
        "placed": [sum(count.values()) for count in counts],
        "cpu_imbalance_percent": [imbalance(answer.plan.state) for answer in (before, after)],
        "pools": pools,
        "moved": moved,
    }
    if as_json:
        print_json(found)
    else:
        _show_diff(found, label or "what their nodes offer")


def _show_diff(found: Json, grouped_by: str) -> None:
    moved, (placed, other_placed) = found["moved"], found["placed"]
    echo(
        f"{len(moved):,} of {plural(found['pods'], 'pod')} would go elsewhere with {found['other_profile']} "
        f"than with {found['profile']}\n"
    )
    columns = [
        Column("", lambda item: item["what"]),
        Column("NOW", lambda item: item["now"], right=True),
        Column("OTHER", lambda item: item["other"], right=True),
    ]
    spread = [f"{value:.1f}" for value in found["cpu_imbalance_percent"]]
    lines = [("pods placed", placed, other_placed), ("imbalance of cpu, std in %", *spread)]
    most = sorted(found["pools"].items(), key=lambda item: -max(item[1]))[:MOVED_SHOWN_MAX]
    lines += [(f"on {name}", *counts) for name, counts in most]
    print_table("", columns, [{"what": what, "now": now, "other": other} for what, now, other in lines])
    echo(f"(node pools by {grouped_by})")
    for each in moved[:MOVED_SHOWN_MAX]:
        echo(f"{each['pod']}: {each['node'] or 'waits'} -> {each['other_node'] or 'waits'}")
    if (more := len(moved) - MOVED_SHOWN_MAX) > 0:
        echo(f"and {more:,} more; -o json lists all")


# ------------------------------------------------------------------------------------------- pod by pod


def _show(verdict: Verdict, attempt: Attempt) -> None:
    """Print one verdict: the node, the best nodes, the refused nodes."""
    nodes_count = len(verdict.feasible) + len(verdict.infeasible)
    found = f"{len(verdict.feasible):,} of {plural(nodes_count, 'node')} feasible"
    if verdict.node is None or verdict.victims:
        held = f", held by {', '.join(verdict.held_by)}" if verdict.held_by else ""
        say(f"{verdict.pod}: {verdict.outcome.value}{held} ({found})")
    else:
        on = f"{devices_in_words(verdict.devices)} of {verdict.node}" if verdict.devices else verdict.node
        say(f"{verdict.pod}: to {on}, score {verdict.scores[verdict.node]:.6g} ({found})")
    if verdict.gang:
        _say(gang_in_words(verdict.gang, _why(attempt.reasons_at_failure, attempt.nodes_count)))
    if verdict.feasible:
        _show_nodes(verdict)
    reasons = Counter(verdict.infeasible.values())
    if reasons:
        hopeless = Counter(verdict.infeasible[name] for name in verdict.unresolvable)
        print_table("refusals", REFUSED, [
            {"count": count, "reason": reason, "evict": _evicting_helps(count, hopeless[reason])}
            for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ])  # fmt: skip
    for rule in verdict.rules[:RULES_SHOWN_MAX]:
        shown = islice(rule.domains.items(), DOMAINS_SHOWN_MAX)
        echo(rule_in_words(msgspec.structs.replace(rule, domains=dict(shown))))
    _show_preemption(verdict)
    echo("")


def _show_preemption(verdict: Verdict) -> None:
    """Print which pods would have to leave so that a pod finds a node, and why that node."""
    if verdict.gang:
        for each in verdict.evictions:
            without = f"without {', '.join(each.victims)}" if each.victims else "as it is"
            _say(f"with its gang it would get {each.node} {without}")
        if not verdict.evictions and verdict.eligible_to_preempt:
            echo("its gang could start without it, if pods of lower priority were evicted")
        elif not verdict.evictions:
            echo("no pod would be evicted for its gang")
        return
    if not verdict.feasible and not verdict.eligible_to_preempt:
        echo("it may not preempt, so no pod would be evicted for it")
    if not verdict.evictions:
        return
    best, *others = verdict.evictions
    nodes_count = plural(len(verdict.victims), "node")
    if best.victims:
        _say(f"{best.node} would take it without {', '.join(best.victims)}: {why_evicted(best, others[:1])}")
    else:
        echo(f"{best.node} takes it once the pods are gone that leave it already")
    echo(f"evicting pods of lower priority would help on {nodes_count}:")
    print_table("nodes", EVICTED, [msgspec.to_builtins(each) for each in verdict.evictions])


def _evicting_helps(count: int, hopeless: int) -> str:
    """Return whether evicting pods could make room: on no node, on all, or on so many of them."""
    if hopeless in (0, count):
        return "no" if hopeless else "yes"
    return f"on {count - hopeless:,}"


def _show_nodes(verdict: Verdict) -> None:
    """Print the chosen node and the next best ones, with a column per score."""
    others = sorted(
        (name for name in verdict.feasible if name != verdict.node), key=lambda name: -verdict.scores[name]
    )
    shown = ([] if verdict.node is None else [verdict.node]) + others
    labels = list(verdict.score_parts[shown[0]])
    columns = [Column("NODE", lambda item: item["node"])]
    if labels:
        columns.append(Column("SCORE", lambda item: item["score"], right=True))
    heads = [weighted(label, verdict.weights[label]) for label in labels]
    if on_terminal() and len("  ".join(heads)) > shutil.get_terminal_size().columns // 2:
        columns.append(Column("PARTS", lambda item: " ".join(parts_in_words(item["parts"], verdict.weights))))
    else:
        columns += [Column(head, _part(label), right=True) for head, label in zip(heads, labels, strict=True)]
    print_table("nodes", columns, [
        {"node": name, "score": verdict.scores[name], "parts": verdict.score_parts[name]}
        for name in shown[:NODES_SHOWN_MAX]
    ])  # fmt: skip


def _part(label: str) -> Any:
    def read(item: Json) -> object:
        return item["parts"][label]

    return read


EVICTED = (
    Column("NODE", lambda item: item["node"]),
    Column("VIOLATIONS", lambda item: item["violations"], right=True),
    Column("HIGHEST PRIORITY", lambda item: item["highest_priority"], right=True),
    Column("SUM", lambda item: item["priorities_sum"], right=True),
    Column("VICTIMS", lambda item: ", ".join(item["victims"])),
)
REFUSED = (
    Column("REFUSED", lambda item: item["count"], right=True),
    REASON,
    Column("EVICTING COULD HELP", lambda item: item["evict"]),
)
