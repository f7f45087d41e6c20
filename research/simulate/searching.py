"""Place pods by search on the real state: the filters of a profile say where each may go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from domain.cycle.schedule import Scheduler
from domain.engine.evaluate import evaluate
from domain.model.events import PodUpserted
from domain.model.pods import PodSpec
from domain.plugins.base import Term
from domain.plugins.registry import ProfilePlan
from domain.state.cluster import ClusterState
from research.search.placement import Batch, Fitness, by_imbalance, by_score, place_batch


class Search(msgspec.Struct, frozen=True):
    """A search: its algorithm, how many pods it places at once, and how many placements of these it tries.

    It goes by the resource score of the pods' profile where there is one, else by the imbalance Z of
    ``resources``.
    """

    algorithm: str
    window: int
    evaluations_max: int
    resources: tuple[str, ...]
    population_count: int = 30


def place_by_search(
    scheduler: Scheduler, search: Search, pods: Sequence[PodSpec], *, seed: int
) -> dict[str, str]:
    """Place pods, as many at once as the search takes; return the nodes by the keys of those that got one."""
    placed: dict[str, str] = {}
    for first in range(0, len(pods), search.window):
        window = pods[first : first + search.window]
        placed.update(_place_window(scheduler, search, window, seed + first))
    return placed


def _place_window(scheduler: Scheduler, search: Search, pods: Sequence[PodSpec], seed: int) -> dict[str, str]:
    """Search for the nodes of some pods, and bind each there if the filters still allow it.

    They may not where what a pod counts decides about another one of the same window. Such a pod goes to the
    nearest node that they do allow.
    """
    state, placed = scheduler.state, dict[str, str]()
    plan = scheduler.profiles.plans[pods[0].template.profile]
    for pod in pods:
        scheduler.fold(PodUpserted(pod))  # filters that count pods must know the pod itself
    batch, fitness = _batch(state, plan, pods, search.resources)
    found = place_batch(
        search.algorithm,
        batch,
        fitness,
        seed=seed,
        population_count=search.population_count,
        evaluations_max=search.evaluations_max,
    )
    names = state.table.names[: state.table.count]
    for i, (pod, wanted) in enumerate(zip(pods, found.nodes, strict=True)):
        feasible = batch.allowed[0] if i == 0 else _allowed(state, plan, pod)
        if wanted < 0 or not feasible.any():
            continue
        apart = np.abs(np.arange(len(names)) - wanted)
        node = names[int(np.where(feasible, apart, len(names)).argmin())]
        version = (pod.resource_version or 0) + 1
        bound = msgspec.structs.replace(pod, node_name=node, resource_version=version)
        scheduler.fold(PodUpserted(bound))
        placed[pod.key] = node
    return placed


def _batch(
    state: ClusterState, plan: ProfilePlan, pods: Sequence[PodSpec], names: Sequence[str]
) -> tuple[Batch, Fitness]:
    """Return what is to be placed, and what it is worth: by the profile's resource score, else by Z."""
    table, resources = state.table, state.resources
    rated = [resources.column(name) for name in names]
    demands = [plan.fit[1].demands(pod.template, resources) if plan.fit else [] for pod in pods]
    columns = sorted({*rated, *(demand.column for each in demands for demand in each)})
    place = {column: i for i, column in enumerate(columns)}
    asked = np.zeros((len(pods), len(columns)), dtype=np.int64)
    for i, (pod, each) in enumerate(zip(pods, demands, strict=True)):
        asked[i, [place[column] for column in rated]] = [pod.template.requests.get(name, 0) for name in names]
        asked[i, [place[demand.column] for demand in each]] = [demand.value for demand in each]
    batch = Batch(
        allocatable=table.allocatable[columns, : table.count],
        requested=table.requested[columns, : table.count],
        asked=asked,
        allowed=np.array([_allowed(state, plan, pod) for pod in pods]),
    )
    if not plan.resource_scores:
        return batch, by_imbalance([place[column] for column in rated])
    terms = [plan.resource_scores[0].plugin.term(pod.template, resources) for pod in pods]
    return batch, by_score([_moved(term, place) for term in terms])


def _moved(term: Term, place: Mapping[int, int]) -> Term:
    """Return a term with rows of the batch's arrays in place of the table's columns."""
    return term._replace(parts=tuple(part._replace(column=place[part.column]) for part in term.parts))


def _allowed(state: ClusterState, plan: ProfilePlan, pod: PodSpec) -> np.ndarray:
    """Return bool[N]: which rows pass every filter of the profile."""
    feasible = set(evaluate(state, plan, pod).feasible)
    return np.array([name in feasible for name in state.table.names[: state.table.count]])
