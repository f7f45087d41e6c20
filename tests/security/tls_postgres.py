"""A Postgres server that asks for TLS and SCRAM, or for a client's certificate: the system's own build."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from ops.kafka import free_port
from ops.postgres.account import server_account
from ops.reaper import end

PASSWORD = "p@ss/w#rd"
CERTIFIED = "berth_cert"

_HBA = f"""\
local all all trust
hostssl all {CERTIFIED} 127.0.0.0/8 cert
hostssl all all 127.0.0.0/8 scram-sha-256
hostnossl all all 127.0.0.0/8 reject
"""


class Certificates(NamedTuple):
    """Files in PEM: a CA with what it signed, and a CA that signed none of it."""

    ca: Path
    other_ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


class TlsServer(NamedTuple):
    """A running server, and what is needed to reach it."""

    port: int
    certificates: Certificates

    def dsn(self, user: str = "berth", /, *, at: str = "127.0.0.1", **query: object) -> str:
        """Return an address without a password."""
        asked = "&".join(f"{name}={value}" for name, value in query.items())
        return f"postgresql://{user}@{at}:{self.port}/postgres?{asked}".rstrip("?")


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


def make_certificates(folder: Path) -> Certificates:
    """Make keys and certificates that last a day."""
    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    for name in ("ca", "other_ca"):
        files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"))
        _openssl("req", "-x509", *new_key, *files, "-days", "1", "-subj", f"/CN={name}")
    ca = ("-CA", str(folder / "ca.crt"), "-CAkey", str(folder / "ca.key"))
    for name, common in (("server", "localhost"), ("client", CERTIFIED)):
        files = ("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt"))
        names = ("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1") if name == "server" else ()
        _openssl("req", "-x509", *new_key, *files, *ca, "-days", "1", "-subj", f"/CN={common}", *names)
    names_of = ("ca.crt", "other_ca.crt", "server.crt", "server.key", "client.crt", "client.key")
    return Certificates._make(folder / name for name in names_of)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        message = "needs a Postgres built with TLS (Debian: postgresql); the embedded one is built without"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    return found[-1].parent


@contextlib.contextmanager
def tls_postgres(folder: Path) -> Iterator[TlsServer]:
    """Run a server on 127.0.0.1 that refuses whoever does not use TLS."""
    programs, account, port = _programs(), server_account(), free_port()
    certificates = make_certificates(folder)
    for file in (certificates.server, certificates.server_key):
        account.own(file)
    data = folder / "data"
    data.mkdir(mode=0o700)
    account.own(data)
    password = folder / "password"
    password.write_text(PASSWORD)
    account.own(password)
    options = ["--auth=trust", f"--pwfile={password}", "--username=berth", "--no-sync"]
    done = account.run([programs / "initdb", "-D", data, *options], b"")
    assert done.returncode == 0, done.stdout
    (data / "pg_hba.conf").write_text(_HBA)
    settings = {
        "listen_addresses": "127.0.0.1,127.0.0.2",
        "port": port,
        "unix_socket_directories": data,
        "fsync": "off",
        "ssl": "on",
        "ssl_ca_file": certificates.ca,
        "ssl_cert_file": certificates.server,
        "ssl_key_file": certificates.server_key,
        "password_encryption": "scram-sha-256",
    }
    with (folder / "log").open("ab") as log:
        started = account.popen(
            [programs / "postgres", "-D", data, *(f"--{key}={value}" for key, value in settings.items())], log
        )
    try:
        _wait_for(data, started, folder / "log")
        yield TlsServer(port, certificates)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            end(psutil.Process(started.pid), [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL])
        started.wait()


def _wait_for(data: Path, started: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    pid_file = data / "postmaster.pid"
    while not pid_file.exists() or "ready" not in pid_file.read_text():
        assert started.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
