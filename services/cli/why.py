"""`berth why`: why a pod, or a group of equal ones, waits, and the smallest changes that would cure it."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from services.cli import output
from services.cli.explain import print_reasons
from services.cli.get import split_pod
from services.cli.options import CLIENT, with_settings
from services.cli.output import Column, Format, Output
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural

_GROUP = re.compile("([0-9]{1,10})/([0-9a-fA-F]{32})")
CURES = (
    Column(
        "PODS",
        lambda item: f"all {item['tried']:,}" if item["all"] else f"{item['pods']:,} of {item['tried']:,}",
    ),
    Column(
        "WHAT WOULD CURE",
        lambda item: item["does"],
        lines=lambda item: [each["does"] for each in item["changes"]],
    ),
)


@with_settings(*CLIENT)
async def why(
    settings: Settings,
    name: Annotated[
        str,
        typer.Argument(
            metavar="POD|GROUP",
            help="NAMESPACE/NAME of a pod, or SHARD/SIGNATURE of a group (`berth get pending -o json`).",
        ),
    ],
    namespace: Annotated[
        str | None, typer.Option("-n", "--namespace", help="Namespace of the pod; without it, `default`.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Say why a pod waits, and what would cure it: the smallest changes found, each checked by a dry run.

    The first question reads the ledger, which takes some seconds where it is large; those that follow within
    seconds do not. Nothing is changed.
    """
    from services.cli.source import fetch, open_source, target

    group = _GROUP.fullmatch(name) if namespace is None else None
    where = (
        target("/v1/pending", *group.groups(), "why")
        if group
        else target("/v1/pods", *split_pod(name, namespace), "why")
    )
    async with open_source(settings) as source:
        answer = await fetch(source, where)
    if form is Format.JSON:
        output.print_json(answer)
    elif form is Format.YAML:
        output.print_yaml(answer)
    else:
        print_why(answer)


def print_why(answer: dict[str, Any]) -> None:
    """Print the answer for a person."""
    output.say(answer["summary"])
    if group := answer["group"]:
        output.say(_standing(group))
    if answer["reasons"]:
        echo("\nwhy no node takes it now" if answer["state"] == "waiting" else "\nwhat the other nodes lack")
        print_reasons(answer["reasons"])
    if answer["cures"]:
        echo("\nwhat would cure it, those of all pods first")
        output.print_table("cures", CURES, answer["cures"])
    if not answer["reached"]:
        output.say("\nThe search was cut off before its end: there may be smaller cures.")
    if answer["dry_runs"]:
        age = f"{answer['age_seconds']:.0f} s old"
        output.say(
            f"\n{plural(answer['dry_runs'], 'dry run')} on the ledger as of {answer['looked_at']}, {age}."
        )


def _standing(group: dict[str, Any]) -> str:
    """Return how many wait like it, for how long, how often they were tried and what stands before them."""
    others = group["count"] - 1
    said = [
        f"{plural(others, 'equal pod')} {'waits' if others == 1 else 'wait'} with it"
        if others
        else "It waits alone"
    ]
    if group["waits_seconds"] is not None:  # an API of before had it not always
        said.append(f"the oldest for {group['waits_seconds']:,} s")
    if group["attempts"] is not None:
        said.append(f"{plural(group['attempts'], 'attempt')} failed meanwhile")
        before = f"{plural(group['groups_before'], 'group')} with {plural(group['pods_before'], 'pod')}"
        said.append(
            f"{before} stand before it in shard {group['shard']}"
            if group["groups_before"]
            else "none stands before it"
        )
    return ", ".join(said) + "."
