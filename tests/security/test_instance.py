"""Does a command show its key only to the instance of its directory, and trust only files of its own user?"""

from __future__ import annotations

import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from ops.owned import NotOurs, own_directory, read_own, write_own
from ops.postgres import account
from ops.postgres.server import EmbeddedServer
from services.address import (
    ADDRESS_FILE,
    KEY_FILE,
    Instance,
    read_address,
    read_key,
    remove_address,
    write_address,
    write_key,
)
from services.cli.options import CommandError
from services.cli.source import open_source, running_instance
from services.config import Settings
from tests.integration.commands import berth, up

KEY = "berth_" + "k" * 43
OTHER_USER = 12345


class Listener(BaseHTTPRequestHandler):
    """Answers as it is told, and keeps what it was sent."""

    answer = b"{}"
    status = 200
    seen: list[str]

    def do_GET(self) -> None:
        type(self).seen.append(f"{self.path}\n{self.headers}")
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, format: str, *args: Any) -> None:
        return None


@pytest.fixture
def listener() -> Iterator[HTTPServer]:
    """Run somebody else's server, on the port that a killed instance had."""
    Listener.seen, Listener.answer, Listener.status = [], b"{}", 200
    server = HTTPServer(("127.0.0.1", 0), Listener)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    yield server
    server.shutdown()
    serving.join()
    server.server_close()


@pytest.mark.parametrize("status", [200, 404, 500])
@pytest.mark.parametrize("given", [None, KEY])
async def test_whoever_has_the_port_of_a_killed_instance_gets_no_key(
    listener: HTTPServer, tmp_path: Path, status: int, given: str | None
) -> None:
    write_address(tmp_path, f"http://127.0.0.1:{listener.server_port}")
    write_key(tmp_path, KEY)
    Listener.status = status
    with pytest.raises(CommandError, match=r"is not the instance of .*no key was sent"):
        async with open_source(Settings(dir=tmp_path, api_key=given)):
            pass
    assert len(Listener.seen) == 1, "the challenge, and nothing else"
    assert KEY not in Listener.seen[0]


@pytest.mark.parametrize("answer", [b"", b"x" * 10_000_000, b'{"answer":""}', b'{"answer":null}', b"\xff"])
async def test_no_answer_but_the_right_one_counts(
    listener: HTTPServer, tmp_path: Path, answer: bytes
) -> None:
    write_address(tmp_path, f"http://127.0.0.1:{listener.server_port}")
    Listener.answer = answer
    with pytest.raises(CommandError, match="is not the instance"):
        await running_instance(tmp_path)


async def test_an_answer_that_another_instance_gave_does_not_count(
    listener: HTTPServer, tmp_path: Path
) -> None:
    """The listener passes the challenge on to the real instance, which listens elsewhere."""
    mine = write_address(tmp_path, f"http://127.0.0.1:{listener.server_port}")
    elsewhere = Instance("http://127.0.0.1:9", mine.secret)
    assert elsewhere.answer("c" * 64) != mine.answer("c" * 64)
    assert Instance(mine.url, "0" * 64).answer("c" * 64) != mine.answer("c" * 64)


async def test_where_nobody_listens_there_is_no_instance(tmp_path: Path) -> None:
    write_address(tmp_path, "http://127.0.0.1:9")
    assert await running_instance(tmp_path) is None
    remove_address(tmp_path)
    assert await running_instance(tmp_path) is None


def test_a_running_instance_proves_itself_to_its_commands(server_dir: Path) -> None:
    with up(server_dir):
        status = (server_dir / ADDRESS_FILE).stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert berth(server_dir, "get", "nodes").returncode == 0
        found = read_address(server_dir)
        assert found is not None
        Path(server_dir / ADDRESS_FILE).write_bytes(orjson.dumps({"url": found.url, "secret": "0" * 64}))
        refused = berth(server_dir, "get", "nodes")
        assert (refused.returncode, "no key was sent" in refused.stderr) == (1, True)
        (server_dir / ADDRESS_FILE).write_bytes(orjson.dumps(found._asdict()))
    assert not (server_dir / ADDRESS_FILE).exists()


@pytest.mark.parametrize(
    ("url", "warned"),
    [("http://berth.invalid", True), ("http://127.0.0.1:9", False), ("https://berth.invalid", False)],
)
async def test_a_key_that_would_cross_the_network_in_clear_is_warned_about(
    url: str, warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_source(Settings(api_url=url, api_key=KEY)):
        pass
    shown = capsys.readouterr().err
    assert (f"the key crosses the network in clear to {url}" in shown) == warned
    assert KEY not in shown


# ------------------------------------------------------------------------------------------- files of our own


def test_files_with_secrets_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        write_key(tmp_path / "new", KEY)
        write_address(tmp_path / "new", "http://127.0.0.1:9")
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").iterdir()]
    assert modes == [0o600, 0o600], "and no scratch file stays"
    assert not stat.S_IMODE((tmp_path / "new").stat().st_mode) & 0o066
    assert read_key(tmp_path / "new") == KEY


def test_a_link_in_the_place_of_a_file_is_replaced_and_never_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / KEY_FILE).symlink_to(target)
    with pytest.raises(NotOurs, match="not safe"):
        read_key(tmp_path)
    write_key(tmp_path, KEY)
    assert (target.read_text(), read_key(tmp_path)) == ("precious", KEY)


def test_a_file_that_was_open_to_others_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / KEY_FILE).touch(mode=0o666)
    with (tmp_path / KEY_FILE).open() as held:
        write_key(tmp_path, KEY)
        assert held.read() == "", "whoever opened it before reads nothing"


@pytest.mark.parametrize("name", [ADDRESS_FILE, KEY_FILE])
def test_a_file_that_others_can_change_is_refused(tmp_path: Path, name: str) -> None:
    write_own(tmp_path / name, b"{}")
    (tmp_path / name).chmod(0o606)
    with pytest.raises(NotOurs, match=name):
        (read_address if name == ADDRESS_FILE else read_key)(tmp_path)


def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    for use in (own_directory, lambda path: write_own(path / "x", b""), lambda path: read_own(path / "x")):
        with pytest.raises(NotOurs, match="choose another"):
            use(open_to_all)
    assert not list(open_to_all.iterdir())


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@needs_root
def test_files_and_directories_of_another_user_are_refused(tmp_path: Path) -> None:
    write_key(tmp_path, KEY)
    os.chown(tmp_path / KEY_FILE, OTHER_USER, OTHER_USER)
    with pytest.raises(NotOurs):
        read_key(tmp_path)
    os.chown(tmp_path, OTHER_USER, OTHER_USER)
    with pytest.raises(NotOurs):
        write_key(tmp_path, KEY)
    with pytest.raises(NotOurs):
        EmbeddedServer(tmp_path).start()


@needs_root
def test_programs_in_a_directory_of_another_user_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started by root from a private environment, they are copied to where their account finds them."""
    monkeypatch.setattr(account, "reachable", lambda path, account: False)
    for owned in (tmp_path, tmp_path / "postgres"):
        monkeypatch.setattr(account, "_COPY", tmp_path / "postgres")
        owned.mkdir(exist_ok=True)
        os.chown(owned, OTHER_USER, OTHER_USER)
        with pytest.raises(NotOurs):
            account.server_binaries(account.server_account())
        os.chown(owned, 0, 0)


@pytest.mark.parametrize("trap", ["directory", "link", "open"])
def test_a_directory_in_tmp_that_somebody_made_before_is_not_adopted(
    server_dir: Path, monkeypatch: pytest.MonkeyPatch, trap: str
) -> None:
    """The data directory's path is too long for a socket, so its socket goes to /tmp, under a known name."""
    deep = server_dir / ("d" * 110)
    shared = server_dir / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    with EmbeddedServer(deep) as dsn:
        known = Path(dsn.partition("host=")[2].partition("&")[0])
        assert known.parent == shared
    known.rmdir()
    if trap == "link":
        known.symlink_to(server_dir)
    else:
        known.mkdir(mode=0o700)
        if trap == "open":
            known.chmod(0o777)
        if os.geteuid() == 0:
            os.chown(known, OTHER_USER, OTHER_USER)
    planted = known / ".s.PGSQL.5432.lock"
    planted.touch()
    with EmbeddedServer(deep) as dsn:
        used = Path(dsn.partition("host=")[2].partition("&")[0])
        status = used.lstat()
        if trap != "directory" or os.geteuid() == 0:
            assert used != known
        owner = next(c for c in psutil.Process().children() if c.name() == "postgres").uids().effective
        assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o700, owner)
