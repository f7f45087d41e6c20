"""Effective requests: the rules by which the requests of a pod's containers become the pod's own.

Amounts are thousandths of each resource's own unit (``domain.model.resources.Amounts``), because Kubernetes
adds quantities up exactly and rounds the sum. Source of the rules: Kubernetes 1.36, its
``component-helpers/resource`` (PodRequests), API defaulting of pods, the scheduler's non-zero requests, and
``ComputePodQOS``.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import msgspec

from domain.model.pods import CpuClaim, MemoryClaim
from domain.model.quantities import HUGE_PAGES_PREFIX, milli_to_units
from domain.model.resources import CPU, MEMORY, Amounts

SCORING_DEFAULTS: tuple[tuple[str, int], ...] = ((CPU, 100), (MEMORY, (200 << 20) * 1000))
"""The requests that scoring assumes for a container without requests: 100m and 200 MiB (in thousandths)."""

_limits_of = attrgetter("limits")


class ContainerNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """One container: requests as written, limits, and whether an init container keeps running (a sidecar)."""

    requests: Amounts = {}
    limits: Amounts = {}
    restartable: bool = False


class PodNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's containers in their order, and what it asks for as a whole.

    ``has_pod_level`` says that the pod has resources of its own (``spec.resources``), even if they are empty.
    """

    containers: Sequence[ContainerNeeds] = ()
    init_containers: Sequence[ContainerNeeds] = ()
    has_pod_level: bool = False
    pod_requests: Amounts = {}
    pod_limits: Amounts = {}
    overhead: Amounts = {}


def effective_requests(needs: PodNeeds) -> Amounts:
    """Return what a node must have free for the pod, per resource; zero requests are kept.

    Containers run together: their requests add up. Init containers run one after the other before them, each
    beside the restartable ones started so far, which go on running beside the containers. The larger of both
    phases counts. Requests of the pod as a whole replace the result for cpu, memory and huge pages. The
    overhead is added at the end. A limit without a request counts as the request.
    """
    if len(needs.containers) == 1 and not needs.init_containers and not needs.has_pod_level:
        requests = dict(_with_limits(needs.containers[0]))  # as most pods are
    else:
        requests = _containers_requests(needs, ())
        requests.update(_pod_level_requests(needs, requests))
    _add(requests, needs.overhead)
    return requests


def scoring_requests(needs: PodNeeds, effective: Amounts) -> tuple[int, int]:
    """Return (cpu, memory) with defaults for containers that ask for none, in thousandths.

    ``effective`` is what ``effective_requests`` returned, which holds where no default applies.
    Where the pod as a whole has requests, a default counts only for what neither it nor any container names.
    """
    everyone = (*needs.containers, *needs.init_containers)
    if all(CPU in r and MEMORY in r for r in map(_with_limits, everyone)):
        return effective.get(CPU, 0), effective.get(MEMORY, 0)
    named = _containers_requests(needs, ())
    pod_level = _pod_level_requests(needs, named)
    missing = SCORING_DEFAULTS
    if pod_level:
        known = {**named, **pod_level, **needs.overhead}
        missing = tuple(entry for entry in SCORING_DEFAULTS if entry[0] not in known)
    requests = _containers_requests(needs, missing) if missing else named
    requests.update(pod_level)
    _add(requests, needs.overhead)
    return requests.get(CPU, 0), requests.get(MEMORY, 0)


def effective_limits(needs: PodNeeds) -> Amounts:
    """Return what the pod may use at most of cpu and memory, by the rule of ``effective_requests``.

    A container without a limit adds nothing, as in the scheduler's usage-aware plugins; nothing is returned
    for a pod where no container has a limit.
    """
    if not needs.pod_limits and not any(map(_limits_of, (*needs.containers, *needs.init_containers))):
        return {}
    limits = effective_requests(
        PodNeeds(
            containers=_limits_as_requests(needs.containers),
            init_containers=_limits_as_requests(needs.init_containers),
            has_pod_level=needs.has_pod_level,
            pod_requests=needs.pod_limits,
            overhead=needs.overhead,
        )
    )
    return _compute_only(limits)


def cpu_claim(needs: PodNeeds) -> CpuClaim:
    """Return what the containers say of the cpu that they will use; init containers are over by then."""
    fixed, requested, silent = needs.overhead.get(CPU, 0), 0, 0
    for container in needs.containers:
        if CPU in container.limits:
            fixed += container.limits[CPU]
        elif CPU in container.requests:
            requested += container.requests[CPU]
        else:
            silent += 1
    return CpuClaim(fixed_milli=fixed, requested_milli=requested, silent_count=silent)


def memory_claim(needs: PodNeeds) -> MemoryClaim:
    """Return the same of memory, in bytes."""
    fixed, requested, silent = needs.overhead.get(MEMORY, 0), 0, 0
    for container in needs.containers:
        if limit := container.limits.get(MEMORY, 0):
            fixed += limit
        elif request := container.requests.get(MEMORY, 0):
            requested += request
        else:
            silent += 1
    return MemoryClaim(
        fixed_bytes=milli_to_units(fixed), requested_bytes=milli_to_units(requested), silent_count=silent
    )


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What a status reports of resources: those in force, and those that the node has set aside."""

    actual: Amounts = {}
    allocated: Amounts = {}


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """What the status of a bound pod says of its resources, which can change in place.

    ``containers`` and ``init_containers`` are in the order of the spec, None where the status does not say.
    ``infeasible``: the node cannot give what the spec asks for now.
    """

    containers: Sequence[Reported | None] = ()
    init_containers: Sequence[Reported | None] = ()
    pod: Reported | None = None
    infeasible: bool = False


def resized(needs: PodNeeds, resize: Resize) -> PodNeeds:
    """Return what counts of a bound pod: the larger of what is asked, in force and set aside.

    What is asked is left out where the node cannot give it. Plain init containers never change.
    """
    pod_requests = _pod_level_requests(needs, _containers_requests(needs, ()))
    if resize.pod is not None:
        counted = _counted(pod_requests, resize.pod, resize.infeasible)
        pod_requests = {name: counted.get(name, 0) for name in pod_requests}
    return PodNeeds(
        containers=_resized(needs.containers, resize.containers, resize.infeasible),
        init_containers=_resized(
            needs.init_containers,
            [
                reported if container.restartable else None
                for container, reported in zip(needs.init_containers, resize.init_containers, strict=True)
            ],
            resize.infeasible,
        ),
        has_pod_level=needs.has_pod_level,
        pod_requests=pod_requests,
        overhead=needs.overhead,
    )


def _resized(
    containers: Sequence[ContainerNeeds], reports: Sequence[Reported | None], infeasible: bool
) -> list[ContainerNeeds]:
    found = []
    for container, reported in zip(containers, reports, strict=True):
        requests = _with_limits(container)
        if reported is not None:
            requests = _counted(requests, reported, infeasible)
        found.append(ContainerNeeds(requests=requests, restartable=container.restartable))
    return found


def _counted(asked: Amounts, reported: Reported, infeasible: bool) -> Amounts:
    counted: Amounts = {} if infeasible else dict(asked)
    _raise_to(counted, reported.actual)
    _raise_to(counted, reported.allocated)
    return counted


def _limits_as_requests(containers: Sequence[ContainerNeeds]) -> list[ContainerNeeds]:
    return [ContainerNeeds(requests=each.limits, restartable=each.restartable) for each in containers]


def qos_class(needs: PodNeeds) -> str:
    """Return BestEffort, Burstable or Guaranteed.

    Guaranteed: every container has limits for cpu and memory, and in sum requests equal limits. BestEffort:
    no container asks for or limits cpu or memory. Where the pod has resources of its own, only they count.
    """
    if needs.has_pod_level:
        named = _containers_requests(needs, ())
        requests = {**needs.pod_requests, **_pod_level_requests(needs, named)}
        owners = [ContainerNeeds(requests=requests, limits=needs.pod_limits)]
    else:
        owners = [*needs.containers, *needs.init_containers]
    if not any(map(_limits_of, owners)):
        asks = any(owner.requests.get(CPU) or owner.requests.get(MEMORY) for owner in owners)
        return "Burstable" if asks else "BestEffort"
    requested: Amounts = {}
    limited: Amounts = {}
    all_limited = True
    for owner in owners:
        limits = _compute_only(owner.limits)
        all_limited = all_limited and len(limits) == 2
        _add(limited, limits)
        _add(requested, _compute_only(_with_limits(owner)))
    if not requested and not limited:
        return "BestEffort"
    return "Guaranteed" if all_limited and requested == limited else "Burstable"


def _compute_only(amounts: Amounts) -> Amounts:
    return {name: milli for name, milli in amounts.items() if milli and name in (CPU, MEMORY)}


def _with_limits(container: ContainerNeeds) -> Amounts:
    return {**container.limits, **container.requests} if container.limits else container.requests


def _containers_requests(needs: PodNeeds, missing: Sequence[tuple[str, int]]) -> Amounts:
    """Combine the containers, with ``missing`` for each container that does not name that resource."""
    total: Amounts = {}
    for container in needs.containers:
        _add(total, _complete(container, missing))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in needs.init_containers:
        current = dict(_complete(container, missing))
        if container.restartable:
            _add(total, current)
            _add(sidecars, current)
            current = sidecars
        else:
            _add(current, sidecars)
        _raise_to(peak, current)
    _raise_to(total, peak)
    return total


def _complete(container: ContainerNeeds, missing: Sequence[tuple[str, int]]) -> Amounts:
    requests = _with_limits(container)
    absent = {name: milli for name, milli in missing if name not in requests}
    return {**requests, **absent} if absent else requests


def _pod_level_requests(needs: PodNeeds, from_containers: Amounts) -> Amounts:
    """Return what replaces the containers' requests, after the API server's defaulting.

    With pod limits, what containers request of cpu and memory becomes the pod's request where it has none,
    and what is not requested becomes the limit.
    """
    if not needs.has_pod_level:
        return {}
    requests = {name: milli for name, milli in needs.pod_requests.items() if _is_pod_level(name)}
    if needs.pod_limits:
        for name in (CPU, MEMORY):
            if name in from_containers:
                requests.setdefault(name, from_containers[name])
        for name, milli in needs.pod_limits.items():
            if _is_pod_level(name):
                requests.setdefault(name, milli)
    return requests


def _is_pod_level(name: str) -> bool:
    return name in (CPU, MEMORY) or name.startswith(HUGE_PAGES_PREFIX)


def _add(total: Amounts, amounts: Amounts) -> None:
    for name, milli in amounts.items():
        total[name] = total.get(name, 0) + milli


def _raise_to(total: Amounts, amounts: Amounts) -> None:
    for name, milli in amounts.items():
        if milli > total.get(name, -1):
            total[name] = milli
