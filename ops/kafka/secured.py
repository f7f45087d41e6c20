"""A broker that asks who its clients are: by password, or by certificate, over TLS; and what each may do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")

_PROPERTIES = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\\
  SASL_SSL://127.0.0.1:{sasl_port},SSL://127.0.0.1:{tls_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{sasl_port},SSL://127.0.0.1:{tls_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required {users};
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\\
  org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.ssl.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^.*CN=([^,]+).*$/$1/
ssl.keystore.type=PEM
ssl.keystore.location={key_store}
ssl.truststore.type=PEM
ssl.truststore.location={trust_store}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


class Secured(NamedTuple):
    """What a broker needs to ask its clients who they are, at two listeners with TLS.

    Who comes to its first listener, on loopback and without TLS, is asked nothing and may do everything.
    """

    key_store: Path
    """The broker's key (PKCS #8) and its certificates, PEM."""
    trust_store: Path
    """Who vouches for the certificates of clients, PEM."""
    passwords: Mapping[str, str]
    """By name, without quotes or backslashes."""

    def properties(self, **ports: int) -> str:
        """Return what stands in the broker's settings after, and so instead of, the others."""
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        return _PROPERTIES.format(
            users=users, key_store=self.key_store, trust_store=self.trust_store, **ports
        )

    def credentials(self) -> list[str]:
        """Return what the disk is formatted with, so that the names are known from the start."""
        return [
            f"--add-scram={mechanism}=[name={name},password={password}]"
            for name, password in self.passwords.items()
            for mechanism in MECHANISMS
        ]
