"""Does the client find the API and its key where it says, and say what is wrong without telling the key?"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.client import AsyncClient, Client, NotConfigured
from berth.client.settings import Address, KeyInClear, checked_url, find_address, in_clear

URL = "https://berth.example:8080"
KEY = "berth_" + "k" * 43


def _kept(path: Path, text: str = f"{KEY}\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def _found(url: str | None = None, environ: Mapping[str, str] | None = None, **named: Any) -> Address:
    return find_address(url, environ=environ or {}, **named)


def test_arguments_go_before_the_environment(tmp_path: Path) -> None:
    environ = {"BERTH_API_URL": "https://other", "BERTH_API_KEY": "other", "BERTH_API_CA": "/other.pem"}
    mine = _found(URL, environ, key=KEY, ca=tmp_path / "ca.pem")
    assert (mine.url, mine.key, mine.ca) == (URL, KEY, tmp_path / "ca.pem")
    theirs = _found(None, environ)
    assert (theirs.url, theirs.key, theirs.ca) == ("https://other", "other", Path("/other.pem"))
    assert _found(URL, environ, key_file=_kept(tmp_path / "key")).key == KEY
    assert mine.is_named


def test_variables_may_name_files(tmp_path: Path) -> None:
    url, key = _kept(tmp_path / "url", f"{URL}\r\n", 0o644), _kept(tmp_path / "key")
    found = _found(None, {"BERTH_API_URL_FILE": str(url), "BERTH_API_KEY_FILE": str(key)})
    assert (found.url, found.key) == (URL, KEY)


def test_what_is_empty_counts_as_not_set(tmp_path: Path) -> None:
    environ = {"BERTH_API_KEY": "", "BERTH_API_KEY_FILE": str(_kept(tmp_path / "key")), "BERTH_API_CA": ""}
    found = _found(URL, environ)
    assert (found.key, found.ca) == (KEY, None)


def test_two_sources_of_one_thing_are_refused(tmp_path: Path) -> None:
    key = _kept(tmp_path / "key")
    with pytest.raises(NotConfigured, match="BERTH_API_KEY and BERTH_API_KEY_FILE are both set"):
        _found(URL, {"BERTH_API_KEY": KEY, "BERTH_API_KEY_FILE": str(key)})
    with pytest.raises(NotConfigured, match="key and key_file are both given"):
        _found(URL, key=KEY, key_file=key)


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        (f"{KEY}\n", 0o602, "others can change"),
        (f"{KEY}\n", 0o666, "others can change"),
        ("", 0o600, "has to hold one line of text"),
        (" \n", 0o600, "has to hold one line of text"),
        (f"{KEY}\n{KEY}\n", 0o600, "has to hold one line of text"),
        ("k" * (65 << 10), 0o600, "has to hold one line of text"),
        ("two words\n", 0o600, "the key is none"),
    ],
)
def test_a_key_file_that_cannot_be_trusted_is_refused_by_name(
    tmp_path: Path, text: str, mode: int, why: str
) -> None:
    key = _kept(tmp_path / "key", text, mode)
    with pytest.raises(NotConfigured, match=why) as caught:
        _found(URL, key_file=key)
    assert KEY not in str(caught.value)
    with pytest.raises(NotConfigured, match=why):
        _found(URL, {"BERTH_API_KEY_FILE": str(key)})


def test_a_key_file_of_another_account_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = _kept(tmp_path / "key")
    if key.stat().st_uid == 0:
        os.chown(key, 12_345, 12_345)
        key.chmod(0o644)
    else:
        monkeypatch.setattr("os.geteuid", lambda: 12_345)
    with pytest.raises(NotConfigured, match="others can change"):
        _found(URL, key_file=key)


def test_a_key_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match=f"BERTH_API_KEY_FILE names {tmp_path}/none: .*cannot be read"):
        _found(URL, {"BERTH_API_KEY_FILE": f"{tmp_path}/none"})
    with pytest.raises(NotConfigured, match="cannot be read"):
        _found(URL, key_file=tmp_path)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "bytes").chmod(0o600)
    with pytest.raises(NotConfigured, match="one line of text"):
        _found(URL, key_file=tmp_path / "bytes")


@pytest.mark.parametrize(
    "key", ["a\nb", "a\r\nHost: other", "schlüssel", "a b", " begins-so", "a\x00", "\x7f"]
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_that_no_header_can_hold_is_refused_and_not_told(
    key: str, kind: type[Client | AsyncClient]
) -> None:
    with pytest.raises(NotConfigured) as caught:
        kind(URL, key=key)
    assert key not in str(caught.value)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_key_in_clear_warns_where_the_client_is_made(kind: type[Client | AsyncClient]) -> None:
    with pytest.warns(KeyInClear, match="in clear to http://berth.example: use https") as caught:
        kind("http://user:secret@berth.example:8080", key=KEY)
    assert [each.filename for each in caught] == [__file__]
    assert KEY not in str(caught[0].message)
    assert "secret" not in str(caught[0].message)


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://berth.example", KEY),
        ("http://localhost:8080", KEY),
        ("http://127.7.7.7:8080", KEY),
        ("http://[::1]:8080", KEY),
        ("http://berth.example", None),
    ],
)
def test_no_warning_where_nobody_can_read_a_key(url: str, key: str | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_address(url, key=key, environ={}).key == key


def test_a_name_that_only_looks_like_this_machine_is_not() -> None:
    for url in ("http://localhost.example", "http://127.0.0.1.example", "http://10.0.0.1", "http://[::2]"):
        assert in_clear(url), url


def test_without_an_address_or_an_instance_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotConfigured, match="set BERTH_API_URL, or start one with `berth up`") as caught:
        _found(None, {"BERTH_DIR": str(tmp_path)})
    assert caught.value.code == "no-address"
    assert str(tmp_path) in str(caught.value)


def test_the_instance_of_this_machine_is_found_unless_others_could_have_written_it(tmp_path: Path) -> None:
    told = _kept(tmp_path / "api.json", '{"url": "http://127.0.0.1:1", "secret": "s"}')
    tmp_path.chmod(0o700)
    found = _found(None, {"BERTH_DIR": str(tmp_path)})
    assert (found.url, found.directory, found.is_named) == (None, tmp_path, False)
    told.chmod(0o666)
    with pytest.raises(NotConfigured):
        _found(None, {"BERTH_DIR": str(tmp_path)})
    told.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(NotConfigured):
        _found(None, {"BERTH_DIR": str(tmp_path)})
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "url",
    ["", "berth", "berth:8080", "ftp://berth", "http://", "http://:8080", "http://berth:0", "http://berth:x",
     "http://berth:70000", "http://[::1", "http://be rth", "https://berth?key=1", "https://berth/#part",
     "https://berth\n", "https://be\x00rth", "https://berth\\@other"],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(NotConfigured):
        checked_url(url)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (f"{URL}/", URL),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://berth.example/behind/a/path/", "https://berth.example/behind/a/path"),
        ("HTTPS://Berth.Example", "HTTPS://Berth.Example"),
    ],
)
def test_an_address_is_kept_without_its_last_slash(url: str, kept: str) -> None:
    assert checked_url(url) == kept


@settings(max_examples=50)
@given(st.text(alphabet="ab.:/@[]%é1-_ \t", max_size=20), st.sampled_from(["http://", "https://"]))
def test_an_address_is_refused_as_no_configuration_or_can_be_asked(rest: str, scheme: str) -> None:
    """What httpx says of an address is never what a caller gets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeyInClear)
        with contextlib.suppress(NotConfigured), Client(f"{scheme}{rest}", key=KEY) as client:
            client._connection._opened()


def test_neither_key_nor_password_is_shown() -> None:
    address = find_address("https://user:secret@berth.example", key=KEY, environ={})
    assert repr(address) == "Address(https://berth.example)"


def test_certificates_that_are_none_are_named(tmp_path: Path) -> None:
    for content in (None, "", "no certificate"):
        place = tmp_path / "ca.pem"
        if content is not None:
            place.write_text(content)
        with Client(URL, ca=place) as client, pytest.raises(NotConfigured, match="holds no certificates"):
            client.cluster.totals()


def test_a_proxy_of_the_environment_that_is_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "nonsense://proxy")
    with Client("https://berth.example") as client, pytest.raises(NotConfigured, match="of a proxy"):
        client.cluster.totals()


@pytest.mark.parametrize(
    ("url", "by_proxy", "proxy", "are_read"),
    [
        ("https://api", False, "", True),
        ("HTTPS://api", False, "", True),
        ("http://api", False, "", False),
        ("http://api", False, "https://proxy:1", False),
        ("http://api", True, "", False),
        ("http://api", True, "https://proxy:1", True),
    ],
)
def test_certificates_are_read_where_some_are_shown(
    url: str, by_proxy: bool, proxy: str, are_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    if proxy:
        monkeypatch.setenv("http_proxy", proxy)
    assert Address(url).trusted(url, by_proxy=by_proxy) is are_read
