"""The files of the kernel by which groups are read and changed."""

from __future__ import annotations

import errno
import os
from typing import Protocol


class Files(Protocol):
    """What is done with files of the kernel. All of it raises ``OSError`` with the kernel's reason."""

    def read(self, path: str) -> str:
        """Return the text of a file."""

    def write(self, path: str, text: str) -> None:
        """Write a text in one piece. The file is never made."""

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder."""

    def attribute(self, folder: str, name: str) -> str | None:
        """Return an extended attribute of a folder, None where it has none."""

    def set_attribute(self, folder: str, name: str, text: str | None) -> None:
        """Give a folder an extended attribute, for as long as it is there; None: no longer."""

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process."""


class KernelFiles:
    """The files as they are."""

    def read(self, path: str) -> str:
        """Return the text of a file."""
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()

    def write(self, path: str, text: str) -> None:
        """Write a text in one piece; buffered files would say the kernel's reason when they are closed."""
        file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder."""
        return os.path.exists(path)

    def folders(self, path: str) -> list[str]:
        """Return the names of the folders in a folder."""
        with os.scandir(path) as entries:
            return sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))

    def attribute(self, folder: str, name: str) -> str | None:
        """Return an extended attribute of a folder, None where it has none."""
        try:
            return os.getxattr(folder, name).decode()
        except OSError as error:
            if error.errno == errno.ENODATA:
                return None
            raise

    def set_attribute(self, folder: str, name: str, text: str | None) -> None:
        """Give a folder an extended attribute; None: no longer."""
        if text is not None:
            os.setxattr(folder, name, text.encode())
        elif self.attribute(folder, name) is not None:
            os.removexattr(folder, name)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a process."""
        os.kill(pid, number)
