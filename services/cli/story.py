"""An explained decision as text: what happened to a pod, from what, and the candidates beside each other."""

from __future__ import annotations

from typing import Any

import typer

from services.cli import output
from services.cli.output import Column
from services.phrases import parts_in_words, reason_in_words

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
    Column(
        "REASON",
        lambda item: item["reason"],
        lines=lambda item: [reason_in_words(item["reason"], item["count"])],
    ),
)
HISTORY = (
    Column("ID", lambda item: item["id"]),
    Column("OUTCOME", lambda item: item["outcome"]),
    Column("NODE", lambda item: item["node"]),
    Column("DECIDED", lambda item: item["decided_at"]),
    Column("REASON", lambda item: item["reason"]),
)


def print_story(answer: dict[str, Any]) -> None:
    """Print what ``explained`` returned for a person."""
    pod, explanation = answer["pod"], answer["explanation"]
    typer.echo(f"pod\t{pod['namespace']}/{pod['name']}")
    where = f" on {pod['node']}" if pod["node"] else ""
    typer.echo(f"phase\t{pod['phase']}{where} since {pod['since']}")
    asks = " ".join(f"{name}={amount}" for name, amount in pod["requests"].items())
    typer.echo(f"asks\t{asks or 'nothing'}")
    group = pod["group"]
    if group is not None and group["reasons"]:
        typer.echo(f"\nwhy no node takes it, when its group was last tried ({group['tried_at']})")
        _print_reasons(group["reasons"])
    if explanation is None:
        typer.echo("\nNothing was decided for it yet.")
        return
    typer.echo(f"\n{explanation['summary']}")
    _print_inputs(explanation["decision"])
    cycle = explanation["cycle"]
    if cycle is not None:
        revision = cycle["profile_revision"]
        by = f"{cycle['profile']} " + (f"revision {revision}" if revision else "(does not exist)")
        repeated = cycle["repeated_at_generation"]
        typer.echo(
            f"\ncycle {cycle['id']}: profile {by}, seed {cycle['seed']}, generation {cycle['generation']}"
            f" looked at {cycle['looked_at'] or '-'}" + (f", repeated at {repeated}" if repeated else "")
        )
        if cycle["candidates"]:
            typer.echo("\nbest nodes, as the first pod of its group saw them")
            weighted = [{**each, "weights": cycle["weights"]} for each in cycle["candidates"]]
            output.print_table("candidates", CANDIDATES, weighted)
        scored = [each for each in cycle["candidates"] if each["inputs"] is not None]
        if scored:
            typer.echo("\nwhat they were scored from, before the pod")
            output.print_table("inputs", INPUTS, scored)
        if cycle["reasons"]:
            typer.echo("\nwhy the other nodes were not feasible then")
            _print_reasons(cycle["reasons"])
    if len(pod["decisions"]) > 1:
        typer.echo("\ndecisions, latest first")
        output.print_table("decisions", HISTORY, pod["decisions"])


def _print_inputs(decision: dict[str, Any]) -> None:
    """Say which versions of pod and node the decision is about."""
    version, node_version = decision["pod"]["resource_version"], decision["node_version"]
    node = f", node version {node_version}" if node_version is not None else ""
    typer.echo(
        f"\ndecision {decision['id']} at {decision['decided_at']}: resource version {version or '-'}{node}"
    )


def _print_reasons(reasons: dict[str, int]) -> None:
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    rows = [{"count": count, "reason": reason} for reason, count in ordered]
    output.print_table("reasons", REASONS, rows)


def _sums(sums: dict[str, Any]) -> str:
    """Return what is requested of what is offered, of real resources alone."""
    shown = {name: each for name, each in sums.items() if not name.startswith("~")}
    return " ".join(f"{name}={each['requested']}/{each['allocatable']}" for name, each in shown.items())


def _measured(usage: dict[str, Any] | None) -> str:
    """Return what was measured, in percent, and when last."""
    if usage is None or not usage["resources"]:
        return "-"
    said = []
    for resource, figures in usage["resources"].items():
        known = " ".join(f"{key}={value:g}" for key, value in figures.items() if value is not None)
        said.append(f"{resource} {known}")
    return f"{', '.join(said)} at {usage['at']}"
