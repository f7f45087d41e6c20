"""Where Kafka's brokers are, and how they are spoken to: from arguments and the environment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from berth.client.errors import NotConfigured
from berth.client.settings import variable

_HOW = ("plaintext", "tls", "sasl-plaintext", "sasl-tls")
_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_FILES = ("BERTH_KAFKA_CA_FILE", "BERTH_KAFKA_CERT_FILE", "BERTH_KAFKA_KEY_FILE")
_LOGIN = ("BERTH_KAFKA_USERNAME", "BERTH_KAFKA_PASSWORD")


class Brokers(Struct, frozen=True):
    """Some brokers (`host:port`, joined by commas), and the options by which aiokafka speaks to them."""

    bootstrap: str
    security: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        """Return where they are, without the password."""
        return f"Brokers({self.bootstrap})"

    @property
    def are_asking(self) -> bool:
        """Whether they ask who comes, or show a certificate."""
        return bool(self.security.get("security_protocol", "PLAINTEXT") != "PLAINTEXT")

    @property
    def options(self) -> dict[str, Any]:
        """What every client of aiokafka takes."""
        return {"bootstrap_servers": self.bootstrap, **self.security}


def find_brokers(
    bootstrap: str | None = None,
    security: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> Brokers:
    """Return where the brokers are, and how they are spoken to: arguments go before the environment.

    The variables are those of the commands: BERTH_KAFKA_BOOTSTRAP, BERTH_KAFKA_SECURITY (plaintext, tls,
    sasl-plaintext, sasl-tls), BERTH_KAFKA_CA_FILE, BERTH_KAFKA_CERT_FILE, BERTH_KAFKA_KEY_FILE,
    BERTH_KAFKA_SASL_MECHANISM, BERTH_KAFKA_USERNAME, BERTH_KAFKA_PASSWORD or BERTH_KAFKA_PASSWORD_FILE.

    Parameters
    ----------
    bootstrap : str, optional
        `host:port`, several joined by commas.
    security : mapping, optional
        Arguments of aiokafka, as ``security_protocol``, ``ssl_context``, ``sasl_mechanism``; with them the
        environment has no say in how brokers are spoken to.
    environ : mapping, optional
        The variables; without it those of the process.

    Raises
    ------
    NotConfigured
        No brokers are named, or the variables do not go together; the text says what to set.
    """
    found = os.environ if environ is None else environ
    named = bootstrap or found.get("BERTH_KAFKA_BOOTSTRAP")
    if not named:
        raise NotConfigured(
            "no Kafka brokers are named: pass them, as EventProducer('kafka:9092'), "
            "or set BERTH_KAFKA_BOOTSTRAP",
            code="no-address",
        )
    return Brokers(named, _security(found) if security is None else dict(security))


def _security(environ: Mapping[str, str]) -> dict[str, Any]:
    how = environ.get("BERTH_KAFKA_SECURITY") or _HOW[0]
    if how not in _HOW:
        raise NotConfigured(f"BERTH_KAFKA_SECURITY is {how!r}; allowed are {', '.join(_HOW)}")
    is_tls, is_sasl = how.endswith("tls"), how.startswith("sasl")
    files = {name: environ.get(name) or None for name in _FILES}
    login = {name: variable(environ, name) for name in _LOGIN}
    for name, value in (*(() if is_tls else files.items()), *(() if is_sasl else login.items())):
        if value is not None:
            raise NotConfigured(f"{name} has no effect: BERTH_KAFKA_SECURITY is {how}")
    options: dict[str, Any] = {"security_protocol": ("SASL_" if is_sasl else "") + _transport(is_tls)}
    if is_tls:
        options["ssl_context"] = _context(*files.values())
    if is_sasl:
        mechanism = environ.get("BERTH_KAFKA_SASL_MECHANISM") or _MECHANISMS[0]
        if mechanism not in _MECHANISMS:
            allowed = ", ".join(_MECHANISMS)
            raise NotConfigured(f"BERTH_KAFKA_SASL_MECHANISM is {mechanism!r}; allowed are {allowed}")
        for name, value in login.items():
            if value is None:
                raise NotConfigured(f"BERTH_KAFKA_SECURITY is {how}, which needs {name}")
        options["sasl_mechanism"] = mechanism
        options["sasl_plain_username"], options["sasl_plain_password"] = login.values()
    return options


def _transport(is_tls: bool) -> str:
    return "SSL" if is_tls else "PLAINTEXT"


def _context(ca_file: str | None, cert_file: str | None, key_file: str | None) -> ssl.SSLContext:
    """Return how brokers are made sure of: by an authority that vouches for them, and by their name."""
    if (cert_file is None) != (key_file is None):
        raise NotConfigured("BERTH_KAFKA_CERT_FILE and BERTH_KAFKA_KEY_FILE go together")
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        text = f"BERTH_KAFKA_CA_FILE={ca_file} holds no certificates: {error.strerror or error}"
        raise NotConfigured(text, code="no-certificates") from None
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file, password=lambda: "")
        except OSError as error:
            raise NotConfigured(
                f"BERTH_KAFKA_CERT_FILE={cert_file} and BERTH_KAFKA_KEY_FILE={key_file} are no pair without "
                f"a passphrase: {error.strerror or error}",
                code="no-certificates",
            ) from None
    return context
