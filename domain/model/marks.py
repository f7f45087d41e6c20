"""Marks: what a pod carries that counts for or against other pods, wherever it is placed."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from domain.model.pods import HostPort, PodTemplate, is_master
from domain.model.selectors import AffinityTerm, PodAffinity

_ANY_ADDRESS = ("0.0.0.0", "")
_ANY, _EACH = "any", "each"


class Carries(enum.StrEnum):
    """Which affinity a term belongs to."""

    AFFINITY = "affinity"
    ANTI_AFFINITY = "anti-affinity"
    PREFERRED_AFFINITY = "preferred-affinity"
    PREFERRED_ANTI_AFFINITY = "preferred-anti-affinity"


class TermMark(NamedTuple):
    """A term of affinity to other pods. ``weight`` is 0 for a required one."""

    kind: Carries
    term: AffinityTerm
    weight: int


class PortMark(NamedTuple):
    """A host port as it collides: see ``ports_held``."""

    host_port: int
    protocol: str
    address: str


class MasterMark(NamedTuple):
    """The pod is a master of a cluster."""

    cluster: str


Mark = TermMark | PortMark | MasterMark


def marks_of(template: PodTemplate) -> Mapping[Mark, int]:
    """Return every mark that pods of a template carry, with how often; empty for nearly all pods."""
    marks: Counter[Mark] = Counter(terms_of(template))
    for port in template.host_ports:
        marks.update(ports_held(port))
    if is_master(template):
        marks[MasterMark(template.cluster)] += 1
    return marks


def terms_of(template: PodTemplate) -> Iterator[TermMark]:
    """Yield the terms of affinity that pods of a template carry."""
    yield from _terms(template.pod_affinity, Carries.AFFINITY, Carries.PREFERRED_AFFINITY)
    yield from _terms(template.pod_anti_affinity, Carries.ANTI_AFFINITY, Carries.PREFERRED_ANTI_AFFINITY)


def _terms(affinity: PodAffinity | None, required: Carries, preferred: Carries) -> Iterator[TermMark]:
    if affinity is not None:
        for term in affinity.required:
            yield TermMark(required, term, 0)
        for each in affinity.preferred:
            yield TermMark(preferred, each.term, each.weight)


def ports_held(port: HostPort) -> Iterator[PortMark]:
    """Yield the marks of a port that is held. It collides with those that ask for one of them.

    Two ports collide when number and protocol are equal and the addresses are equal or one of them stands
    for all.
    """
    yield PortMark(port.host_port, port.protocol, _EACH)
    yield PortMark(port.host_port, port.protocol, _ANY if port.host_ip in _ANY_ADDRESS else port.host_ip)


def ports_asked(port: HostPort) -> Iterator[PortMark]:
    """Yield the marks of held ports with which a port that is asked for collides."""
    if port.host_ip in _ANY_ADDRESS:
        yield PortMark(port.host_port, port.protocol, _EACH)
    else:
        yield PortMark(port.host_port, port.protocol, _ANY)
        yield PortMark(port.host_port, port.protocol, port.host_ip)
