"""Reads what `berth plan` and `berth optimise` are given: manifests, scenarios and profiles from files."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from services.cli import documents, options
from services.cli.options import CommandError, some
from services.cli.plan_answers import Answer
from services.cli.terminal import echo

if TYPE_CHECKING:
    from domain.model.profiles import Profile
    from services.plan.kinds import Skipped
    from services.plan.objects import Given
    from services.plan.plan import Plan


_FILES = typer.Option(
    "-f",
    "--filename",
    metavar="FILE",
    help="Manifests of nodes, pods and workloads (YAML or JSON; pods with spec.nodeName are bound, the "
    "others are placed), lists and watch events of kubectl, or a scenario; - is standard input. "
    "Repeatable.",
)
Files = Annotated[list[str], _FILES]
OptionalFiles = Annotated[list[str] | None, _FILES]
ProfileFile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Place all pods with this profile (a SchedulingProfile, its spec, or a "
        "KubeSchedulerConfiguration with one profile), or with a built-in one.",
    ),
]


class Objects(NamedTuple):
    """The objects of all manifests, their files, and the warnings about them."""

    files: dict[str, None]
    given: list[Given]
    warnings: list[str]
    seen: set[str]


def read(files: Sequence[str]) -> tuple[list[tuple[str, Any]], Objects]:
    """Return the scenarios by their place, and the useful objects of all manifests together."""
    from services.plan.kinds import Skipped
    from services.plan.plan import Plan
    from services.plan.scenario import is_scenario

    scenarios, found, skipped, wrong = [], Objects({}, [], [], set()), Skipped(), list[str]()
    for name in files:
        values = [value for value in documents.read_values(name, wrong) if value is not None]
        if not values and not wrong:
            raise CommandError(f"{name}: there is nothing in it; write manifests or a scenario")
        for number, value in enumerate(values, start=1):
            place = name if len(values) == 1 else f"{name}, document {number}"
            if is_scenario(value):
                scenarios.append((place, value))
            else:
                found.files[name] = None
                try:
                    _take(documents.expand(value, place, "ADDED"), found, skipped)
                except CommandError as error:
                    wrong.append(str(error))
    if wrong:
        wrong += refused_by(Plan(), found.given)
        raise CommandError("\n".join(some(wrong)))
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


def planned_manifests(
    objects: Objects, profile: Profile | None, seed: int, replicas: int | None, *, told: bool = False
) -> Answer:
    """Plan all manifests together. ``told`` means that the warnings were printed by an earlier plan."""
    from services.plan.capacity import copies_of
    from services.plan.workloads import expand

    with at(""):
        given = objects.given if replicas is None else copies_of(objects.given, replicas)
        made = plan_of(expand(given, replicas), profile, seed)
        planned = made.place()
    if not told:
        options.warn([*objects.warnings, *lost(made), *made.notices(planned)])
    if not planned:
        raise CommandError(
            "there is no pod to place; add a Pod without spec.nodeName, or a Deployment with replicas"
        )
    return Answer(", ".join(objects.files), made, planned, False)


def plan_of(given: Sequence[Given], profile: Profile | None, seed: int) -> Plan:
    from services.plan.plan import Plan

    made = Plan(seed=seed, profile=profile)
    if wrong := refused_by(made, given):
        raise CommandError("\n".join(some(wrong)))
    return made


def refused_by(plan: Plan, given: Sequence[Given]) -> list[str]:
    """Add objects to a plan; return what is wrong with those that it refuses."""
    from domain.model.errors import FieldError

    wrong = []
    for each in given:
        try:
            plan.add(each)
        except FieldError as error:
            wrong.append(str(error))
    return wrong


def lost(plan: Plan) -> list[str]:
    """Return a warning for each pod whose node is not there."""
    nodes = plan.state.table.rows
    return [
        f"pod {key} is on node {entry.node}, which is not among the nodes"
        for key, entry in plan.state.pods.items()
        if entry.node and entry.node not in nodes
    ]


def profile_of(name: str) -> Profile:
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
    with at(name):
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
def at(place: str) -> Iterator[None]:
    """Name the file in errors about a field."""
    from domain.model.errors import FieldError

    try:
        yield
    except FieldError as error:
        raise CommandError(f"{place}: {error}" if place else str(error)) from None


@contextmanager
def patience() -> Iterator[None]:
    """Compile first what plans need, where that is not on disk, and say what is compiled later."""
    from domain.kernels.catalogue import PLANNING
    from services.worker.compiling import compile_kernels, late_ones_told

    asyncio.run(compile_kernels(PLANNING))
    with late_ones_told():
        yield
