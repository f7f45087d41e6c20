"""Where the API is, and the key that is shown to it: from arguments, files and the environment."""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from msgspec import Struct

from berth.client.errors import NotConfigured
from berth.client.local import directories, read_instance

_FILE_BYTES_MAX = 64 << 10
_NO_ADDRESS = re.compile(r"[\s\x00-\x1f\x7f?#\\]")
_USER = re.compile(r"//[^/]*@")
_KEY = re.compile(r"[!-~]+")


class KeyInClear(UserWarning):
    """A key crosses the network in clear."""


class Address(Struct, frozen=True):
    """Where the API is, and how it is asked.

    A proxy of the environment is used only for an address that the user named (``is_named``). Without a
    ``url`` it is the instance that runs on this machine, of which ``directory`` tells.
    """

    url: str | None
    key: str | None = None
    ca: Path | None = None
    is_named: bool = True
    directory: Path | None = None

    def __repr__(self) -> str:
        """Return where it is, without the key or a password."""
        return f"Address({without_user(self.url) if self.url else self.directory})"

    def trusted(self, url: str = "https:", *, by_proxy: bool = False) -> ssl.SSLContext | bool:
        """Return whose certificates are believed at a URL: those of a file, or the usual ones.

        To read the usual ones takes 40 ms, so they are not where nothing shows any: at ``http://``, but for
        a proxy of the environment.
        """
        if self.ca is None:
            return not url.startswith("http:") or (by_proxy and bool(getproxies()))
        try:
            return ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            text = f"BERTH_API_CA={self.ca} holds no certificates: {error.strerror or error}"
            raise NotConfigured(text, code="no-certificates") from None


def find_address(
    url: str | None = None,
    *,
    key: str | None = None,
    key_file: str | os.PathLike[str] | None = None,
    ca: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Address:
    """Return where the API is: arguments go before the environment.

    The variables are those of the commands: BERTH_API_URL or BERTH_API_URL_FILE, BERTH_API_KEY or
    BERTH_API_KEY_FILE, BERTH_API_CA, BERTH_DIR. Without an address it is the instance that runs on this
    machine.

    Raises
    ------
    NotConfigured
        There is none, or a file cannot be read; the text says what to set.
    """
    found = os.environ if environ is None else environ
    if key is not None and key_file is not None:
        raise NotConfigured("key and key_file are both given; one of them is allowed")
    shown = key or (_secret(Path(key_file)) if key_file else variable(found, "BERTH_API_KEY"))
    if shown and not _KEY.fullmatch(shown):
        raise NotConfigured("the key is none: a key is one word of ASCII letters, digits and signs")
    authority = ca or found.get("BERTH_API_CA") or None
    trusted = Path(authority).expanduser() if authority else None
    named = url or variable(found, "BERTH_API_URL")
    if named is not None:
        address = Address(checked_url(named), shown, trusted)
        if shown and in_clear(named):
            warnings.warn(
                f"the key crosses the network in clear to {_bare(named)}: use https://", KeyInClear, 3
            )
        return address
    places = directories(found)
    for directory in places:
        if read_instance(directory) is not None:
            return Address(None, shown, trusted, is_named=False, directory=directory)
    looked = " and ".join(map(str, places))
    raise NotConfigured(
        f"no API is named, and none runs here ({looked}): pass its address, as Client('https://berth:8080'), "
        "or set BERTH_API_URL, or start one with `berth up`",
        code="no-address",
    )


def checked_url(text: str) -> str:
    """Return an address of an API; raise ``NotConfigured`` where it is none."""
    try:
        parts = urlsplit(text)
        is_known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        is_bare = not (parts.query or parts.fragment or _NO_ADDRESS.search(text))
    except ValueError:
        is_known = is_bare = False
    if not is_known:
        raise NotConfigured("the API's address has to begin with http:// or https:// and name a host")
    if not is_bare:
        raise NotConfigured("the API's address ends with its host, its port or a path; here is more")
    return text.rstrip("/")


def without_user(url: str) -> str:
    """Return an address without the user and the password of a proxy that it may hold."""
    return _USER.sub("//", url, count=1)


def in_clear(url: str) -> bool:
    """Return whether what is sent to an address can be read on the way."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not _is_loopback(parts.hostname or "")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}"


def variable(environ: Mapping[str, str], name: str) -> str | None:
    """Return a variable's value, or the text of the file that its twin names."""
    value, file = environ.get(name) or None, environ.get(f"{name}_FILE") or None
    if value and file:
        raise NotConfigured(f"{name} and {name}_FILE are both set; one of them is allowed")
    if file is None:
        return value
    try:
        return _secret(Path(file))
    except NotConfigured as error:
        raise NotConfigured(f"{name}_FILE names {file}: {error}") from None


def _secret(path: Path) -> str:
    """Return the one line of a file that only its owner can change."""
    try:
        with path.expanduser().open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise NotConfigured(f"the file {path} cannot be read: {error.strerror}") from None
    if stat.S_ISREG(status.st_mode) and (
        status.st_mode & stat.S_IWOTH or status.st_uid not in (0, os.geteuid())
    ):
        raise NotConfigured(f"others can change {path}; its owner has to be root or you, and its mode 600")
    try:
        text = content.decode().strip("\r\n")
    except UnicodeDecodeError:
        text = ""
    if not text.strip() or "\n" in text or len(content) > _FILE_BYTES_MAX:
        raise NotConfigured(f"the file {path} has to hold one line of text")
    return text
