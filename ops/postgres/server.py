"""A Postgres server of our own from a Python wheel: started with berth, stopped with it, its data kept."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import platformdirs
import psutil

from domain.model.errors import BerthError
from ops.child import Reaper
from ops.owned import own_directory, write_own
from ops.postgres.account import Account, reachable, server_account, server_binaries
from ops.reaper import end

_USER = "berth"
_DATABASE = "berth"
_SOCKET_PORT = 5432
_SOCKET_PATH_BYTES_MAX = 107  # of sun_path on Linux, less its final zero
_START_TIMEOUT_SECONDS = 60.0
_LOCK_TIMEOUT_SECONDS = 45.0
_OWN_LOCK_TIMEOUT_SECONDS = 2.0

_SIGNALS = (signal.SIGINT, signal.SIGQUIT)  # the fast shutdown, and the one that recovers at the next start

_SETTINGS = {
    "max_connections": "50",
    "shared_buffers": "128MB",
    "jit": "off",
    "io_method": "sync",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "unix_socket_permissions": "0700",
    "log_line_prefix": "%m [%p] ",
}


class EmbeddedServerError(BerthError):
    """The embedded Postgres cannot be started; the message says why and what to do."""

    code = "embedded-server"


class InUse(EmbeddedServerError):
    """Another process runs the server of this directory."""


class NoData(EmbeddedServerError):
    """No server ever ran in this directory."""

    code = "no-instance"


class EmbeddedServer:
    """A Postgres server with its data in a directory; at most one per directory.

    Parameters
    ----------
    directory : Path
        Made when missing. A later start in it goes on from the same data.
    tcp_port : int, optional
        Listen there on 127.0.0.1 too, with a password (in the file ``password``); without it only a Unix
        socket in a directory of the server's own account lets anyone in.
    settings : mapping of str to str
        Of Postgres, beside ours or instead of them.
    """

    def __init__(
        self, directory: Path, tcp_port: int | None = None, settings: Mapping[str, str] = {}
    ) -> None:
        self._settings = _SETTINGS | dict(settings)
        self._directory = directory.absolute()
        self._data = self._directory / "data"
        self._tcp_port = tcp_port
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: Reaper | None = None

    def copy(self, dsn: str) -> None:
        """Make the data directory a copy of a server that runs, whose streaming replica this one will be."""
        own_directory(self._directory)
        account = server_account()
        self._data.mkdir(mode=0o700)
        account.own(self._data)
        password = unquote(urlsplit(dsn).password or "")
        write_own(self._directory / "password", password.encode())
        program = server_binaries(account) / "pg_basebackup"
        _run(account, [program, "-d", dsn, "-D", self._data, "-R", "-X", "stream", "-c", "fast"])

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, make: bool = True) -> str:
        """Start, wait until it answers, and return its address; blocks for about a second.

        Raises
        ------
        NoData
            When there are no data and none are to be made.
        EmbeddedServerError
            When another process uses the directory, or the server does not come up.
        """
        assert self._process is None, "started already"
        if not make and not self._data.exists():
            raise NoData(
                f"there is no instance in {self._directory.parent}: `berth up` sets one up and runs it; "
                "--dir or --postgres-dsn names another"
            )
        own_directory(self._directory)
        try:
            self._lock = _lock(self._directory / "lock")
            account = server_account()
            binaries = server_binaries(account)
            if not reachable(self._directory, account):
                raise EmbeddedServerError(
                    f"{self._directory} cannot be reached by the account {account.name}, which Postgres runs "
                    "as because it refuses to run as root; choose a directory outside of private ones"
                )
            _end_leftover(self._data)
            if not self._data.exists():
                self._initialise(account, binaries)
            socket_directory = self._socket_directory(account)
            self._launch(account, binaries, socket_directory)
        except BaseException:
            self.stop()
            raise
        if self._tcp_port is None:
            return f"postgresql://{_USER}@/{_DATABASE}?host={socket_directory}&port={_SOCKET_PORT}"
        password = (self._directory / "password").read_text()
        return f"postgresql://{_USER}:{password}@127.0.0.1:{self._tcp_port}/{_DATABASE}"

    def join(self) -> str | None:
        """Return the address of this directory's server that another process runs; None: it is not up."""
        lines = _pid_file(self._data)
        if lines[7:8] != ["ready"]:
            return None
        return f"postgresql://{_USER}@/{_DATABASE}?host={lines[4]}&port={lines[3]}"

    def stop(self, kill: bool = False) -> None:
        """Stop the server, cleanly or as a crash would; does nothing when it is not running."""
        if self._process is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                end(psutil.Process(self._process.pid), _SIGNALS[1:] if kill else _SIGNALS)
            self._process.wait()
            self._process = None
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _initialise(self, account: Account, binaries: Path) -> None:
        """Make the data directory beside its place and move it there when it is complete."""
        scratch = self._directory / "data.new"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        account.own(scratch)
        password = self._directory / "password"
        if not password.exists():
            write_own(password, secrets.token_urlsafe(18).encode())
        account.own(password)
        options = ["--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={password}", "--locale=C"]
        _run(account, [binaries / "initdb", "-D", scratch, "-U", _USER, "--encoding=UTF8", *options])
        create = f'CREATE DATABASE "{_DATABASE}";\n'.encode()
        _run(account, [binaries / "postgres", "--single", "-D", scratch, "postgres"], create)
        scratch.rename(self._data)

    def _socket_directory(self, account: Account) -> Path:
        """Return a directory for the socket that only the account can enter."""
        path = self._directory / "run"
        if len(os.fsencode(path / f".s.PGSQL.{_SOCKET_PORT}")) <= _SOCKET_PATH_BYTES_MAX:
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
        else:
            # Everybody can make a directory of this name first: it is used only if it was ours before.
            digest = hashlib.sha256(os.fsencode(self._directory)).hexdigest()[:12]
            path = Path(tempfile.gettempdir()) / f"berth-{digest}"
            try:
                path.mkdir(mode=0o700)
            except FileExistsError:
                status = path.lstat()
                if not stat.S_ISDIR(status.st_mode) or status.st_uid != account.uid or status.st_mode & 0o077:
                    path = Path(tempfile.mkdtemp(prefix="berth-"))
        account.own(path)
        return path

    def _launch(self, account: Account, binaries: Path, socket_directory: Path) -> None:
        settings = self._settings | {
            "unix_socket_directories": str(socket_directory),
            "listen_addresses": "" if self._tcp_port is None else "127.0.0.1",
            "port": str(self._tcp_port or _SOCKET_PORT),
        }
        log_path = self._directory / "postgres.log"
        with log_path.open("ab") as log:
            self._process = account.popen(
                [
                    binaries / "postgres",
                    "-D",
                    self._data,
                    *(f"--{key}={value}" for key, value in settings.items()),
                ],
                log,
            )
        assert self._lock is not None
        process = psutil.Process(self._process.pid)
        self._reaper = Reaper(process, _SIGNALS, keep_open=[self._lock])
        deadline = time.monotonic() + _START_TIMEOUT_SECONDS
        while _pid_file(self._data)[7:8] != ["ready"]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = log_path.read_text(errors="replace").splitlines()[-5:]
                raise EmbeddedServerError("\n".join(["Postgres does not start:", *tail, f"(see {log_path})"]))
            time.sleep(0.02)


def default_dir() -> Path:
    """Return the default data directory of the embedded server."""
    path = platformdirs.user_data_path("berth") / "embedded"
    if os.geteuid() == 0 and not reachable(path, server_account()):
        return Path("/var/lib/berth/embedded")
    return path


def _lock(path: Path) -> int:
    """Take the directory's lock; it stays with the reaper after a ``kill -9``, so wait for that.

    A child that another thread is about to start has our lock, too, until it runs its program.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 20, 0).decode() or "unknown"
            wait_seconds = _OWN_LOCK_TIMEOUT_SECONDS if holder == str(os.getpid()) else _LOCK_TIMEOUT_SECONDS
            is_leaving = holder == str(os.getpid()) or (holder.isdecimal() and not _lives(int(holder)))
            if is_leaving and time.monotonic() < began + wait_seconds:
                time.sleep(0.05)
                continue
            os.close(descriptor)
            raise InUse(
                f"{path.parent} is in use by process {holder}; stop it or choose another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return descriptor


def _lives(pid: int) -> bool:
    """Return whether a process runs; one that was killed and whose parent has not asked yet does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _pid_file(data: Path) -> list[str]:
    try:
        return [line.strip() for line in (data / "postmaster.pid").read_text().splitlines()]
    except FileNotFoundError:
        return []


def _end_leftover(data: Path) -> None:
    """Stop a server that outlived both its parent and its reaper.

    The process id may belong to another process by now (after a restart of the container, say): Postgres
    would then refuse to start, so the stale file goes. The directory's lock is held, so nobody else is here.
    """
    lines = _pid_file(data)
    if not lines:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(int(lines[0]))
        if process.name() == "postgres" and str(data) in process.cmdline():
            end(process, _SIGNALS)
            return
    (data / "postmaster.pid").unlink(missing_ok=True)


def _run(account: Account, command: list[str | Path], stdin: bytes = b"") -> None:
    done = account.run(command, stdin)
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace").strip().splitlines()[-5:]
        raise EmbeddedServerError("\n".join([f"{Path(command[0]).name} failed:", *tail]))
