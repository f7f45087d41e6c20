"""Is machine code loaded only where no other account could have put it?"""

from __future__ import annotations

import grp
import os
import pickle
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numba
import pytest

from domain.kernels.compiling import Unit
from domain.model import ownership
from domain.model.ownership import fault_of, fault_of_file

ROOT = Path(__file__).parents[2]
STRANGER = 54321
"""The number of an account and of a group that are not ours, and that nobody has."""

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another account")


def in_group(path: Path, mode: int) -> None:
    """Let a group write that others may be in: as root one without a name, else the first that is found."""
    if os.geteuid() == 0:
        os.chown(path, -1, STRANGER)
    else:
        shared = [each for each in os.getgroups() if each != os.getegid()]
        if not shared:
            pytest.skip("this account is in no group that it shares")
        os.chown(path, -1, shared[0])
    path.chmod(mode)


def by_group(path: Path) -> None:
    """Let a group write to a file or folder."""
    in_group(path, 0o775 if path.is_dir() else 0o664)


def by_all(path: Path) -> None:
    """Let all write to a file or folder."""
    path.chmod(0o777 if path.is_dir() else 0o666)


def by_stranger(path: Path) -> None:
    """Give a file or folder to another account, which alone may write to it."""
    os.chown(path, STRANGER, -1)


WAYS = [by_group, by_all, pytest.param(by_stranger, marks=as_root)]
Way = Callable[[Path], None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder below one of ours, in which kernels are kept from now on."""
    found = tmp_path / "above" / "kernels"
    found.mkdir(parents=True, mode=0o755)
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(found))
    return found


def doubling() -> Unit:
    """Return a small kernel, always the same."""

    def doubled(value: int) -> int:
        return 2 * value

    return Unit(doubled)


def kept(folder: Path) -> tuple[Path, Path]:
    """Keep the kernel; return its index and its data."""
    assert doubling()(21) == 42
    (index,), (data,) = folder.rglob("*.nbi"), folder.rglob("*.nbc")
    return index, data


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("level", [0, 1, 2], ids=["folder", "named", "above"])
def test_nothing_is_loaded_from_a_folder_that_another_account_can_change(
    folder: Path, way: Way, level: int
) -> None:
    index, _ = kept(folder)
    assert doubling().is_kept
    changed = index.parents[level]
    way(changed)
    unit = doubling()
    assert (unit.kept_in, unit.is_kept) == (None, False)
    assert unit.fault.startswith(f"{changed} is not safe to load machine code from")
    for remedy in ("chown", "chmod go-w", "NUMBA_CACHE_DIR"):
        assert remedy in unit.fault
    before = sorted(folder.rglob("*"))
    assert unit(21) == 42, "it is compiled all the same"
    assert sorted(folder.rglob("*")) == before, "and not kept there"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("which", [0, 1], ids=["index", "data"])
def test_a_file_that_another_account_can_change_is_not_unpickled_but_replaced(
    folder: Path, tmp_path: Path, way: Way, which: int
) -> None:
    """Planted while the folder was open to others, it stays theirs when the folder is closed."""
    planted, traces = kept(folder)[which], tmp_path / "traces"
    planted.write_bytes(planted_code(traces, is_index=which == 0))
    way(planted)
    unit = doubling()
    assert not unit.is_kept
    assert str(planted) in unit.fault
    assert unit(21) == 42
    assert not traces.exists(), "the code of another account ran"
    status = planted.stat()
    assert (status.st_uid, status.st_mode & 0o022) == (os.geteuid(), 0)
    assert doubling().is_kept
    assert doubling().fault == ""


def planted_code(traces: Path, *, is_index: bool) -> bytes:
    """Return a file of the cache that makes a file of this name when it is loaded."""
    evil = pickle.dumps(Evil(str(traces)))
    return (pickle.dumps(numba.__version__) if is_index else b"") + evil


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, traces: str) -> None:
        self._traces = traces

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self._traces}",)


def test_the_planted_code_would_run_if_it_were_loaded(folder: Path, tmp_path: Path) -> None:
    """So the tests above can fail."""
    index, _ = kept(folder)
    index.write_bytes(planted_code(tmp_path / "traces", is_index=True))
    assert not doubling().is_kept
    assert (tmp_path / "traces").exists()


def test_what_is_kept_is_writable_for_its_account_alone_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o002)
    try:
        index, data = kept(folder)
    finally:
        os.umask(before)
    assert [each.stat().st_mode & 0o022 for each in (index, data, index.parent)] == [0, 0, 0]
    assert doubling().is_kept


def test_a_sticky_folder_on_the_way_is_safe_and_at_the_end_is_not(tmp_path: Path) -> None:
    sticky = tmp_path / "sticky"
    own = sticky / "own"
    own.mkdir(parents=True, mode=0o755)
    sticky.chmod(0o1777)
    assert fault_of(own) == ""
    assert "all accounts can write" in fault_of(sticky)
    sticky.chmod(0o777)
    assert fault_of(own).startswith(f"{sticky} is not safe")
    assert str(own) in fault_of(own)


def test_a_link_leads_through_the_folders_of_its_target(tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "shared" / "own"
    own.mkdir(parents=True, mode=0o755)
    (tmp_path / "link").symlink_to("shared/own")
    (tmp_path / "round").symlink_to(tmp_path / "link" / ".." / "own")
    assert fault_of(tmp_path / "link") == fault_of(tmp_path / "round") == ""
    shared.chmod(0o777)
    for link in ("link", "round"):
        assert fault_of(tmp_path / link).startswith(f"{shared} is not safe")
    assert fault_of(tmp_path / "missing" / "deeper") == "", "this account makes it"


def test_a_group_of_one_account_alone_is_not_another_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many systems give each user a group, and let it write by their umask; root's groups never count so."""
    me = pwd.struct_passwd(("me", "x", STRANGER, STRANGER, "", "/", "/bin/sh"))
    other = pwd.struct_passwd(("other", "x", STRANGER + 1, STRANGER, "", "/", "/bin/sh"))
    accounts, members = [me], list[str]()
    monkeypatch.setattr("os.geteuid", lambda: STRANGER)
    monkeypatch.setattr("pwd.getpwuid", lambda _: me)
    monkeypatch.setattr("pwd.getpwall", lambda: accounts)
    monkeypatch.setattr("grp.getgrgid", lambda gid: grp.struct_group(("me", "x", gid, members)))
    assert ownership._is_private(tmp_path, STRANGER)
    assert not ownership._is_private(tmp_path, 0)
    members.append("somebody")
    assert not ownership._is_private(tmp_path, STRANGER)
    members[:] = ["me"]
    accounts.append(other)
    assert not ownership._is_private(tmp_path, STRANGER)
    accounts.remove(other)
    assert ownership._is_private(tmp_path, STRANGER)
    monkeypatch.setattr("os.listxattr", lambda _: ["system.posix_acl_access"])
    assert not ownership._is_private(tmp_path, STRANGER)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("os.listxattr", lambda _: [])
    assert not ownership._is_private(tmp_path, STRANGER)


@as_root
def test_a_link_of_another_account_in_a_sticky_folder_is_not_followed(tmp_path: Path) -> None:
    sticky, own = tmp_path / "sticky", tmp_path / "own"
    sticky.mkdir()
    sticky.chmod(0o1777)
    own.mkdir()
    link = sticky / "link"
    link.symlink_to(own)
    assert fault_of(link) == ""
    os.chown(link, STRANGER, -1, follow_symlinks=False)
    assert fault_of(link).startswith(f"{link} is not safe")


def test_a_folder_in_the_place_of_a_file_is_not_loaded(tmp_path: Path) -> None:
    assert "no file" in fault_of_file(tmp_path)
    assert fault_of_file(tmp_path / "missing") == ""


@pytest.mark.parametrize("way", WAYS)
def test_the_command_refuses_a_folder_that_is_named_to_it(tmp_path: Path, way: Way) -> None:
    named = tmp_path / "named"
    named.mkdir(mode=0o755)
    way(named)
    done = run_compile(ROOT, NUMBA_CACHE_DIR=str(named))
    assert done.returncode == 1
    assert f"{named} is not safe" in done.stderr
    assert "chown" in done.stderr
    assert not list(named.iterdir())


@pytest.mark.parametrize("way", WAYS)
def test_the_folders_beside_the_code_are_looked_at_too(tmp_path: Path, way: Way) -> None:
    """A kernel of a module of its own, in ``__pycache__`` and in the cache of the user's home."""
    code, home = tmp_path / "code", tmp_path / "home"
    for each in (code, home):
        each.mkdir(mode=0o755)
    (code / "small.py").write_text(
        "from domain.kernels.compiling import Unit\n"
        "def doubled(value: int) -> int:\n    return 2 * value\n"
        "unit = Unit(doubled)\nassert unit(21) == 42\nprint(unit.kept_in, unit.fault, sep='|')\n"
    )
    assert run_small(code, home).startswith(f"{code}/__pycache__|")
    way(code / "__pycache__")
    assert run_small(code, home).startswith(f"None|{code}/__pycache__ is not safe")
    shutil.rmtree(code / "__pycache__")
    (code / "__pycache__").write_text("a file, so that the home is next")
    assert run_small(code, home).startswith(f"{home}/.cache/numba/")
    way(home / ".cache" / "numba")
    assert run_small(code, home).startswith(f"None|{home}/.cache/numba is not safe")


def run_small(code: Path, home: Path) -> str:
    """Import a module with one kernel, in a process of its own; return what it prints."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import small"],
        env=plain | {"PYTHONPATH": f"{code}{os.pathsep}{ROOT}", "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_compile(cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `berth compile`."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "services.cli.main", "compile"],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | more,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
