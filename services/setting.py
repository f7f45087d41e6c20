"""How a setting is read: from its variable, its flag or a file; who may see it, and what it may be."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from domain.model.errors import BerthError
from services.secret import holds_password, read_secret, redacted


class SettingError(BerthError):
    """A setting has a value that is not allowed. The message names the setting and the allowed values."""

    code = "invalid-setting"


class Secrecy(enum.Enum):
    """What of a setting is secret. A secret is never taken from a flag: all users of a machine see flags."""

    NONE = enum.auto()
    PASSWORD = enum.auto()  # an address that may hold a password
    WHOLE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Setting:
    """How one field of ``Settings`` is read, and what it means. Its variable and its flag have its name."""

    field: str
    parse: Callable[[str], Any]
    metavar: str
    help: str
    default: str  # as it is shown
    short_flag: str | None
    secrecy: Secrecy

    @property
    def env(self) -> str:
        """The variable, such as ``BERTH_API_PORT``."""
        return f"BERTH_{self.field.upper()}"

    @property
    def env_file(self) -> str | None:
        """The variable that names a file with the value, such as ``BERTH_API_KEY_FILE``; only of secrets."""
        return None if self.secrecy is Secrecy.NONE else f"{self.env}_FILE"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flag, such as ``--api-port``, and the shorter one if there is one; none for a secret."""
        if self.secrecy is Secrecy.WHOLE:
            return ()
        flag = f"--{self.field.replace('_', '-')}"
        return (flag, self.short_flag) if self.short_flag else (flag,)

    @property
    def file_flag(self) -> str | None:
        """The flag that names a file with the value, such as ``--api-key-file``; only of secrets."""
        return None if self.secrecy is Secrecy.NONE else f"--{self.field.replace('_', '-')}-file"

    def read(self, found: Mapping[str, str], flags: Mapping[str, str | None]) -> Any:
        """Return the value, None if it is not set; a flag wins over a variable. Raises ``SettingError``."""
        flag, file_flag = flags.get(self.field), flags.get(f"{self.field}_file")
        value, file = found.get(self.env, ""), found.get(self.env_file or "", "")
        if flag is not None and (self.secrecy is Secrecy.WHOLE or (self.env_file and holds_password(flag))):
            raise SettingError(
                f"{self.flags[0]} holds a password, which all users of this machine see in the list of "
                f"processes: give it in {self.env}, or in a file that {self.env_file} names"
            )
        if flag is None and file_flag is None and value and file:
            raise SettingError(f"{self.env} and {self.env_file} are both set; one of them is allowed")
        path = (file_flag or "") if flag is None else ""
        path = path or (file if flag is None and not value else "")
        try:
            if path:
                return self.parse(read_secret(Path(path).expanduser()))
            text = value if flag is None else flag
            return self.parse(text) if text else None
        except ValueError as error:
            where = f" ({self.flags[0]})" if self.flags else ""
            if path:
                raise SettingError(f"{self.env_file} ({self.file_flag}) names {path}: {error}") from None
            # What holds a password, or where it ends, cannot be told of a value that does not parse.
            shown = "" if self.secrecy is Secrecy.WHOLE else " is refused, and not shown here"
            if self.secrecy is Secrecy.NONE:
                shown = f" is {redacted(repr(text))}"
            raise SettingError(f"{self.env}{where}{shown}: {error}") from None


def setting(
    parse: Callable[[str], Any],
    metavar: str,
    help: str,
    default: object = None,
    *,
    shown: str | None = None,
    short_flag: str | None = None,
    secrecy: Secrecy = Secrecy.NONE,
) -> Any:
    """Describe a field of ``Settings``; ``shown`` is the text for its default.

    A setting with a secret has a second variable and flag, ``…_FILE``, for a file that holds the value.
    """
    shown = shown or ("" if default in (None, ()) else str(default))
    metadata = {"setting": (parse, metavar, help, shown, short_flag, secrecy)}
    open_ = secrecy is Secrecy.NONE
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata, repr=open_)
    return dataclasses.field(default=default, metadata=metadata, repr=open_)
