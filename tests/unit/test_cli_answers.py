"""What the command line says when an API refuses, and how its help and errors fit a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from services.cli import accesses, apply, source
from services.cli.main import app
from services.cli.options import CommandError
from services.cli.source import in_process, send_events
from services.cli.told import print_waiting
from services.config import Settings

FORBIDDEN = "the key ci may not send to team-b; it may send to team-a"


def pod(name: str, namespace: str) -> dict[str, Any]:
    return {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": name, "namespace": namespace}}}


async def forbids_team_b(scope: Any, receive: Any, send: Any) -> None:
    """Answer as the API does to a key that is limited to team-a."""
    if scope["method"] == "GET":
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})
        return
    message = {"more_body": True}
    body = b""
    while message.get("more_body"):
        message = await receive()
        body += message.get("body", b"")
    events = json.loads(body)
    details = [
        {"index": index, "path": "object.metadata.namespace", "message": FORBIDDEN}
        for index, event in enumerate(events)
        if event["object"]["metadata"]["namespace"] == "team-b"
    ]
    found: Any = {"accepted": len(events), "duplicates": 0}
    if details:
        text = (
            f"nothing was sent, for events[{details[0]['index']}]: {FORBIDDEN}; partial=true sends the others"
        )
        found = {"error": {"code": "forbidden", "message": text, "details": details}}
    await send({"type": "http.response.start", "status": 403 if details else 202, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(found).encode()})


async def test_a_refused_object_is_named_and_what_went_before_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        source, "open_source", lambda settings, **_: contextlib.aclosing(in_process(forbids_team_b))
    )
    chunks = iter(
        [[pod("x", "team-a")], [*(pod(f"a-{n}", "team-a") for n in range(1000)), pod("b", "team-b")]]
    )
    with pytest.raises(CommandError) as caught:
        await apply._send(Settings(), chunks)
    assert str(caught.value).splitlines() == [
        f"Pod team-b/b: metadata.namespace: {FORBIDDEN}",
        "1,001 events before it sent, nothing since; correct the input and apply it again",
    ]


async def test_a_deletion_that_is_refused_names_the_pod() -> None:
    with pytest.raises(CommandError, match=f"^Pod team-b/x: metadata.namespace: {FORBIDDEN}$"):
        await send_events(in_process(forbids_team_b), [pod("x", "team-b")])


async def test_an_error_that_names_no_event_stays_as_it_is() -> None:
    async def away(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b'{"error": {"code": "busy", "message": "full"}}'})

    with pytest.raises(CommandError, match=r"^full$"):
        await send_events(in_process(away), [pod("x", "team-a")])


async def test_who_waits_for_a_rate_is_told_why_and_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    statuses, slept = [429, 200], list[float]()

    async def busy(scope: Any, receive: Any, send: Any) -> None:
        start = {
            "type": "http.response.start",
            "status": statuses.pop(0),
            "headers": [(b"retry-after", b"7")],
        }
        await send(start)
        body = b'{"error": {"code": "rate-exceeded", "message": "the key ci may send 5 events per second"}}'
        await send({"type": "http.response.body", "body": body})

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert (await in_process(busy).request("GET", "/"))[0] == 200
    assert slept == [7]
    assert capsys.readouterr().err == "asking again in 7 s: the key ci may send 5 events per second\n"


def test_requests_are_shown_latest_first() -> None:
    shown = [{"at": f"2026-01-31T08:{at}Z"} for at in ("03:10", "03:40", "02:59", "02:01")]
    assert [each["at"][-6:-1] for each in accesses.latest_first(shown)] == [
        "03:40",
        "03:10",
        "02:59",
        "02:01",
    ]


@pytest.mark.parametrize("command", ["create", "list", "revoke"])
def test_the_owner_of_the_database_can_show_a_password_file_to_make_keys(command: str) -> None:
    shown = CliRunner().invoke(app, ["api-key", command, "--help-all"], env={"COLUMNS": "110"}).output
    assert "--postgres-password-file" in shown


@pytest.mark.parametrize("command", ["apply", "plan"])
def test_the_help_fills_its_lines(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "80"}).output
    lines = [line.strip() for line in shown.split("╭")[0].splitlines()[3:]]
    paragraphs = [part.splitlines() for part in "\n".join(lines).strip().split("\n\n")]
    assert max(map(len, paragraphs)) > 2
    for part in paragraphs:
        for line, after in itertools.pairwise(part):
            assert len(line) + 1 + len(after.split()[0]) > 76, f"{line!r} has room for {after.split()[0]!r}"


def test_an_error_breaks_between_words_on_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, image: x, ports: 7}]}\n")
    terminal, ours = os.openpty()
    command = [sys.executable, "-m", "services.cli.main", "apply", "-f", str(file)]
    environment = {**os.environ, "COLUMNS": "40", "BERTH_DIR": str(tmp_path / "state")}
    done = subprocess.run(command, stderr=ours, stdout=subprocess.PIPE, env=environment, check=False)
    os.close(ours)
    text = os.read(terminal, 10_000).decode().replace("\r\n", "\n")
    os.close(terminal)
    assert done.returncode == 1
    long = [line for line in text.splitlines() if len(line) > 40 and " " in line]
    assert text.startswith("error:")
    assert len(text.splitlines()) > 3
    assert long == []


def test_a_pod_that_loses_its_node_is_not_said_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    fates = ("unschedulable", "evicted", "orphaned", "spared", "bound")
    print_waiting([
        {"pod": {"namespace": "shop", "name": fate}, "outcome": fate, "reason": "why"} for fate in fates
    ])  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "pod/shop/unschedulable waits: why",
        "pod/shop/evicted has to leave its node: why",
        "pod/shop/orphaned lost its node: why",
    ]
