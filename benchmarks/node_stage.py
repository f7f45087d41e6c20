"""A node in a corner of this machine: groups as kubelet nests them, programs, and an API for an agent."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from benchmarks.stage import BenchError
from ops.child import environment, python_path
from services import bootstrap
from services.ports.cgroups import Cgroups, Feature

MID, LOW = "kubepods/burstable", "kubepods/besteffort"
BERTH = Path(sys.executable).parent / "berth"
_CONTROLLERS = ("cpu", "cpuacct", "memory", "freezer")
_GONE_SECONDS_MAX = 20.0


class Groups(NamedTuple):
    """The groups below ``root`` of each hierarchy, and the port by which they are read."""

    root: str
    mounts: Sequence[Path]
    cgroups: Cgroups

    def make(self, group: str) -> None:
        """Make a group in each hierarchy."""
        for mount in self.mounts:
            for above in reversed(Path(group).parents):
                (mount / self.root / above).mkdir(exist_ok=True)
                _hand_on(mount, mount / self.root / above)  # one that hands on may hold no processes
            (mount / self.root / group).mkdir(exist_ok=True)

    def weigh(self, group: str, shares: int) -> None:
        """Give a group the weight that kubelet gives it, in shares of version 1."""
        for mount in self.mounts:
            folder = mount / self.root / group
            for file, text in (("cpu.shares", shares), ("cpu.weight", 1 + (shares - 2) * 9_999 // 262_142)):
                if (folder / file).exists():
                    (folder / file).write_text(str(text))

    def run(self, group: str, *command: str, **how: Any) -> subprocess.Popen[str]:
        """Begin a program in a group."""

        def enter() -> None:
            for mount in self.mounts:
                (mount / self.root / group / "cgroup.procs").write_text(str(os.getpid()))

        kept = environment(PYTHONPATH=python_path())
        return subprocess.Popen(command, cwd="/", env=kept, preexec_fn=enter, text=True, **how)

    def cpu_seconds(self, group: str) -> float:
        """Return what a group has used of cpu."""
        used = self.cgroups.use(group)
        return 0.0 if used is None else used.cpu_us / 1e6


@contextlib.contextmanager
def groups() -> Iterator[Groups]:
    """Make groups of this measurement alone, and remove them behind it.

    Raises
    ------
    BenchError
        This machine has no group whose cpu could be bounded, or not for us.
    """
    root = f"berth-bench-{os.getpid()}"
    mounts = _mounts()
    try:
        for mount in mounts:
            (mount / root).mkdir()
            _hand_on(mount, mount / root)
        found = Groups(root, mounts, bootstrap.open_cgroups(root))
        for box in (MID, LOW):
            found.make(box)
        if Feature.QUOTA not in found.cgroups.features():
            raise BenchError("no group whose cpu could be bounded can be made here")
        yield found
    except OSError as error:
        raise BenchError(
            f"no groups can be made here ({error}): it needs root, and a writable cgroup"
        ) from None
    finally:
        for mount in mounts:
            for folder in sorted((mount / root).rglob("**/"), reverse=True):
                _remove(folder)


def _mounts() -> list[Path]:
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup2" or (kind == "cgroup" and set(_CONTROLLERS) & set(options.split(","))):
            found.append(Path(folder))
    return found


def _hand_on(mount: Path, folder: Path) -> None:
    """Let a group of version 2 hand on cpu and memory, where its hierarchy has them."""
    offered = mount / "cgroup.controllers"
    if offered.exists():
        for name in {"cpu", "memory"} & set(offered.read_text().split()):
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _GONE_SECONDS_MAX
    while folder.exists():
        try:
            folder.rmdir()
        except OSError:  # its last process is just ending
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Told:
    """What the API of the agent answers, and how many requests with events it was sent."""

    def __init__(self, pods: Sequence[Mapping[str, Any]], policy: Mapping[str, Any]) -> None:
        self.posts_count = 0
        listed = [{"name": "bench", "object": policy, "resource_version": 1}]
        self._items = {"/v1/pods": list(pods), "/v1/config": listed}

    def answer(self, path: str) -> dict[str, Any]:
        """Return the answer to a question."""
        if path not in self._items:
            return {"labels": {}}
        return {"items": self._items[path], "next": None}


@contextlib.contextmanager
def api(told: Told) -> Iterator[str]:
    """Serve what an agent asks of an API; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *said: Any) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._answer(200, told.answer(urlsplit(self.path).path))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            told.posts_count += 1
            self._answer(202, {"errors": []})

        def _answer(self, status: int, thing: Any) -> None:
            body = json.dumps(thing).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def agent(where: Groups, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run `berth agent` on the groups; it is up once this yields."""
    command = (str(BERTH), "agent", "--node", "bench", "--api", url, "--cgroup-root", where.root)
    process = subprocess.Popen(
        command,
        cwd="/",
        env=environment(PYTHONPATH=python_path()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        first = process.stderr.readline()
        if "is up" not in first:
            raise BenchError(f"the agent does not start: {first.strip()}")
        yield process
    finally:
        process.terminate()
        process.wait()


def pod(name: str, qos: str, cpu: str = "0") -> dict[str, Any]:
    """Return a pod as the API lists it to an agent."""
    return {
        "uid": name,
        "namespace": "bench",
        "name": name,
        "qos_class": qos,
        "priority": 0,
        "requests": {"cpu": cpu} if cpu != "0" else {},
        "silent_containers": 1,
    }
