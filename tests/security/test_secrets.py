"""Does a secret ever reach a text that others read: an error, a log, the list of processes?"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.adapters.postgres.connections import Refused, connect
from services.bootstrap import Place
from services.cli.main import app
from services.cli.options import settings
from services.config import SETTINGS, SettingError, Settings
from services.parsing import path
from services.secret import redacted

SECRET = "hunter2"
ADDRESSES = [
    f"postgresql+asyncpg://berth:{SECRET}@db/berth",
    f"mysql://berth:{SECRET}@db/berth",
    f"postgresql://berth:{SECRET}/more@db/berth",
    f"postgresql://berth:{SECRET}@more@db/berth",
    f"postgresql://berth:{SECRET}#more@db/berth",
    f"postgresql://berth:{SECRET}?more@db/berth",
    f"mysql://berth:a {SECRET}@db/berth",
    f"postgresql://berth:{SECRET}@db:port/berth",
    f"berth:{SECRET}@db/berth",
]


def berth(*arguments: str, **environment: str) -> Any:
    nothing = {name: "" for setting in SETTINGS for name in (setting.env, setting.env_file) if name}
    return CliRunner().invoke(app, list(arguments), env={**nothing, **environment})


def said(done: Any) -> str:
    return f"{done.output}{done.stderr}{done.exception}"


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_a_wrong_address_of_the_database_is_refused_without_its_password(
    address: str, debug: tuple[str, ...]
) -> None:
    done = berth(*debug, "init", BERTH_POSTGRES_DSN=address)
    assert done.exit_code == 1
    assert "BERTH_POSTGRES_DSN (--postgres-dsn) is" in done.stderr
    assert SECRET not in said(done)


KEYWORDS = [
    f"host=db user=berth password={SECRET}",
    f"user=berth password = {SECRET} host=db",
    f"host=db password='{SECRET} more' user=berth",
    f"host=db password='it\\'s {SECRET}'",
    f"host=db password=a\\ {SECRET}",
    f"password={SECRET}",
    f"host=db pass word={SECRET}",
    f"postgresql://berth@db/berth password={SECRET}",
]
API_ADDRESSES = [
    f"http://127.0.0.1:9?key={SECRET}",
    f"http://127.0.0.1:9/?a=b&key={SECRET}",
    f"http://127.0.0.1:9/#key={SECRET}",
    f"http://127.0.0.1:9/;api-key={SECRET}",
    f"http://key={SECRET}@127.0.0.1:9",
    f"http://{SECRET}@127.0.0.1:9",
    f"http://me:{SECRET}@127.0.0.1:9",
    f"key={SECRET}",
    f"{SECRET}@here",
    f"http://here:{SECRET}",
]


@pytest.mark.parametrize("address", KEYWORDS)
@pytest.mark.parametrize(
    "command",
    [
        *(("init",), ("up",), ("worker",), ("relay",), ("api",), ("executor",), ("get", "nodes"), ("audit",)),
        *(("prune",), ("replay",), ("refold",), ("health",), ("api-key", "list"), ("deadletters", "list")),
    ],
)
def test_an_address_in_keywords_is_refused_by_every_command_without_its_password(
    address: str, command: tuple[str, ...]
) -> None:
    done = berth(*command, BERTH_POSTGRES_DSN=address)
    assert done.exit_code != 0
    assert SECRET not in said(done)
    flagged = berth(*command, "--postgres-dsn", address)
    assert flagged.exit_code != 0
    assert SECRET not in said(flagged)


@pytest.mark.parametrize("address", API_ADDRESSES)
@pytest.mark.parametrize(
    "command",
    [("get", "nodes"), ("--debug", "get", "nodes"), ("delete", "pod", "x"), ("explain", "pod", "x")],
)
def test_no_command_shows_the_key_in_the_address_of_an_api(address: str, command: tuple[str, ...]) -> None:
    done = berth(*command, BERTH_API_URL=address)
    assert done.exit_code == 1
    assert SECRET not in said(done)
    flagged = berth(*command, "--api", address)
    assert flagged.exit_code == 1
    assert SECRET not in said(flagged)


@pytest.mark.parametrize("address", [f"htp://me:{SECRET}@here", f"http://me:{SECRET}@here:port"])
def test_a_wrong_address_of_the_api_is_refused_without_its_password(address: str) -> None:
    done = berth("get", "nodes", BERTH_API_URL=address)
    assert (done.exit_code, "BERTH_API_URL" in done.stderr) == (1, True)
    assert SECRET not in said(done)


@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_an_api_that_is_not_there_is_named_without_its_password(debug: tuple[str, ...]) -> None:
    done = berth(*debug, "get", "nodes", BERTH_API_URL=f"http://me:{SECRET}@127.0.0.1:9")
    assert "the API at http://127.0.0.1:9 does not answer" in done.stderr
    assert SECRET not in said(done)


@pytest.mark.parametrize("query", ["sslmode=often", "password=hunter2&x"])
async def test_what_the_driver_refuses_is_told_without_the_password(query: str) -> None:
    with pytest.raises(Refused) as error:
        await connect(f"postgresql://berth:{SECRET}@127.0.0.1:9/berth?{query}", "test")
    assert SECRET not in str(error.value)


def test_values_do_not_show_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    dsn = f"postgresql://berth:{SECRET}@db/berth"
    found = Settings.from_env({"BERTH_POSTGRES_DSN": dsn, "BERTH_API_KEY": SECRET, "BERTH_SEED": "7"})
    assert found.dsn == dsn
    assert SECRET not in repr(found)
    assert "seed=7" in repr(found)
    assert SECRET not in repr(Place(dsn, None))


def test_the_log_is_redacted_with_its_tracebacks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        settings()
        try:
            raise ValueError(f"postgresql://berth:{SECRET}@db")
        except ValueError:
            logging.getLogger("berth").exception("cannot reach %s", f"postgresql://berth:{SECRET}@db")
    finally:
        root.handlers[:], root.level = handlers, level
    shown = capsys.readouterr().err
    assert shown.count("postgresql://berth:***@db") == 3
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://127.0.0.1:8080/v1/nodes", "http://127.0.0.1:8080/v1/nodes"),
        ("at 12:30:45 by me@home", "at 12:30:45 by me@home"),
        ("postgresql://u@h:1/d?sslmode=require", "postgresql://u@h:1/d?sslmode=require"),
        ("(postgresql://u:p@h)", "(postgresql://u:***@h)"),
        ("x?password=p&sslpassword=q", "x?password=***&sslpassword=***"),
        ("host=db password = p user=u", "host=db password=*** user=u"),
        ("password='it\\'s p' user=u", "password=*** user=u"),
        ("https://h/v1?key=p&limit=1", "https://h/v1?key=***&limit=1"),
        ("https://p@h/v1", "https://***@h/v1"),
        ("/v1/accesses?key=ops", "/v1/accesses?key=ops"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("berth_" + "x" * 43, "berth_***"),
    ],
)
def test_redacting(text: str, shown: str) -> None:
    assert redacted(text) == shown


# ----------------------------------------------------------------------------- where secrets come from


def test_no_secret_has_a_flag() -> None:
    named = [
        each for each in SETTINGS if each.metavar == "KEY" or "key" in each.field or "password" in each.field
    ]
    # Where a secret is, and how many of them, is none.
    whole = [each for each in named if each.parse is not path and each.metavar != "N"]
    assert [setting.field for setting in whole if setting.flags] == []
    assert {"api_key", "postgres_password"} <= {setting.field for setting in whole}


@pytest.mark.parametrize(
    "arguments",
    [
        ("init", "--postgres-dsn", f"postgresql://berth:{SECRET}@db/berth"),
        ("init", "--postgres-dsn", f"postgresql://berth@db/berth?password={SECRET}"),
        ("get", "nodes", "--api", f"http://me:{SECRET}@here"),
        ("bench", "e2e", "--kafka", "k:1", "--dsn", f"postgresql://berth:{SECRET}@db/berth"),
    ],
)
def test_a_password_in_a_flag_is_refused_since_everybody_sees_it(arguments: tuple[str, ...]) -> None:
    done = berth(*arguments)
    assert done.exit_code == 1
    assert "which all users of this machine see in the list of processes: give it in BERTH_" in done.stderr
    assert SECRET not in said(done)


def test_a_key_in_a_flag_is_refused_and_not_repeated() -> None:
    done = berth("get", "nodes", f"--api-key={SECRET}")
    assert (done.exit_code, "--api-key-file" in done.stderr) == (2, True)
    assert SECRET not in said(done)


@pytest.mark.parametrize("key", [f"{SECRET}\nx", f"{SECRET} x", f"{SECRET}\u00fc"])
@pytest.mark.parametrize("name", ["BERTH_API_KEY", "BERTH_METRICS_KEY"])
def test_a_key_that_no_request_can_carry_is_refused_and_not_repeated(name: str, key: str) -> None:
    """One of two lines was shown whole, in an error that called the API silent; one with ü was a fault."""
    done = berth("get", "nodes", **{name: key})
    assert (done.exit_code, done.stderr.split(":")[1].strip()) == (1, name)
    assert SECRET not in said(done)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def test_every_secret_can_come_from_a_file(file: Path) -> None:
    found = Settings.from_env({"BERTH_API_KEY_FILE": str(file)})
    assert found.api_key == SECRET
    assert Settings.from_env({"BERTH_API_KEY": "x"}, api_key_file=str(file)).api_key == SECRET
    file.write_text(f"postgresql://berth:{SECRET}@db/berth")
    assert Settings.from_env({"BERTH_POSTGRES_DSN_FILE": str(file)}).dsn == file.read_text()


@pytest.mark.parametrize("user", ["", "berth@"])
def test_the_password_of_the_database_can_come_apart_from_its_address(file: Path, user: str) -> None:
    file.write_text("p@ss:w/rd")
    found = Settings.from_env(
        {"BERTH_POSTGRES_DSN": f"postgresql://{user}db:5/x?sslmode=require"}
        | {"BERTH_POSTGRES_PASSWORD_FILE": str(file)}
    )
    assert found.dsn == f"postgresql://{user.rstrip('@')}:p%40ss%3Aw%2Frd@db:5/x?sslmode=require"


@pytest.mark.parametrize(
    ("mode", "content", "problem"),
    [
        (0o602, "x", "others can change this file"),
        (0o600, "", "one line"),
        (0o600, "a\nb", "one line"),
        (0o600, "x" * 100_000, "one line"),
        (0o600, b"\xff", "one line"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    file: Path, mode: int, content: str | bytes, problem: str
) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    file.chmod(mode)
    with pytest.raises(SettingError, match=f"BERTH_API_KEY_FILE .*{problem}"):
        Settings.from_env({"BERTH_API_KEY_FILE": str(file)})


def test_a_file_of_another_user_is_refused(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(file, 12345, 12345)
    with pytest.raises(SettingError, match="others can change this file"):
        Settings.from_env({"BERTH_API_KEY_FILE": str(file)})


def test_a_file_that_others_can_read_is_warned_about(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.chmod(0o644)
    assert Settings.from_env({"BERTH_API_KEY_FILE": str(file)}).api_key == SECRET
    assert "can be read by all users of this machine" in caplog.text
    done = berth("get", "nodes", "--api", "http://127.0.0.1:9", BERTH_API_KEY_FILE=str(file))
    assert done.stderr.startswith(f"warning: {file} can be read by all users of this machine: chmod 600\n")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SettingError, match=r"BERTH_API_KEY_FILE \(--api-key-file\) names .*/none: the file cannot"
    ):
        Settings.from_env({}, api_key_file=str(tmp_path / "none"))


def test_a_secret_and_its_file_exclude_each_other(file: Path) -> None:
    with pytest.raises(SettingError, match="both set"):
        Settings.from_env({"BERTH_API_KEY": "x", "BERTH_API_KEY_FILE": str(file)})
