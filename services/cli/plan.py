"""`berth plan`: where would these go, and why; from files alone, nothing is written."""

from __future__ import annotations

import enum
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from services.cli import documents, options, plan_answers
from services.cli.options import CommandError, with_settings
from services.cli.plan_answers import Answer
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural

if TYPE_CHECKING:
    from domain.model.profiles import Profile
    from services.plan.capacity import Capacity
    from services.plan.kinds import Skipped
    from services.plan.objects import Given
    from services.plan.plan import Plan

UNKNOWN_PROFILE_EXIT = 3
CELLS_MAX = 200_000
"""Nodes times pods up to which JSON has every node for every pod without being asked."""

PODS_DETAILED_MAX = 10
DIFFERENT_PODS_MAX = 20
_SILENT_SECONDS_MAX = 3.0


class Form(enum.StrEnum):
    """The formats of `-o` here."""

    TABLE = "table"
    JSON = "json"


Files = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--filename",
        metavar="FILE",
        help="Manifests of nodes, pods and workloads (YAML or JSON; pods with spec.nodeName are bound, the "
        "others are placed), lists and watch events of kubectl, or a scenario; - is standard input. "
        "Repeatable.",
    ),
]
ProfileFile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Place all pods with this profile (a SchedulingProfile, its spec, or a "
        "KubeSchedulerConfiguration with one profile), or with a built-in one.",
    ),
]
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
    files: Files,
    profile: ProfileFile = None,
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
    chosen = None if profile is None else _profile(profile)
    scenarios, objects = _read(files)
    if scenarios and (replicas or how_many or diff):
        raise CommandError(
            f"{scenarios[0][0]}: is a scenario, which says itself what comes; "
            "--replicas, --how-many and --diff are for manifests"
        )
    with _patience():
        if how_many:
            plan_answers.print_capacities(_capacities(objects, chosen, settings.seed), output is Form.JSON)
            return
        answers = _scenarios(scenarios, chosen, settings.seed)
        if objects.files:
            answers.append(_manifests(objects, chosen, settings.seed, replicas))
    if diff:
        other = _manifests(objects, _profile(diff), settings.seed, replicas, told=True)
        plan_answers.print_diff(answers[-1], other, profile or "the pods' own", diff, output is Form.JSON)
    elif output is Form.JSON:
        _print_json(answers, details=details)
    else:
        plan_answers.print_tables(answers, details=details, detailed_max=PODS_DETAILED_MAX)
    if unknown := _of_unknown_profiles(answers):
        echo(f"error: {unknown}", err=True)
        raise typer.Exit(UNKNOWN_PROFILE_EXIT)


def _print_json(answers: Sequence[Answer], *, details: bool) -> None:
    every_node = []
    for answer in answers:
        cells = len(answer.planned) * answer.plan.state.table.count
        every_node.append(details or answer.is_scenario or cells <= CELLS_MAX)
        if not every_node[-1]:
            echo(
                f"{cells:,} pods times nodes are more than {CELLS_MAX:,}: each pod has counts and the best "
                "nodes; --details gives every node",
                err=True,
            )
    plan_answers.write_json(sys.stdout, answers, every_node)


def _of_unknown_profiles(answers: Sequence[Answer]) -> str:
    """Return a text that names the profiles of pods that do not exist; empty if all exist."""
    found = Counter(
        code.partition(":")[2]
        for answer in answers
        for planned in answer.planned
        if planned.node is None
        for code in planned.attempt.reasons_at_failure
        if code.startswith("unknown-profile:")
    )
    if not found:
        return ""
    from domain.model.profiles import BUILT_IN_PROFILES

    named = ", ".join(f"{name} ({plural(count, 'pod')})" for name, count in found.items())
    return (
        f"no such profile: {named}; built in are {', '.join(BUILT_IN_PROFILES)}, others are given with -f, "
        "or --profile for all pods"
    )


# ---------------------------------------------------------------------------------------------- reading


class Objects(NamedTuple):
    """The objects of all manifests, their files, and the warnings about them."""

    files: dict[str, None]
    given: list[Given]
    warnings: list[str]
    seen: set[str]


def _read(files: Sequence[str]) -> tuple[list[tuple[str, Any]], Objects]:
    """Return the scenarios by their place, and the useful objects of all manifests together."""
    from services.plan.kinds import Skipped
    from services.plan.scenario import is_scenario

    scenarios, found, skipped = [], Objects({}, [], [], set()), Skipped()
    for name in files:
        values = [value for value in documents.read_values(name) if value is not None]
        if not values:
            raise CommandError(f"{name}: there is nothing in it; write manifests or a scenario")
        for number, value in enumerate(values, start=1):
            place = name if len(values) == 1 else f"{name}, document {number}"
            if is_scenario(value):
                scenarios.append((place, value))
            else:
                found.files[name] = None
                _take(documents.expand(value, place, "ADDED"), found, skipped)
    for line in skipped.lines():
        echo(line, err=True)
    return scenarios, found


def _take(read: Iterator[documents.Document], found: Objects, skipped: Skipped) -> None:
    from services.plan.objects import Given
    from services.plan.spelling import ignored, unknown_fields

    for document in documents.usable(read, skipped, found.warnings, workloads=True):
        thing, name = document.event["object"], documents.named(document.event)
        where = f"{document.place}{name}"
        if not isinstance(thing, dict) or not isinstance(thing.get("kind"), str):
            raise CommandError(f"{where}: object.kind: is missing; an object needs a kind")
        found.given.append(Given(document.event["type"], thing, where=where, wrapped=document.wrapped))
        if document.wrapped:
            found.warnings.extend(f"{where}: {ignored(*slip)}" for slip in unknown_fields(thing))
            if name and name in found.seen:
                found.warnings.append(f"{where}: comes again; it replaces the one before")
            found.seen.add(name)


def _scenarios(scenarios: Sequence[tuple[str, Any]], profile: Profile | None, seed: int) -> list[Answer]:
    from services.plan.scenario import placed_scenario, unread

    answers = []
    for place, value in scenarios:
        with _at(place):
            placed, planned = placed_scenario(value, seed=seed, profile=profile)
        answers.append(Answer(place, placed, planned, True))
        options.warn(f"{place}: {text}" for text in unread(value))
    return answers


def _manifests(
    objects: Objects, profile: Profile | None, seed: int, replicas: int | None, *, told: bool = False
) -> Answer:
    """Plan all manifests together. ``told`` means that the warnings were printed by an earlier plan."""
    from services.plan.capacity import copies_of
    from services.plan.workloads import expand

    with _at(""):
        given = objects.given if replicas is None else copies_of(objects.given, replicas)
        made = _plan_of(expand(given, replicas), profile, seed)
        planned = made.place()
    if not told:
        lost = [f"pod {pod} is on node {node}, which is not among the nodes" for pod, node in made.astray()]
        options.warn([*objects.warnings, *lost, *made.notices(planned)])
    if not planned:
        raise CommandError(
            "there is no pod to place; add a Pod without spec.nodeName, or a Deployment with replicas"
        )
    return Answer(", ".join(objects.files), made, planned, False)


def _capacities(objects: Objects, profile: Profile | None, seed: int) -> list[tuple[Plan, Capacity]]:
    """Count for each different waiting pod how many fit into the cluster alone."""
    from services.plan.capacity import how_many
    from services.plan.workloads import expand

    with _at(""):
        counted = [each for each in objects.given if each.manifest["kind"] != "DaemonSet"]
        given = expand(counted, 1)
        waiting = _plan_of(given, profile, seed).fold_bound()
        different = list({pod.signature: pod for pod in reversed(waiting)}.values())[::-1]
        if not 0 < len(different) <= DIFFERENT_PODS_MAX:
            raise CommandError(
                f"--how-many counts up to {DIFFERENT_PODS_MAX} different pods without spec.nodeName; "
                f"there are {len(different)}"
            )
        options.warn(objects.warnings)
        plans = [_plan_of(given, profile, seed) for _ in different]
        return [(made, how_many(made, pod)) for made, pod in zip(plans, different, strict=True)]


def _plan_of(given: Sequence[Given], profile: Profile | None, seed: int) -> Plan:
    from services.plan.plan import Plan

    made = Plan(seed=seed, profile=profile)
    for each in given:
        made.add(each)
    return made


def _profile(name: str) -> Profile:
    """Read a profile from a file, or take a built-in one by its name."""
    from domain.manifests.profile import profile_from_manifest
    from domain.model.errors import FieldError
    from domain.model.profiles import BUILT_IN_PROFILES
    from domain.plugins.registry import ProfilePlan
    from services.plan.kinds import Use, use_of
    from services.plan.kube_scheduler import profiles_of

    if name in BUILT_IN_PROFILES and not Path(name).exists():
        return BUILT_IN_PROFILES[name]
    if name != "-" and not Path(name).exists():
        built_in = ", ".join(BUILT_IN_PROFILES)
        raise CommandError(f"--profile {name}: No such file; allowed are a file, or {built_in}")
    values = [value for value in documents.read_values(name) if value is not None]
    if len(values) != 1:
        raise CommandError(f"{name}: holds {len(values)} documents; a profile is one object")
    with _at(name):
        if use_of(values[0]) is Use.CONFIGURATION:
            translation = profiles_of(values[0])
            options.warn(f"{name}: {text}" for text in translation.warnings)
            values = [manifest for _, manifest in translation.profiles]
            if len(values) != 1:
                raise FieldError(
                    "profiles", f"are {len(values)}; one is allowed here, or all of them with -f"
                )
        profile = profile_from_manifest(values[0])
        try:
            ProfilePlan(profile)
        except FieldError as error:
            spec = "spec." if "kind" in values[0] else ""
            raise FieldError(f"{spec}{error.path}", error.message) from None
    return profile


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Name the file in errors about a field."""
    from domain.model.errors import FieldError

    try:
        yield
    except FieldError as error:
        raise CommandError(f"{place}: {error}" if place else str(error)) from None


@contextmanager
def _patience() -> Iterator[None]:
    """Print a note if kernels have to be compiled first."""
    from domain.kernels.compiling import Compilations

    def tell() -> None:
        if seen.current:
            message = "compiling the placing kernels, once per installation: about a minute"
            echo(message, err=True)

    timer = threading.Timer(_SILENT_SECONDS_MAX, tell)
    timer.daemon = True
    with Compilations() as seen:
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
