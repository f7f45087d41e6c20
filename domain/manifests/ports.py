"""Read the ports of containers, as far as they are ports of the node."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

import msgspec

from domain.model.errors import FieldError
from domain.model.pods import HostPort
from domain.model.validation import check_choice, check_printable, check_range

_PROTOCOLS = ("TCP", "UDP", "SCTP")


class WirePort(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """A container's port as it is written."""

    container_port: int | None = None
    host_port: int | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")
    protocol: str | None = None


def read_ports(ports: Iterable[WirePort], path: str, host_network: bool) -> Iterator[HostPort]:
    """Yield the ports of the node that ports of a container are; on the node's network all of them are."""
    for index, port in enumerate(ports):
        below = f"{path}[{index}]"
        container_port = check_range(port.container_port or 0, 0, 65535, f"{below}.containerPort")
        host_port = check_range(port.host_port or 0, 0, 65535, f"{below}.hostPort")
        protocol = check_choice(port.protocol or "TCP", _PROTOCOLS, f"{below}.protocol")
        host_ip = _check_ip(port.host_ip, f"{below}.hostIP") if port.host_ip else "0.0.0.0"
        taken = host_port or (container_port if host_network else 0)
        if taken:
            yield HostPort(host_port=taken, protocol=protocol, host_ip=host_ip)


def _check_ip(text: str, path: str) -> str:
    check_printable(text, path)  # the zone of an IPv6 address may be any text to the parser
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise FieldError(path, f"{text[:60]!a} is not an IP address") from None
    return text
