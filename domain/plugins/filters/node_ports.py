"""NodePorts: a host port is held by one pod of a node at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from domain.kernels import arrays as kernel
from domain.model.marks import ports_asked
from domain.model.pods import HostPort
from domain.plugins.base import Cure, Reason
from domain.plugins.counting import CounterSpec, CountFilter, Incoming, Rule
from domain.plugins.weighers import Weigher

_COUNTED_ALONE_MAX = 4
_TAKEN = Reason("host-port-conflict", unresolvable=False)


class NodePorts(CountFilter):
    """Refuse a node where a host port of the pod is taken.

    Two ports collide when number and protocol are equal and the addresses are equal or one of them is
    ``0.0.0.0``.

    Reason codes: ``host-port-conflict`` (evicting pods could help).
    Source: kube-scheduler plugin NodePorts.
    """

    name: ClassVar[str] = "NodePorts"
    reads: ClassVar[frozenset[str]] = frozenset({"host_ports"})
    phrases: ClassVar[Mapping[str, str]] = {"host-port-conflict": "have one of its ports in use"}

    def cures(self, code: str) -> Cure:
        """See ``Plugin``: what it counts is on the node by itself."""
        return Cure.NODE | Cure.ROOM

    def rules(self, pod: Incoming) -> list[Rule]:
        """See ``CountFilter``: one per port, so that all pods that ask for it share a counter.

        Pods with many ports have one rule for all of them, as rules are few.
        """
        ports = pod.template.host_ports
        if len(ports) <= _COUNTED_ALONE_MAX:
            return [_none_holds((port,)) for port in ports]
        return [_none_holds(ports)]


def _none_holds(ports: Sequence[HostPort]) -> Rule:
    weigher = Weigher(marks=frozenset((mark, 1) for port in ports for mark in ports_asked(port)))
    text = ",".join(f"{port.host_port}/{port.protocol}" for port in ports)
    return Rule(kernel.AT_MOST, CounterSpec("", weigher, by_row=True), 0, _TAKEN, text=text)
