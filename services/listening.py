"""Where a process listens: its socket, its address, and whether others than this machine can reach it."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from pathlib import Path

from domain.model.errors import BerthError
from services.config import DEFAULT_API_PORT


class ServeError(BerthError):
    """A process cannot serve; the message says why and what to do."""

    code = "serve"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def remote_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address of a client, one of IPv4 also if it is written as IPv6; None if it is no address."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def network_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return what counts as one client: for IPv6 the network of 64 bits, of which a node has all."""
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(address), 64), strict=False))
    return str(address)


def bind(host: str, port: int, *, move: bool, other: str = "--port or --host") -> socket.socket:
    """Return a listening socket; with ``move``, any free port when the default one is taken.

    ``other`` is what to choose another of where this cannot be.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if move and port == DEFAULT_API_PORT:
            return socket.create_server((host, 0), family=family)
        raise ServeError(f"cannot listen on {host}:{port} ({_why(error)}); choose another {other}") from None


def _why(error: OSError) -> str:
    """Return the fault's message without the address that Python adds."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def url_of(listening: socket.socket, *, tls: bool = False) -> str:
    """Return the address under which this machine reaches a listening socket."""
    host, port = listening.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1"
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def tls_of(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return what the API needs to speak TLS 1.2 or newer; None where the settings name no certificate."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ServeError("BERTH_API_TLS_CERT and BERTH_API_TLS_KEY belong together; set both or none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise ServeError(
            f"BERTH_API_TLS_CERT={certificate} and BERTH_API_TLS_KEY={key} are no certificate and key: "
            f"{error.strerror or error}"
        ) from None
    return context
