"""`berth plan`: where would these go, and why; from files alone, nothing is written."""

from __future__ import annotations

import enum
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli import inputs, options, plan_answers
from services.cli.options import CommandError, with_settings
from services.cli.plan_answers import Answer
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural, unknown_profile

if TYPE_CHECKING:
    from domain.model.profiles import Profile
    from services.plan.capacity import Capacity
    from services.plan.plan import Plan

UNKNOWN_PROFILE_EXIT = 3
CELLS_MAX = 200_000
"""Nodes times pods up to which JSON has every node for every pod without being asked."""

PODS_DETAILED_MAX = 10
DIFFERENT_PODS_MAX = 20


class Form(enum.StrEnum):
    """The formats of `-o` here."""

    TABLE = "table"
    JSON = "json"


Details = Annotated[
    bool, typer.Option("--details", help="Show the best nodes and the reasons for every pod, however many.")
]
Replicas = Annotated[
    int | None,
    typer.Option(
        "--replicas", min=1, metavar="N", help="Place N copies of each waiting pod, N pods of each workload."
    ),
]
HowMany = Annotated[
    bool,
    typer.Option(
        "--how-many", help="Say how many more of each waiting pod fit, and what stops the next one."
    ),
]
Diff = Annotated[
    str | None,
    typer.Option(
        "--diff",
        metavar="PROFILE",
        help="Place with this profile too, a file or a built-in one, and compare.",
    ),
]
Output = Annotated[Form, typer.Option("-o", "--output", help="How to show the answer.")]


@with_settings("seed")
def plan(
    settings: Settings,
    files: inputs.Files,
    profile: inputs.ProfileFile = None,
    output: Output = Form.TABLE,
    details: Details = False,
    replicas: Replicas = None,
    how_many: HowMany = False,
    diff: Diff = None,
) -> None:
    """Say where pods would go, and why, without any server.

    The worker's own scheduler decides: all waiting pods at once, by priority and then in the order of the
    files. Manifests of all files make one cluster. Deployments and other workloads become the pods that
    their controllers would make. A scenario is a cluster of its own; the pods of its `schedule` come one by
    one.

    A table says what it comes to, and up to 10 pods one by one; --details shows every pod. JSON is a list
    with an object per pod. It has every node (feasible, infeasible, scores) for a scenario, and for
    manifests up to 200,000 pods times nodes; beyond that it has counts per reason and the best nodes, and
    every node only with --details.

    The exit code is 0 also where pods find no node, 1 where the input makes no sense, and 3 where a pod
    names a profile that does not exist: it waits, as with a worker, and the others are planned.
    """
    if how_many and (diff or replicas):
        raise typer.BadParameter("--how-many goes with neither --diff nor --replicas")
    chosen = None if profile is None else inputs.profile_of(profile)
    scenarios, objects = inputs.read(files)
    if scenarios and (replicas or how_many or diff):
        raise CommandError(
            f"{scenarios[0][0]}: is a scenario, which says itself what comes; "
            "--replicas, --how-many and --diff are for manifests"
        )
    with inputs.patience():
        if how_many:
            plan_answers.print_capacities(_capacities(objects, chosen, settings.seed), output is Form.JSON)
            return
        if diff:
            answer = inputs.planned_manifests(objects, chosen, settings.seed, replicas)
            other_profile = inputs.profile_of(diff)
            other = inputs.planned_manifests(objects, other_profile, settings.seed, replicas, told=True)
            plan_answers.print_diff(answer, other, profile or "the pods' own", diff, output is Form.JSON)
            unknown = _unknown_profiles(answer)
        else:
            unknown = Counter[str]()
            answers = _answers(scenarios, objects, chosen, settings.seed, replicas, unknown)
            is_named = len(scenarios) + bool(objects.files) > 1
            if output is Form.JSON:
                is_whole = partial(_shows_every_node, details=details)
                plan_answers.write_json(sys.stdout, answers, is_whole, is_named=is_named)
            else:
                plan_answers.print_tables(
                    answers, details=details, detailed_max=PODS_DETAILED_MAX, is_named=is_named
                )
    if unknown:
        echo(f"error: {_no_such_profiles(unknown)}", err=True)
        raise typer.Exit(UNKNOWN_PROFILE_EXIT)


def _answers(
    scenarios: Sequence[tuple[str, Any]],
    objects: inputs.Objects,
    profile: Profile | None,
    seed: int,
    replicas: int | None,
    unknown: Counter[str],
) -> Iterator[Answer]:
    """Plan one scenario after another, then all manifests: a plan holds a whole cluster, so there is one.

    ``unknown`` counts the pods whose profile does not exist.
    """
    from services.plan.scenario import placed_scenario, unread

    for place, value in scenarios:
        with inputs.at(place):
            placed, planned = placed_scenario(value, seed=seed, profile=profile)
        options.warn(f"{place}: {text}" for text in unread(value))
        answer = Answer(place, placed, planned, True)
        unknown.update(_unknown_profiles(answer))
        yield answer
        del placed, planned, answer
    if objects.files:
        answer = inputs.planned_manifests(objects, profile, seed, replicas)
        unknown.update(_unknown_profiles(answer))
        yield answer


def _shows_every_node(answer: Answer, *, details: bool) -> bool:
    """Return whether JSON has every node of a plan; say so where it has not."""
    cells = len(answer.planned) * answer.plan.state.table.count
    if details or answer.is_scenario or cells <= CELLS_MAX:
        return True
    echo(
        f"{cells:,} pods times nodes are more than {CELLS_MAX:,}: each pod has counts and the best "
        "nodes; --details gives every node",
        err=True,
    )
    return False


def _unknown_profiles(answer: Answer) -> Counter[str]:
    """Count the pods of each profile that does not exist."""
    waiting = (each.attempt.reasons_at_failure for each in answer.planned if each.node is None)
    return Counter(name for name in map(unknown_profile, waiting) if name is not None)


def _no_such_profiles(unknown: Counter[str]) -> str:
    from domain.model.profiles import BUILT_IN_PROFILES

    named = ", ".join(f"{name} ({plural(count, 'pod')})" for name, count in unknown.items())
    return (
        f"no such profile: {named}; built in are {', '.join(BUILT_IN_PROFILES)}, others are given with -f, "
        "or --profile for all pods"
    )


def _capacities(objects: inputs.Objects, profile: Profile | None, seed: int) -> list[tuple[Plan, Capacity]]:
    """Count for each different waiting pod how many fit into the cluster alone."""
    from services.plan.capacity import how_many
    from services.plan.workloads import expand

    with inputs.at(""):
        counted = [each for each in objects.given if each.manifest["kind"] != "DaemonSet"]
        given = expand(counted, 1)
        waiting = inputs.plan_of(given, profile, seed).fold_bound()
        different = list({pod.signature: pod for pod in reversed(waiting)}.values())[::-1]
        if not 0 < len(different) <= DIFFERENT_PODS_MAX:
            raise CommandError(
                f"--how-many counts up to {DIFFERENT_PODS_MAX} different pods without spec.nodeName; "
                f"there are {len(different)}"
            )
        options.warn(objects.warnings)
        plans = [inputs.plan_of(given, profile, seed) for _ in different]
        return [(made, how_many(made, pod)) for made, pod in zip(plans, different, strict=True)]
