"""`berth explain`: why a pod is where it is, or waits, or waited; and why a decision was what it was."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Annotated, Any

import typer

from services.cli import output
from services.cli.get import split_pod
from services.cli.options import CLIENT, moment_of, with_settings
from services.cli.output import Column, Format, Output
from services.cli.tables import REASON
from services.cli.terminal import echo
from services.cli.verify import print_case, verify_decision
from services.config import Settings
from services.phrases import devices_in_words, parts_in_words, reasons_in_words, unknown_profile
from services.times import MOMENTS

CANDIDATES = (
    Column("NODE", lambda item: item["node"]),
    Column("SCORE", lambda item: item["score"], right=True),
    Column("PARTS", lambda item: " ".join(parts_in_words(item["parts"], item["weights"]))),
)
INPUTS = (
    Column("NODE", lambda item: item["node"]),
    Column("VERSION", lambda item: item["inputs"]["node_version"], right=True),
    Column("REQUESTED", lambda item: _sums(item["inputs"]["sums"])),
    Column("MEASURED", lambda item: _measured(item["inputs"]["usage"])),
)
REASONS = (
    Column("NODES", lambda item: item["count"], right=True),
    REASON,
)
HISTORY = (
    Column("ID", lambda item: item["id"], keep=True),
    Column("OUTCOME", lambda item: item["outcome"]),
    Column("NODE", lambda item: item["node"]),
    Column("DECIDED", lambda item: item["decided_at"], keep=True),
    Column("REASON", lambda item: item["reason"]),
)


PLACEMENTS = (
    Column("NODE", lambda item: item["node"]),
    Column("FROM", lambda item: item["from"], keep=True),
    Column("TO", lambda item: item["to"], keep=True),
    Column("DECISION", lambda item: item["decision"]),
)
ATTEMPTS = (
    Column("SINCE", lambda item: item["since"], keep=True),
    Column("UNTIL", lambda item: item["until"], keep=True),
    Column("TIMES", lambda item: item["times"], right=True),
    Column("NODES", lambda item: item["nodes"], right=True),
    Column("REASONS", lambda item: reasons_in_words(item["reasons"])),
)


class Explained(enum.StrEnum):
    """What `berth explain` explains."""

    POD = "pod"
    DECISION = "decision"


@with_settings(*CLIENT)
async def explain(
    settings: Settings,
    kind: Annotated[Explained, typer.Argument(help="What to explain.")],
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="NAMESPACE/NAME of the pod, or the decision's id: 0-17.")
    ],
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Namespace of the pod; without it, `default`.")
    ] = None,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="MOMENT", help=f"Why the pod was refused then: {MOMENTS}."),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Plan the decision again from the log, and compare it byte by byte."),
    ] = False,
    as_case: Annotated[
        bool,
        typer.Option(
            "--as-case",
            help="Print the state just before the decision as a scenario that `berth plan` answers alike.",
        ),
    ] = False,
    form: Output = Format.TABLE,
) -> None:
    """Say why a pod is where it is, why it waits or waited, or why a decision was what it was.

    --verify plans a decision again, as `berth replay` does with whole spans: exit code 1 where it differs, or
    where the journal, a checkpoint or the log no longer reach back to it. --as-case prints what was planned
    with: nodes, placed pods, the profile and the pods that waited. Both read the ledger and the log
    themselves, not through the API.
    """
    from services.cli.source import fetch, open_source, target

    if verify and as_case:
        raise typer.BadParameter("--verify and --as-case are two questions")
    if as_case:
        await print_case(settings, decision_of(kind, name, "--as-case"), form)
        return
    if verify:
        await verify_decision(settings, decision_of(kind, name, "--verify"), form)
        return
    if at is not None and kind is not Explained.POD:
        raise typer.BadParameter("--at is for pods; a decision has its own time")
    at = moment_of(at)
    pod = split_pod(name, namespace) if kind is Explained.POD else ("", "")
    async with open_source(settings) as source:
        if kind is Explained.DECISION:
            answer = await fetch(source, target("/v1/decisions", name, "explanation"))
            show: Callable[[dict[str, Any]], None] = _print_decision
        elif at is not None:
            answer = await fetch(source, target("/v1/pods", *pod, "attempts", at=at))
            show = _print_attempts
        else:
            answer = await explained(source, *pod)
            show = print_pod
    if form is Format.JSON:
        output.print_json(answer)
    elif form is Format.YAML:
        output.print_yaml(answer)
    else:
        show(answer)


def decision_of(kind: Explained, name: str, option: str) -> tuple[int, int]:
    """Return shard and seq of the decision that is named."""
    if kind is not Explained.DECISION:
        raise typer.BadParameter(f"{option} is for decisions")
    shard, _, seq = name.partition("-")
    if not (shard.isdecimal() and seq.isdecimal()):
        raise typer.BadParameter("a decision's id is its shard and its number, such as 0-17")
    return int(shard), int(seq)


async def explained(source: Any, namespace: str, name: str) -> dict[str, Any]:
    """Return a pod with its gang, the explanation of its latest decision, and what refused it.

    Where it is held because the profile that it names does not exist, ``profiles`` names those that do.
    """
    from services.cli.source import fetch, fetch_all, target

    pod = await fetch(source, target("/v1/pods", namespace, name))
    explanation = None
    if pod["decisions"]:
        latest = pod["decisions"][0]["id"]
        explanation = await fetch(source, target("/v1/decisions", latest, "explanation"))
    attempts = await fetch(source, target("/v1/pods", namespace, name, "attempts"))
    gang = await fetch(source, target("/v1/gangs", *pod["gang"].split("/"))) if pod.get("gang") else None
    profiles = None
    if pod["phase"] == "pending" and attempts["items"] and unknown_profile(attempts["items"][-1]["reasons"]):
        profiles = [each["name"] for each in await fetch_all(source, "/v1/profiles", None)]
    return {
        "pod": pod,
        "gang": gang,
        "explanation": explanation,
        "attempts": attempts,
        "profiles": profiles,
    }


def print_pod(answer: dict[str, Any]) -> None:
    """Print the answer of ``explained`` for a person."""
    pod, explanation, attempts = answer["pod"], answer["explanation"], answer["attempts"]
    echo(f"pod\t{pod['namespace']}/{pod['name']}")
    where = f" on {pod['node']}" if pod["node"] else ""
    echo(f"phase\t{pod['phase']}{where} since {pod['since']}")
    asks = " ".join(f"{name}={amount}" for name, amount in pod["requests"].items())
    echo(f"{'held' if pod['phase'] == 'released' else 'asks'}\t{asks or 'nothing'}")
    if pod.get("quality"):  # an older API does not say it
        echo(f"quality\t{pod['quality']}: {pod['qos_class']}")
    if gang := answer["gang"]:
        least = "there is no PodGroup" if gang["min_member"] is None else f"at least {gang['min_member']:,}"
        echo(f"gang\t{pod['gang']}: {least}, {gang['placed']:,} placed, {gang['waiting']:,} waiting")
        if gang["missing"]:
            more = f"{gang['found']:,} more would have had a node" if gang["found"] else "no other had a node"
            output.say(f"\nAt the last try of its gang {gang['missing']} found no node; {more}.")
    if pod["phase"] == "pending":
        output.say(f"\n{attempts['summary']}")
    if answer["profiles"] is not None:
        output.say(f"Profiles that exist: {', '.join(answer['profiles'])}.")
    if attempts["items"]:
        echo("\nwhy no node took it while it waited")
        output.print_table("attempts", ATTEMPTS, attempts["items"])
    if explanation is None:
        echo("\nNothing was decided for it yet.")
        return
    echo(f"\nwhat was decided last, at {explanation['decision']['decided_at']}")
    print_explanation(explanation)
    if pod["placements"]:
        echo("\nwhere it was, latest first")
        output.print_table("placements", PLACEMENTS, pod["placements"])
    if len(pod["decisions"]) > 1:
        echo("\ndecisions, latest first")
        output.print_table("decisions", HISTORY, pod["decisions"])


def _print_decision(explanation: dict[str, Any]) -> None:
    if explanation.get("quality"):
        echo(f"quality\t{explanation['quality']}: {explanation['template']['qos_class']}")
    print_explanation(explanation)


def _print_attempts(attempts: dict[str, Any]) -> None:
    output.say(attempts["summary"])
    for each in attempts["items"]:
        echo("")
        print_reasons(each["reasons"])


def print_explanation(explanation: dict[str, Any]) -> None:
    """Print an explained decision for a person."""
    output.say(explanation["summary"])
    _print_inputs(explanation["decision"])
    if explanation["reasons"]:
        refused = "the other nodes did not take" if explanation["decision"]["node"] else "no node took"
        echo(f"\nwhy {refused} it")
        print_reasons(explanation["reasons"])
    cycle = explanation["cycle"]
    if cycle is None:
        return
    revision = cycle["profile_revision"]
    by = f"{cycle['profile']} " + (f"revision {revision}" if revision else "(does not exist)")
    repeated = cycle["repeated_at_generation"]
    output.say(
        f"\ncycle {cycle['id']}: profile {by}, seed {cycle['seed']}, generation {cycle['generation']}"
        f" looked at {cycle['looked_at'] or '-'}"
        + (f", {cycle['nodes_home']:,} home nodes of {cycle['nodes']:,}" if cycle["nodes_home"] else "")
        + (f", repeated at {repeated}" if repeated else "")
    )
    if cycle["candidates"]:
        echo("\nbest nodes, as the first pod of its group saw them")
        weighted = [{**each, "weights": cycle["weights"]} for each in cycle["candidates"]]
        output.print_table("candidates", CANDIDATES, weighted)
    scored = [each for each in cycle["candidates"] if each["inputs"] is not None]
    if scored:
        echo("\nwhat they were scored from, before the pod")
        output.print_table("inputs", INPUTS, scored)


def _print_inputs(decision: dict[str, Any]) -> None:
    """Print the decision's id and time, the versions of pod and node that it saw, and who sent the event."""
    version, node_version = decision["pod"]["resource_version"], decision["node_version"]
    node = f", node version {node_version}" if node_version is not None else ""
    if decision.get("devices"):
        output.say(f"\n{devices_in_words(decision['devices'])} of {decision['node']}")
    output.say(
        f"\ndecision {decision['id']} at {decision['decided_at']}: resource version {version or '-'}{node}"
        f", sent by {decision.get('sent_by') or '-'}"
    )


def print_reasons(reasons: dict[str, int]) -> None:
    """Print how many nodes gave each reason, the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    rows = [{"count": count, "reason": reason} for reason, count in ordered]
    output.print_table("reasons", REASONS, rows)


def _sums(sums: dict[str, Any]) -> str:
    """Return requested and offered amounts of the real resources."""
    shown = {name: each for name, each in sums.items() if not name.startswith("~")}
    return " ".join(f"{name}={each['requested']}/{each['allocatable']}" for name, each in shown.items())


def _measured(usage: dict[str, Any] | None) -> str:
    """Return the measured percentages, and the time of the last measurement."""
    if usage is None or not usage["resources"]:
        return "-"
    said = []
    for resource, figures in usage["resources"].items():
        known = " ".join(f"{key}={value:g}" for key, value in figures.items() if value is not None)
        said.append(f"{resource} {known}")
    return f"{', '.join(said)} at {usage['at']}"
