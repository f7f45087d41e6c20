"""`berth plan`: where would these go, and why; from files alone, nothing is written."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.cli import documents, options
from services.cli.options import CommandError, with_settings
from services.cli.output import Column, Json, print_json, print_table
from services.config import Settings
from services.phrases import plural, reason_in_words

if TYPE_CHECKING:
    from domain.cycle.evaluate import Verdict
    from domain.model.profiles import Profile

NODES_SHOWN_MAX = 5
UNKNOWN_PROFILE_EXIT = 3


class Form(enum.StrEnum):
    """What `-o` takes here."""

    TABLE = "table"
    JSON = "json"


Files = Annotated[
    list[str],
    typer.Option(
        "-f",
        "--filename",
        metavar="FILE",
        help="Manifests of nodes and pods (YAML or JSON; those with spec.nodeName are bound, the others are "
        "placed), or a scenario; - is standard input. Repeatable.",
    ),
]
ProfileFile = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="Place all pods with this profile (a SchedulingProfile or its spec, YAML or JSON), or with a "
        "built-in one.",
    ),
]
Output = Annotated[Form, typer.Option("-o", "--output", help="How to show the answer.")]


@with_settings("seed")
def plan(settings: Settings, files: Files, profile: ProfileFile = None, output: Output = Form.TABLE) -> None:
    """Say where pods would go, and why, without any server.

    Pods are placed in the order of the files, each one before the next is looked at. Manifests of all files
    make one cluster; a scenario is a cluster of its own.

    The exit code is 0 also where pods find no node, 1 where the input makes no sense, and 3 where a pod
    names a profile that does not exist: it waits, as with a worker, and the others are planned.
    """
    chosen = None if profile is None else _profile(profile)
    answers = _answers(files, chosen, settings.seed)
    if output is Form.JSON:
        import msgspec

        plain: Any = [
            {"file": name, "pods": [msgspec.to_builtins(verdict) for verdict in verdicts]}
            for name, verdicts in answers
        ]
        print_json(plain[0]["pods"] if len(plain) == 1 else plain)
    else:
        for name, verdicts in answers:
            if len(answers) > 1:
                typer.echo(f"{name}:\n")
            for verdict in verdicts:
                _show(verdict)
    if unknown := _of_unknown_profiles(answers):
        typer.echo(f"error: {unknown}", err=True)
        raise typer.Exit(UNKNOWN_PROFILE_EXIT)


def _of_unknown_profiles(answers: Sequence[tuple[str, list[Verdict]]]) -> str:
    """Name the profiles that pods name and that do not exist, or return nothing."""
    found = Counter(
        code.partition(":")[2]
        for _, verdicts in answers
        for verdict in verdicts
        for code in verdict.held_by
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


def _answers(files: Sequence[str], profile: Profile | None, seed: int) -> list[tuple[str, list[Verdict]]]:
    """Return the verdicts per scenario, and those of all manifests together under their files' names."""
    from services.plan.scenario import is_scenario, plan_scenario, unread

    scenarios: list[tuple[str, list[Verdict]]] = []
    manifests: list[tuple[str, Any]] = []
    for name in files:
        values = [value for value in documents.read_values(name) if value is not None]
        if not values:
            raise CommandError(f"{name}: there is nothing in it; write manifests or a scenario")
        for number, value in enumerate(values, start=1):
            place = name if len(values) == 1 else f"{name}, document {number}"
            if not is_scenario(value):
                manifests.append((place, value))
                continue
            with _at(place):
                scenarios.append((place, plan_scenario(value, seed=seed, profile=profile)))
            options.warn(f"{place}: {text}" for text in unread(value))
    if manifests:
        together = ", ".join(dict.fromkeys(place.partition(", document ")[0] for place, _ in manifests))
        scenarios.append((together, _plan_manifests(manifests, profile, seed)))
    return scenarios


def _plan_manifests(
    manifests: Sequence[tuple[str, Any]], profile: Profile | None, seed: int
) -> list[Verdict]:
    from domain.model.errors import FieldError
    from services.plan.objects import Given
    from services.plan.plan import Plan
    from services.plan.spelling import ignored, slips

    with _at("profile"):
        plan = Plan(seed=seed, profile=profile)
    warnings, seen = [], set()
    for place, value in manifests:
        for document in documents.expand(value, place, "ADDED"):
            thing = document.event.get("object")
            where = f"{document.place}{documents.named(document.event)}"
            try:
                plan.add(Given(document.event["type"], thing, "object"))
            except FieldError as error:
                path = error.path.removeprefix("object.") if document.wrapped else error.path
                raise CommandError(f"{where}: {path}: {error.message}") from None
            if document.wrapped:
                warnings += [f"{where}: {ignored(*slip)}" for slip in slips(thing)]
                if (name := documents.named(document.event)) in seen:
                    warnings.append(f"{where}: comes again; it replaces the one before")
                seen.add(name)
    placed = plan.place()
    warnings += [f"pod {pod} is on node {node}, which is not among the nodes" for pod, node in plan.astray()]
    options.warn(warnings)
    if not placed:
        raise CommandError("there is no pod to place; add a Pod without spec.nodeName")
    return list(plan.verdicts())


def _profile(name: str) -> Profile:
    """Read a profile from a file, or take a built-in one by its name."""
    from domain.manifests.profile import profile_from_manifest
    from domain.model.errors import FieldError
    from domain.model.profiles import BUILT_IN_PROFILES
    from domain.plugins.registry import ProfilePlan

    if name in BUILT_IN_PROFILES and not Path(name).exists():
        return BUILT_IN_PROFILES[name]
    if name != "-" and not Path(name).exists():
        built_in = ", ".join(BUILT_IN_PROFILES)
        raise CommandError(f"--profile {name}: No such file; allowed are a file, or {built_in}")
    values = [value for value in documents.read_values(name) if value is not None]
    if len(values) != 1:
        raise CommandError(f"{name}: holds {len(values)} documents; a profile is one object")
    with _at(name):
        profile = profile_from_manifest(values[0])
        try:
            ProfilePlan(profile)
        except FieldError as error:
            spec = "spec." if "kind" in values[0] else ""
            raise FieldError(f"{spec}{error.path}", error.message) from None
    return profile


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Say in which file a field is wrong."""
    from domain.model.errors import FieldError

    try:
        yield
    except FieldError as error:
        raise CommandError(f"{place}: {error}") from None


# ---------------------------------------------------------------------------------------------- showing


def _show(verdict: Verdict) -> None:
    """Print one verdict: where to, the best nodes, what was refused."""
    nodes_count = len(verdict.feasible) + len(verdict.infeasible)
    found = f"{len(verdict.feasible):,} of {plural(nodes_count, 'node')} feasible"
    if verdict.node is None:
        held = f", held by {', '.join(verdict.held_by)}" if verdict.held_by else ""
        typer.echo(f"{verdict.pod}: {verdict.outcome.value}{held} ({found})")
    else:
        typer.echo(f"{verdict.pod}: to {verdict.node}, score {verdict.scores[verdict.node]:.6g} ({found})")
    if verdict.feasible:
        _show_nodes(verdict)
    reasons = Counter(verdict.infeasible.values())
    if reasons:
        hopeless = Counter(verdict.infeasible[name] for name in verdict.unresolvable)
        print_table("refusals", REFUSED, [
            {"count": count, "reason": reason, "evict": _evicting_helps(count, hopeless[reason])}
            for reason, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
        ])  # fmt: skip
    typer.echo("")


def _evicting_helps(count: int, hopeless: int) -> str:
    """Say of how many nodes with the same reason evicting pods could make room."""
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
    columns += [Column(_title(label, verdict.weights[label]), _part(label), right=True) for label in labels]
    print_table("nodes", columns, [
        {"node": name, "score": verdict.scores[name], "parts": verdict.score_parts[name]}
        for name in shown[:NODES_SHOWN_MAX]
    ])  # fmt: skip


def _title(label: str, weight: float) -> str:
    """Return the head of a score's column, which shows the score before its weight."""
    return label if weight == 1 else f"{weight:g}*{label}"


def _part(label: str) -> Any:
    def read(item: Json) -> object:
        return item["parts"][label]

    return read


REFUSED = (
    Column("REFUSED", lambda item: item["count"], right=True),
    Column(
        "REASON",
        lambda item: item["reason"],
        lines=lambda item: [reason_in_words(item["reason"], item["count"])],
    ),
    Column("EVICTING COULD HELP", lambda item: item["evict"]),
)
