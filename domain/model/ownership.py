"""Whether another account can change a file or a folder: machine code is loaded from none that it could.

What is kept of a kernel is unpickled and run, by root where root runs berth. So the folder, every folder and
link on the way to it, and each file in it have to belong to root or to the account of this process, and
no other account may write to them. A folder on the way may be writable to all where it has the sticky bit, as
``/tmp`` has: an account renames and removes there what it owns, and nothing else.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_LINKS_MAX = 40  # as many as Linux follows
_ACL = "system.posix_acl_access"
_REMEDY = (
    "give it to the account that runs berth and take write permission from all others (chown, chmod go-w), "
    "or set NUMBA_CACHE_DIR to a directory of that account alone"
)


def fault_of(path: Path) -> str:
    """Return what of a path another account can change, and what to do; "" if there is nothing.

    What does not exist yet is no fault: this account makes it. Cost: a few system calls per folder.
    """
    steps = list(_steps(path))
    for step in steps:
        try:
            why = _why(step, is_last=step == steps[-1])
        except FileNotFoundError:
            return ""
        except OSError as error:
            why = f"it cannot be looked at ({error.strerror})"
        if why:
            on_the_way = "" if step == path else f", for what is kept in {path}"
            return f"{step} is not safe to load machine code from{on_the_way}: {why}; {_REMEDY}"
    return ""


def fault_of_file(path: Path) -> str:
    """Return why a file in a folder without fault is not to be loaded; "" if it may be, or is not there."""
    try:
        why = _why(path, is_last=True)
        is_file = stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return ""
    if not why and not is_file:
        why = "it is no file"
    return f"{path} is not loaded: {why}; it is compiled anew, and replaced" if why else ""


def close_to_others(what: Path | int) -> None:
    """Take write permission on a file or folder, or what a descriptor stands for, from group and others."""
    os.chmod(what, stat.S_IMODE(os.stat(what).st_mode) & ~(stat.S_IWGRP | stat.S_IWOTH))


def _steps(path: Path) -> Iterator[Path]:
    """Yield every folder and link that a path leads through, the root first and the path's end last."""
    at, todo, links_count = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    yield at
    while todo:
        name = todo.pop()
        if name == "..":
            at = at.parent
            continue
        step = at / name
        yield step
        if not step.is_symlink() or links_count == _LINKS_MAX:
            at = step
            continue
        links_count += 1
        target = step.readlink()
        if target.is_absolute():
            at = Path("/")
        todo.extend(reversed(target.parts[1:] if target.is_absolute() else target.parts))


def _why(step: Path, *, is_last: bool) -> str:
    """Return how another account can change what is here, "" if it cannot."""
    status = step.lstat()
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to {_name_of(status.st_uid)}"
    if stat.S_ISLNK(status.st_mode) or (not is_last and status.st_mode & stat.S_ISVTX):
        return ""
    if status.st_mode & stat.S_IWOTH:
        return "all accounts can write to it"
    if status.st_mode & stat.S_IWGRP and not _is_private(step, status.st_gid):
        return f"the group {_group_of(status.st_gid)} can write to it"
    return ""


def _is_private(step: Path, gid: int) -> bool:
    """Return whether the account of this process is alone in a group, as where each user has his own.

    The groups of root are not: containers run accounts in group 0 that no list names.
    """
    uid = os.geteuid()
    if 0 in (uid, gid) or _has_acl(step):
        return False
    try:
        own, group = pwd.getpwuid(uid), grp.getgrgid(gid)
    except KeyError:
        return False
    if (own.pw_gid, own.pw_name) != (gid, group.gr_name) or not set(group.gr_mem) <= {own.pw_name}:
        return False
    return all(each.pw_uid == uid for each in pwd.getpwall() if each.pw_gid == gid)


def _has_acl(step: Path) -> bool:
    """Return whether a file or folder lists accounts that may use it: the group's bits are theirs, too."""
    with contextlib.suppress(OSError, AttributeError):  # a file system, or a system, without
        return _ACL in os.listxattr(step)
    return False


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the account {uid}"


def _group_of(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
