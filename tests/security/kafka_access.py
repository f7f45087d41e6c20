"""A Kafka that asks who its clients are: certificates, names, and the rights that the docs give."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import trustme
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ops.kafka import KafkaServer
from ops.kafka.secured import Secured
from services.config import KafkaAccess
from tests.servers import scratch_dir

NAMES = ("berth-init", "berth-worker", "berth-relay", "berth-api", "stranger")
_OPERATIONS = {"Read": 3, "Write": 4, "Create": 5, "Describe": 8, "DescribeConfigs": 10, "AlterConfigs": 11}
_PATTERNS = {"literal": 3, "prefixed": 4}
_OF_TOPIC = 2
_ALLOW = 3


class AskedBroker(NamedTuple):
    """A broker that asks, and the files of its clients."""

    server: KafkaServer
    directory: Path
    authority: trustme.CA

    @property
    def ca_file(self) -> Path:
        return self.directory / "ca.pem"

    def by_password(self, name: str, **changed: object) -> KafkaAccess:
        """Return how a name comes in by its password."""
        told = {"ca_file": self.ca_file, "username": name, "password": password_of(name), **changed}
        return KafkaAccess(tls=True, sasl=True, **told)  # type: ignore[arg-type]

    def by_certificate(self, name: str) -> KafkaAccess:
        """Return how a name comes in by a certificate."""
        cert_file, key_file = issue(self.authority, self.directory, name, f"{name}@berth.example")
        return KafkaAccess(tls=True, ca_file=self.ca_file, cert_file=cert_file, key_file=key_file)


def password_of(name: str) -> str:
    return f"secret-of-{name}"


def issue(authority: trustme.CA, directory: Path, name: str, identity: str) -> tuple[Path, Path]:
    """Make a certificate; return its file and that of its key, which the broker's file has as well."""
    made = authority.issue_cert(identity, common_name=name)
    key = load_pem_private_key(made.private_key_pem.bytes(), None)
    key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    cert_file, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    cert_file.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
    key_file.write_bytes(key_pem)
    (directory / f"{name}.both").write_bytes(key_pem + cert_file.read_bytes())
    return cert_file, key_file


@contextlib.contextmanager
def asked_broker() -> Iterator[AskedBroker]:
    """Start the broker."""
    with scratch_dir() as directory:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(directory / "ca.pem")
        issue(authority, directory, "broker", "127.0.0.1")
        passwords = {name: password_of(name) for name in NAMES}
        secured = Secured(directory / "broker.both", directory / "ca.pem", passwords)
        server = KafkaServer(directory / "broker", secured=secured)
        with server:
            yield AskedBroker(server, directory, authority)


class _Created(Response):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    SCHEMA = Schema(("throttle_ms", Int32), ("results", Array(("code", Int16), ("message", String("utf-8")))))


class _Create(RequestStruct):  # type: ignore[misc]
    API_KEY = 30
    API_VERSION = 1
    RESPONSE_TYPE = _Created
    SCHEMA = Schema(
        (
            "creations",
            Array(
                ("resource_type", Int8),
                ("resource_name", String("utf-8")),
                ("pattern", Int8),
                ("principal", String("utf-8")),
                ("host", String("utf-8")),
                ("operation", Int8),
                ("permission", Int8),
            ),
        ),
    )


class _CreateAcls(Request[_Create]):  # type: ignore[misc]
    API_KEY = 30

    def __init__(self, creations: list[tuple[int, str, int, str, str, int, int]]) -> None:
        self._creations = creations

    def build(self, request_struct_class: type[_Create]) -> _Create:
        return request_struct_class(self._creations)


async def grant(bootstrap: str, commands: str) -> int:
    """Do what the commands of ``kafka-acls.sh`` say; return the number of rights."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--allow-principal")
    parser.add_argument("--operation", action="append")
    parser.add_argument("--topic", action="append")
    parser.add_argument("--resource-pattern-type", default="literal")
    rights = []
    for line in commands.strip().splitlines():
        said = parser.parse_args(shlex.split(line)[1:])
        pattern, who = _PATTERNS[said.resource_pattern_type], said.allow_principal
        rights += [
            (_OF_TOPIC, topic, pattern, who, "*", _OPERATIONS[operation], _ALLOW)
            for topic in said.topic
            for operation in said.operation
        ]
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        answer = await client.send(client.get_random_node(), _CreateAcls(rights))
    finally:
        await client.close()
    assert [code for code, _ in answer.results] == [0] * len(rights), answer
    return len(rights)
