"""`berth optimise`: which pods would have to move for more of them to have a node, or for balance."""

from __future__ import annotations

import contextlib
import enum
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from services.cli import inputs, options
from services.cli.inputs import OptionalFiles, ProfileFile
from services.cli.options import PLACE, CommandError, with_settings
from services.cli.output import Column, Format, Output, print_table, print_value
from services.cli.registered import TRACES, registered
from services.cli.terminal import echo
from services.config import Settings
from services.phrases import plural

if TYPE_CHECKING:
    from domain.model.profiles import Profile
    from services.plan.optimising import Optimised, Search
    from services.plan.plan import Plan
    from services.ports.ledger import LedgerBase, LedgerPart

MOVES_SHOWN_MAX = 20
SECONDS = 20.0
_SEARCHING = 0.8
_STEPS_AT_ONCE = 2_000
_STEPS_AFTER = 20_000
"""Steps after Ctrl-C, which bring pods home: less than a second."""


class Trace(enum.StrEnum):
    """Traces that can be optimised."""

    TIANCHI = "tianchi"


class Objective(enum.StrEnum):
    """What else counts, besides that as many pods as possible have a node."""

    PLACED = "placed"
    BALANCE = "balance"
    NODES = "nodes"
    FRAGMENTATION = "fragmentation"
    Z = "z"
    VARIANCE = "variance"


_COST_NAMES = {
    Objective.FRAGMENTATION: "GPUs that pods cannot use",
    Objective.Z: "imbalance Z, mean of the nodes",
    Objective.VARIANCE: "variance, all resources together",
}
"""What the cost of an objective is called in the table, where it says something to a reader."""

TraceOption = Annotated[
    Trace | None,
    typer.Option(help="Pack the machines of a trace instead, with low peaks: tianchi, the contest of 2018."),
]
DataOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="With --trace: the folder with its files.")
]
ObjectiveOption = Annotated[
    Objective,
    typer.Option(
        metavar="NAME",
        help="What counts besides the number of pods with a node: placed (nothing), balance (each node uses "
        "the same part of each resource), z (each node uses its resources alike), variance (each resource "
        "is used alike on all nodes), nodes (few of them) or fragmentation (few GPUs that the pods could "
        "not use).",
    ),
]
MovesOption = Annotated[
    int | None,
    typer.Option(min=0, metavar="N", help="Move at most N of the pods that run. (default: any number)"),
]
BareOption = Annotated[
    bool, typer.Option("--bare", help="Move pods without a controller, too: nothing makes them anew.")
]
SecondsOption = Annotated[
    float | None,
    typer.Option(
        min=0.1, metavar="S", help="Search for so long. (default: 20; with --trace 120, of a quiet core)"
    ),
]
StepsOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Search for so many steps instead: equal seeds, equal answers."),
]
PlotsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="With --trace: draw the way there into it, PNG and SVG (needs matplotlib)."
    ),
]


@with_settings("seed", *PLACE)
def optimise(
    settings: Settings,
    files: OptionalFiles = None,
    trace: TraceOption = None,
    data: DataOption = None,
    profile: ProfileFile = None,
    objective: ObjectiveOption = Objective.PLACED,
    moves: MovesOption = None,
    bare: BareOption = False,
    seconds: SecondsOption = None,
    steps: StepsOption = None,
    plots: PlotsOption = None,
    output: Output = Format.TABLE,
) -> None:
    """Say which pods would have to move for a better placement; nothing is moved.

    Without -f the ledger says what is where: one snapshot, read as a worker reads it, also while workers
    place. With -f manifests or a scenario say it, and waiting pods are placed first, as `berth plan` does. A
    search then frees a few nodes at a time and packs their pods again, and keeps what is better. The answer
    is never worse than the start, and Ctrl-C keeps the best one so far. The last fifth of the time brings
    pods back whose move gained nothing.

    A pod stays where it is if its filters look at other pods (spread, affinity, host ports), if it is of a
    gang, if a disruption budget lets no pod go, if no controller would make it anew (but see --bare), or if
    its manifest has the annotation `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`. No running pod
    loses its node for another one. Moves are listed in an order in which each one finds its room; they are
    meant to be made one after another.
    """
    if trace is not None:
        if data is None or files or profile or moves is not None or bare or objective is not Objective.PLACED:
            raise CommandError(
                "--trace needs --data, and goes with --seconds, --steps, --seed, --plots and -o alone"
            )
        packer = _packer_of(trace)
        packer(data, settings.seed, seconds=seconds, steps=steps, plots=plots, output=output)
        return
    if data is not None or plots is not None:
        raise CommandError(f"--{'plots' if data is None else 'data'} goes with --trace")
    with inputs.patience():
        plan = _of_files(files, profile, settings.seed) if files else _of_ledger(settings, profile)
        search, summary = _begin(plan, settings.seed, objective=objective.value, moves_max=moves, bare=bare)
        _improve(search, objective, _by_time(seconds or SECONDS) if steps is None else _by_steps(steps))
    found = search.found()
    if output in (Format.JSON, Format.YAML):
        print_value(_as_json(found, search), output)
    else:
        _show(found, summary, search, objective, wide=output is Format.WIDE)


def _packer_of(trace: Trace) -> Callable[..., None]:
    packer = registered(TRACES).get(trace)
    if packer is None:
        raise CommandError(f"--trace {trace} needs the package research, which is not installed")
    found: Callable[..., None] = packer.load()
    return found


def _of_files(files: list[str], profile: str | None, seed: int) -> Plan:
    """Return a plan that has placed its pods."""
    from services.plan.workloads import expand

    scenarios, objects = inputs.read(files)
    chosen = None if profile is None else inputs.profile_of(profile)
    if scenarios:
        if objects.files or len(scenarios) > 1:
            raise CommandError(f"{scenarios[0][0]}: is a scenario, a cluster of its own; give it alone")
        return _of_scenario(*scenarios[0], chosen, seed)
    with inputs.at(""):
        plan = inputs.plan_of(expand(objects.given, None), chosen, seed)
        planned = plan.place()
    options.warn([*objects.warnings, *inputs.lost(plan), *plan.notices(planned)])
    return plan


def _of_scenario(place: str, document: dict[str, Any], profile: Profile | None, seed: int) -> Plan:
    from services.plan.scenario import placed_scenario, unread

    with inputs.at(place):
        plan, _ = placed_scenario(document, seed=seed, profile=profile)
    options.warn(f"{place}: {text}" for text in unread(document))
    return plan


def _of_ledger(settings: Settings, profile: str | None) -> Plan:
    """Return a plan that has placed what the ledger holds of pods that were not tried yet."""
    from ops.postgres.server import NoData
    from services import bootstrap
    from services.plan.plan import Plan
    from services.worker.restoring import restored

    if profile is not None:
        raise CommandError("--profile is for manifests; pods of the ledger have theirs")

    async def read() -> tuple[LedgerBase, LedgerPart]:
        async with bootstrap.place(settings, join=True) as at:
            await bootstrap.check_database(at, "worker")
            ledger = bootstrap.open_ledger(at)
            try:
                return await ledger.load_all()
            finally:
                await ledger.aclose()

    try:
        known = options.run(read())
    except NoData as error:
        raise CommandError(f"{error}; -f reads manifests or a scenario instead") from error
    plan = Plan.of(restored(*known, settings.seed))
    plan.place()
    return plan


def _begin(plan: Plan, seed: int, *, objective: str, moves_max: int | None, bare: bool) -> tuple[Search, str]:
    from services.plan.optimising import Search, pinned_of

    nodes_count, pods_count = plan.state.table.count, len(plan.state.pods)
    if not nodes_count or not pods_count:
        raise CommandError(
            f"there is no {'pod' if nodes_count else 'node'} among the objects; a search needs both, as "
            "`kubectl get nodes,pods -A -o json` lists them"
        )
    running = frozenset(key for key, each in plan.state.pods.items() if each.node) - plan.decided
    search = Search(
        plan,
        running,
        objective=objective,
        moves_max=moves_max,
        seed=seed,
        pinned=pinned_of(plan.state, running, bare=bare),
    )
    return search, f"{plural(nodes_count, 'node')}, {plural(pods_count, 'pod')}"


class _Portion(NamedTuple):
    """What is done before the progress is shown again, and the part of all that was done before it."""

    steps: int
    homing: bool
    part: float


def _by_time(seconds: float) -> Iterator[_Portion]:
    began = time.monotonic()
    while (part := (time.monotonic() - began) / seconds) < 1.0:
        yield _Portion(_STEPS_AT_ONCE, part > _SEARCHING, part)


def _by_steps(steps: int) -> Iterator[_Portion]:
    homing_from, done = int(steps * _SEARCHING), 0
    while done < steps:
        homing = done >= homing_from
        count = min(_STEPS_AT_ONCE, (steps if homing else homing_from) - done)
        yield _Portion(count, homing, done / steps)
        done += count


def _improve(search: Search, objective: Objective, portions: Iterator[_Portion]) -> None:
    """Search until all portions are done, or the user has seen enough; then bring home the pods left away.

    Where only the number of pods counts and none waits any more, all that is left is to bring pods home.
    """
    from rich.console import Console
    from rich.progress import Progress

    with (
        Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress,
        contextlib.suppress(KeyboardInterrupt),
    ):
        shown, score = progress.add_task("", total=1.0), search.before
        for steps, homing, part in portions:
            is_done = objective is Objective.PLACED and score.waiting_count == 0
            score = search.improve(steps, homing=homing or is_done)
            best = f"{score.waiting_count} wait, {score.moved_count} moved, cost {score.cost:.6g}"
            progress.update(shown, completed=part, description=best)
        return
    with contextlib.suppress(KeyboardInterrupt):
        search.improve(_STEPS_AFTER, homing=True)


def _show(found: Optimised, summary: str, search: Search, objective: Objective, *, wide: bool) -> None:
    before, after = found.before, found.after
    echo(f"{summary}; {plural(found.steps_count, 'step')} of the search")
    if found.staying:
        echo(f"{plural(sum(found.staying.values()), 'pod')} with a node cannot be moved, or must not be:")
    for why, count in sorted(found.staying.items(), key=lambda item: (-item[1], item[0])):
        echo(f"  {count:,} {why}{' (but see --bare)' if 'controller' in why else ''}")
    if found.left_count:
        echo(f"Waiting pods that a search cannot place, not counted below: {found.left_count:,}.")
    rows = [
        ("pods that wait", before.waiting_count, after.waiting_count),
        ("running pods that move", 0, after.moved_count),
        *(
            [(_COST_NAMES[objective], f"{before.cost:.4g}", f"{after.cost:.4g}")]
            if objective in _COST_NAMES
            else []
        ),
        *((f"{name}, deviation", f"{old:.4f}", f"{new:.4f}") for name, old, new in search.deviations()),
    ]
    _table(("", "before", "after"), rows, wide=wide)
    if found.moves:
        shown = found.moves[:MOVES_SHOWN_MAX]
        echo()
        steps = [(m.pod, m.source or "(waits)", m.target or "(waits)", f"{m.gain:.4g}") for m in shown]
        _table(("pod", "from", "to", "gain"), steps, wide=wide)
    if (more := len(found.moves) - MOVES_SHOWN_MAX) > 0:
        echo(f"and {plural(more, 'more move')}; -o json has all of them")


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]], *, wide: bool) -> None:
    columns = [Column(title.upper(), itemgetter(str(i))) for i, title in enumerate(titles)]
    print_table("", columns, [{str(i): value for i, value in enumerate(row)} for row in rows], wide=wide)


def _as_json(found: Optimised, search: Search) -> dict[str, Any]:
    return {
        "before": found.before._asdict(),
        "after": found.after._asdict(),
        "deviations": {name: {"before": a, "after": b} for name, a, b in search.deviations()},
        "staying": sum(found.staying.values()),
        "staying_because": dict(found.staying),
        "left": found.left_count,
        "steps": found.steps_count,
        "moves": [{"pod": m.pod, "from": m.source, "to": m.target, "gain": m.gain} for m in found.moves],
    }
