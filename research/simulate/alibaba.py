"""Alibaba's machines of 2018 with the errors that its machines of 2017 had in a day."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeSpec
from domain.model.selectors import LabelRequirement, LabelSelector, SpreadConstraint
from research.simulate.files import lines_of, unreadable
from research.simulate.trace import Drained, Moment, Trace, kind_of

ERROR_MINUTES = 30
SERVICES_COUNT = 2_000
_DAY_MS = 86_400_000
_MEMORY_GIB = 384
_MACHINES, _ERRORS = "machine_meta.csv", "server_error_events.csv"
_NAMESPACE = "alibaba"
ZONE, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/rack"
_CORES, _CORES_SHARES = (4, 8, 16, 32), (0.35, 0.30, 0.20, 0.15)
_GIB_PER_CORE = (2, 4, 6)
_REPLICAS_MAX = 19
_ARRIVAL_MS = 600_000


class _Failure(NamedTuple):
    node: str
    from_ms: int
    until_ms: int


def alibaba_trace(folder: Path | None, seed: int, *, error_minutes: float, drain: bool) -> Trace:
    """Return a day of 4,034 nodes, of which some fail.

    Parameters
    ----------
    error_minutes : float
        How long a node takes no pods after an error.
    drain : bool
        Whether the pods of a node that fails are evicted.

    Raises
    ------
    TraceError
        A file is missing or does not read.
    """
    joined = list(_machines(folder))
    specs = {spec.name: spec for _, spec in joined}
    moments = [Moment(at_ms, NodeUpserted(spec)) for at_ms, spec in joined]
    moments += _pods(seed)
    for failure in _failures(folder, int(error_minutes * 60_000)):
        spec = specs.get(failure.node)
        if spec is not None:
            moments.append(
                Moment(failure.from_ms, NodeUpserted(msgspec.structs.replace(spec, unschedulable=True)))
            )
            moments += [Moment(failure.from_ms, Drained(failure.node))] * drain
            moments.append(Moment(failure.until_ms, NodeUpserted(spec)))
    moments.sort(key=lambda moment: moment.at_ms)
    kept = "are evicted and wait again" if drain else "stay (--drain evicts them)"
    return Trace(
        name="alibaba",
        moments=[moment for moment in moments if moment.at_ms <= _DAY_MS],
        resources=("cpu", "memory"),
        choices=(
            f"The trace says when an error came, not for how long: here a node takes no pods for "
            f"{error_minutes:g} minutes after one (--error-minutes); its pods {kept}.",
            "The errors are of 2017, the machines of 2018: the one with the same number fails.",
            f"Memory is normalised in the trace; here a node has {_MEMORY_GIB} GiB beside its 96 cores.",
            f"There are no pods in these files: here {SERVICES_COUNT:,} services with 1 to {_REPLICAS_MAX} "
            "equal pods are drawn with the seed, which ask for about 60 % of all cores, come in the first "
            "ten minutes, stay, and are spread over failure_domain_2 (maxSkew 2, DoNotSchedule).",
        ),
    )


def _machines(folder: Path | None) -> Iterator[tuple[int, NodeSpec]]:
    """Yield each node with the time of its first report, a later one as a node that joins."""
    seen = set()
    for number, line in enumerate(lines_of(folder, _MACHINES), start=1):
        try:
            name, seconds, rack, zone, cores = line.split(",")[:5]
            if name in seen:
                continue
            seen.add(name)
            room = {"cpu": int(cores) * 1_000, "memory": _MEMORY_GIB << 30, "pods": 256}
            at_ms = int(seconds) * 1_000
        except ValueError as error:
            raise unreadable(_MACHINES, number, error) from None
        if at_ms <= _DAY_MS:
            labels = {"kubernetes.io/hostname": name, RACK: rack, ZONE: zone}
            yield (
                at_ms,
                NodeSpec(name=name, uid=name, resource_version=None, labels=labels, allocatable=room),
            )


def _failures(folder: Path | None, lasts_ms: int) -> Iterator[_Failure]:
    """Yield when which node takes no pods; errors that come meanwhile make it longer."""
    errors = []
    for number, line in enumerate(lines_of(folder, _ERRORS), start=1):
        try:
            seconds, machine_id = line.split(",")[:2]
            errors.append((f"m_{int(machine_id)}", int(seconds) * 1_000))
        except ValueError as error:
            raise unreadable(_ERRORS, number, error) from None
    current: _Failure | None = None
    for node, at_ms in sorted(errors):
        if current is not None and current.node == node and at_ms <= current.until_ms:
            current = current._replace(until_ms=at_ms + lasts_ms)
            continue
        if current is not None:
            yield current
        current = _Failure(node, at_ms, at_ms + lasts_ms)
    if current is not None:
        yield current


def _pods(seed: int) -> Iterator[Moment]:
    rng = np.random.default_rng(seed)
    replicas = rng.integers(1, _REPLICAS_MAX + 1, SERVICES_COUNT).tolist()
    cores = rng.choice(_CORES, SERVICES_COUNT, p=_CORES_SHARES).tolist()
    per_core = rng.choice(_GIB_PER_CORE, SERVICES_COUNT).tolist()
    for service in range(SERVICES_COUNT):
        labels = {"app": f"service-{service:04}"}
        spread = SpreadConstraint(
            max_skew=2,
            topology_key=ZONE,
            selector=LabelSelector((LabelRequirement("app", "In", (labels["app"],)),)),
        )
        requests = {"cpu": cores[service] * 1_000, "memory": (cores[service] * per_core[service]) << 30}
        kind = kind_of(requests, spread=(spread,))
        at_ms = service * _ARRIVAL_MS // SERVICES_COUNT
        for i in range(replicas[service]):
            key = f"{_NAMESPACE}/{labels['app']}-{i}"
            yield Moment(at_ms, PodUpserted(kind.pod(key, labels)))
