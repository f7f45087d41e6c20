"""What a simulation goes through: what happens to a cluster, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from domain.model.events import Event, PodDeleted, PodUpserted, ProfileEvent
from domain.model.pods import CpuClaim, PodSpec, PodTemplate
from domain.model.signature import signature

SHAPES_MAX = 100


class Drained(msgspec.Struct, frozen=True):
    """The pods of a node are evicted; each one waits again, as a new pod of the same name."""

    node: str


class Ended(msgspec.Struct, frozen=True):
    """A pod, by its key, is ended on its node; it waits again, as a new pod of the same name."""

    pod: str


class Moment(NamedTuple):
    """Something that happens ``at_ms`` milliseconds after the trace began."""

    at_ms: int
    event: Event | ProfileEvent | Drained | Ended


class Shape(NamedTuple):
    """What a kind of pod asks for, and how many pods of a trace do."""

    requests: dict[str, int]
    pods_count: int


class Curves(msgspec.Struct, frozen=True):
    """What pods really use, in steps of equal length.

    Attributes
    ----------
    step_ms : int
    resources : tuple of str
        Of which resources.
    kinds : dict
        Key of a pod -> its kind.
    used : float64[R, K, T]
        What a pod of each kind uses at each step, in the resource's canonical unit.
    """

    step_ms: int
    resources: tuple[str, ...]
    kinds: dict[str, int]
    used: np.ndarray

    @property
    def steps_count(self) -> int:
        """How many steps there are."""
        return int(self.used.shape[2])


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The moments of a trace in their order, nodes first.

    Attributes
    ----------
    resources : tuple of str
        Those whose balance is reported.
    choices : tuple of str
        What the source leaves open, and how it was chosen: a sentence each.
    curves : Curves, optional
        Where it is measured what pods use.
    """

    name: str
    moments: Sequence[Moment]
    resources: tuple[str, ...]
    choices: tuple[str, ...] = ()
    curves: Curves | None = None

    @property
    def pods_count(self) -> int:
        """How many pods come."""
        return len({each.event.pod.key for each in self.moments if isinstance(each.event, PodUpserted)})

    def shapes(self) -> list[Shape]:
        """Return what the pods ask for, the most frequent kinds first, ``SHAPES_MAX`` of them."""
        counts = Counter[bytes]()
        templates: dict[bytes, PodTemplate] = {}
        for moment in self.moments:
            if isinstance(moment.event, PodUpserted):
                pod = moment.event.pod
                counts[pod.signature] += 1
                templates[pod.signature] = pod.template
        asked: dict[tuple[tuple[str, int], ...], int] = {}
        for key, count in counts.items():
            requests = tuple(sorted(templates[key].requests.items()))
            asked[requests] = asked.get(requests, 0) + count
        ordered = sorted(asked.items(), key=lambda each: (-each[1], each[0]))
        return [Shape(dict(requests), count) for requests, count in ordered[:SHAPES_MAX]]

    def cut(self, *, pods_max: int | None, until_ms: int | None, stay: bool) -> Trace:
        """Return the first pods of the trace, up to a time; with ``stay`` no pod leaves."""
        kept = list(_kept(self.moments, pods_max, until_ms, stay))
        return msgspec.structs.replace(self, moments=kept)


def _kept(
    moments: Iterable[Moment], pods_max: int | None, until_ms: int | None, stay: bool
) -> Iterator[Moment]:
    seen = set[str]()
    for moment in moments:
        if until_ms is not None and moment.at_ms > until_ms:
            return
        match moment.event:
            case PodUpserted(pod=pod):
                if pods_max is not None and len(seen) >= pods_max and pod.key not in seen:
                    continue
                seen.add(pod.key)
            case PodDeleted(namespace=namespace, name=name):
                if stay or f"{namespace}/{name}" not in seen:
                    continue
        yield moment


class Kind(NamedTuple):
    """A template that many pods have, with its signature."""

    template: PodTemplate
    signature: bytes

    def pod(self, key: str, labels: dict[str, str] | None = None) -> PodSpec:
        """Return a waiting pod; its uid is its key."""
        return PodSpec(
            uid=key,
            key=key,
            resource_version=None,
            template=self.template,
            signature=self.signature,
            labels=labels or {},
        )


def kind_of(requests: dict[str, int], **more: Any) -> Kind:
    """Return the kind of pods of one container that asks for so much."""
    template = PodTemplate(
        requests={name: amount for name, amount in requests.items() if amount},
        scoring_cpu_milli=requests.get("cpu", 0),
        scoring_memory_bytes=requests.get("memory", 0),
        cpu_claim=CpuClaim(requested_milli=requests.get("cpu", 0)),
        **more,
    )
    return Kind(template, signature(template))
