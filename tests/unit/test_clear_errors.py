"""Do commands say at once what is wrong: with a variable, a directory, a file, or a server that is silent?"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli.diff import _print as print_diff
from services.cli.main import app
from services.config import SETTINGS, unknown_variables


def berth(*arguments: str, **environment: str) -> Any:
    """Run a command in this process with nothing but this environment."""
    nothing = {name: "" for setting in SETTINGS for name in (setting.env, setting.env_file) if name}
    return CliRunner().invoke(app, list(arguments), env={**nothing, **environment})


def test_a_variable_that_is_no_setting_is_named_with_the_nearest_one() -> None:
    assert unknown_variables({"BERTH_API_PROT": "1", "BERTH_DIR": "x", "HOME": "y", "BERTH_OLD": ""}) == [
        "BERTH_API_PROT is no setting and has no effect; did you mean BERTH_API_PORT?"
    ]
    done = berth("get", "nodes", "--api", "http://127.0.0.1:9", BERTH_API_PROT="1")
    assert "did you mean BERTH_API_PORT?" in " ".join(done.stderr.split())


def test_a_directory_that_is_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("file", "file/below"):
        done = berth("get", "nodes", "--dir", str(tmp_path / name))
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert "is a file; a directory is allowed" in done.stderr


BAD = """\
kind: Pod
metadata: {name: x}
spec: {containers: [{name: c, resources: {requests: {cpu: one}}}]}
---
foo: 1
---
kind: Node
metadata: {name: n}
status: {allocatable: {cpu: {a: 1}}}
"""


@pytest.mark.parametrize("command", ["apply", "plan"])
def test_all_that_is_wrong_with_a_file_is_said(command: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = berth(command, "-f", str(file))
    assert done.exit_code == 1
    said = [line for line in done.stderr.splitlines() if str(file) in line]
    assert len(said) == 3
    for place in (
        "document 1 (Pod x): spec.containers[0].resources.requests.cpu: 'one'",
        "document 2: neither a manifest",
        "document 3 (Node n): status.allocatable.cpu: expected",
    ):
        assert any(place in line for line in said), place


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Return a port on which nobody answers: its queue of connections is full."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]
        for each in waiting:
            each.close()


@pytest.mark.parametrize(
    "flag", ["--api-url=http://127.0.0.1:{}", "--postgres-dsn=postgresql://u@127.0.0.1:{}/x"]
)
def test_a_silent_server_is_named_at_once_and_given_up_within_seconds(flag: str, silent_port: int) -> None:
    began = time.monotonic()
    done = berth("get", "nodes", flag.format(silent_port))
    assert time.monotonic() - began < 30  # 5 s, on a machine that has nothing else to do
    assert f"at 127.0.0.1:{silent_port} …" in done.stderr
    assert "did not answer within 5 s; check" in done.stderr
    assert done.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "named"), [(("soon",), "FROM"), (("1h", "soon"), "UNTIL")], ids=["from", "until"]
)
def test_diff_names_the_moment_that_is_none(arguments: tuple[str, ...], named: str) -> None:
    shown = berth("diff", *arguments)
    assert shown.exit_code == 2
    assert f"{named}: 'soon' is no moment; allowed are 1h (ago)" in shown.output


def test_diff_counts_one_node_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    sums = {"nodes": 1, "bound": 0, "pending": 0, "groups": 0, "allocatable": {}, "requested": {}, "at": None}
    came = [{"name": "n1", "change": "came", "fields": {}}]
    pods = [{"namespace": "a", "name": "p", "uid": "u", "change": "placed", "before": None, "after": "n1"}]
    found = {"from": None, "until": None, "more": False, "before": sums, "after": sums}
    print_diff({**found, "nodes": came, "pods": pods}, is_wide=False)
    assert "to the beginning: 1 placed, 1 node came." in "".join(capsys.readouterr())
