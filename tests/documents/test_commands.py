"""Do the commands of README.md and docs/*.md run as they are printed?

Each command is of one kind: it needs no server, a running instance, one that is stopped, or it cannot run
here, for a reason that is written down. A command that is of none fails the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import bootstrap
from services.config import Settings
from services.ports.log import CONFIG_TOPIC, Entry
from tests.documents.commands import REPOSITORY, Command, all_commands
from tests.integration.commands import BERTH, environment, eventually, listed, up, url_of
from tests.servers import scratch_dir

SECONDS_MAX = 180
LETTERS_COUNT = 20
WATCHED_EVENTS_MAX = 20
UNPLACEABLE = (
    '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge-%d", "namespace": "shop"}, '
    '"spec": {"containers": [{"name": "a", "image": "a", "resources": {"requests": {"cpu": "9000"}}}]}}'
)
"""A pod of shop that waits wherever it is asked for."""
_SERVES = "runs until Ctrl-C on the reader's own Kafka and Postgres; `berth up` runs the same here"
CANNOT: dict[str, str] = {
    "make ": "a target of make: it installs, or runs all tests",
    "docker ": "needs Docker",
    "kubectl ": "needs a cluster of Kubernetes",
    "helm ": "needs Helm and a chart",
    "psql ": "logs in as an administrator of the reader's own database",
    "export BERTH_KAFKA_": "names the reader's own Kafka and its files",
    "export BERTH_POSTGRES_": "names the reader's own database and its password",
    "berth worker": _SERVES,
    "berth relay": _SERVES,
    "berth api --port": _SERVES,
    "curl -s -X POST localhost:8080/v1/keys": "makes a key; from then on the API asks everybody for one",
    "berth agent --node": "acts on the groups of a machine; tests/integration/test_agent.py runs it",
    "berth describe replicas": "is said when a step of 30 s ends; tests/integration/test_hosting.py asks it",
    "berth simulate tianchi": "its data does not come with berth; tests/unit/test_day.py reads it",
    "berth search functions": "minutes of processor time; tests/unit/test_search.py runs the same, shorter",
    "berth trace openb --with-deletions --speed": "takes as long as the trace at that speed: minutes",
    "berth trace openb | berth apply": "the running instance of this test was filled by it",
    "cp domain/plugins": "changes the source; tests/unit/test_own_plugin.py follows that page",
    "sed -i": "changes the source; tests/unit/test_own_plugin.py follows that page",
    "cat > my_s": "tests/unit/test_own_plugin.py follows that page",
    "berth plan -f my_s": "tests/unit/test_own_plugin.py follows that page",
    "berth deadletters resend": "names letters whose cause is mended; tests/security/test_resend.py",
    "python -m docs.build": "changes the pages; tests/unit/test_plugin_pages.py compares them",
    "python -m pytest": "tests/unit/test_own_plugin.py follows that page",
}
"""By how a command begins, why it cannot run here."""
LOCAL = (
    "berth plan ",
    "berth optimise -f",
    "berth simulate openb",
    "berth simulate day",
    "berth trace ",
    "berth version",
)
"""How commands begin that need no server."""
STOPPED = ("berth init", "berth api-key ", "berth refold", "berth prune")
"""How commands begin that need an instance on which nothing runs: they change it as a whole."""


def kind_of(command: Command) -> str:
    """Return of which kind a command is; fail where it is of none."""
    text = command.text
    if any(text.startswith(begin) for begin in CANNOT):
        return "cannot"
    if text.startswith(LOCAL):
        return "local"
    if text.startswith(STOPPED):
        return "stopped"
    if text.startswith(("berth ", "curl ")):
        return "live"
    pytest.fail(f"of which kind is this? {command}")


COMMANDS = all_commands()


def of_kind(kind: str) -> list[Command]:
    """Return the commands of a kind, each text once."""
    return list({command.text: command for command in COMMANDS if kind_of(command) == kind}.values())


class Shell:
    """Runs commands as a reader would, who has `berth` in the path and stands in the repository."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._place = directory / "reader"
        programs = self._place / "bin"
        programs.mkdir(parents=True)
        (programs / "berth").write_text(f'#!/bin/sh\nexec {" ".join(BERTH)} "$@"\n')
        (programs / "berth").chmod(0o755)
        (self._place / "docs").symlink_to(REPOSITORY / "docs")
        kept = {"PYTHONPATH": str(REPOSITORY), "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": "80"}
        self._environment = environment(directory / "berth") | kept

    def start(self, text: str) -> subprocess.Popen[str]:
        """Start a command in a shell that fails where any part of it does."""
        return subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self._place,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, text: str) -> None:
        """Run a command to its end, which must be a good one."""
        process = self.start(text)
        try:
            out, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{text}\n{out[-2000:]}\n{err[-2000:]}"
        assert "Traceback" not in err

    def an_event(self) -> str:
        """Return the id of an event of the last hour."""
        process = self.start("exec berth events --since 1h -o jsonl")
        assert process.stdout is not None
        try:
            return str(json.loads(process.stdout.readline())["id"])
        finally:
            process.kill()
            process.communicate()

    def watch(self, text: str) -> None:
        """Run a command that goes on until Ctrl-C; it must print something first, and end quietly."""
        process = self.start(f"exec {text}")
        assert process.stdout is not None
        try:
            for i in range(WATCHED_EVENTS_MAX):
                if select.select([process.stdout], [], [], 2.0)[0]:
                    break
                self.run(f"echo '{UNPLACEABLE % i}' | berth apply -f -")  # something happens, meanwhile
            assert process.stdout.readline(), process.communicate()[1]
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=SECONDS_MAX)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        assert "Traceback" not in err


def test_there_are_commands_and_each_reason_is_of_one() -> None:
    assert len(COMMANDS) > 60
    unused = [begin for begin in CANNOT if not any(each.text.startswith(begin) for each in COMMANDS)]
    assert unused == []


@pytest.fixture(scope="module")
def shell() -> Iterator[Shell]:
    """Return a shell without any instance."""
    with scratch_dir() as directory:
        yield Shell(directory)


@pytest.mark.deep
@pytest.mark.parametrize("command", of_kind("local"), ids=str)
def test_a_command_that_needs_no_server_runs_as_printed(shell: Shell, command: Command) -> None:
    shell.run(command.text)
    assert not (shell.directory / "berth").exists(), "it made an instance"


# ---------------------------------------------------------------------------------------- a running instance


async def _refused_records(directory: Path) -> None:
    """Append records that no worker can read, so that there are dead letters."""
    async with bootstrap.place(Settings.from_env({}, dir=str(directory)), join=True) as place:
        log = bootstrap.open_log(place)
        try:
            writer = await log.writer()
            await writer.append(CONFIG_TOPIC, [Entry(b"bad", b"not json")] * LETTERS_COUNT)
            await writer.aclose()
        finally:
            await log.aclose()


@pytest.fixture(scope="module")
def live() -> Iterator[Shell]:
    """Return a shell beside a `berth up` that holds the trace, the examples and some dead letters."""
    with scratch_dir() as directory:
        shell = Shell(directory)
        instance = directory / "berth"
        with up(instance):
            shell.run("berth trace openb | berth apply -f - --wait --timeout 60s")
            shell.run("berth apply -f docs/examples/cluster.yaml -f docs/examples/shop.yaml")
            asyncio.run(_refused_records(instance))
            eventually(lambda: len(listed(instance, "deadletters")) >= LETTERS_COUNT)
            yield shell


@pytest.mark.deep
@pytest.mark.parametrize("command", of_kind("live"), ids=str)
def test_a_command_that_asks_an_instance_runs_as_printed(live: Shell, command: Command) -> None:
    address = url_of(live.directory / "berth").removeprefix("http://")
    text = command.text.replace("localhost:8080", address)
    if "--after ID" in text:
        text = text.replace("--after ID", f"--after {live.an_event()}")
    if "--watch" in text or text.startswith("berth events"):
        live.watch(text.partition("#")[0].strip())
    else:
        live.run(text)
        if text.startswith("berth delete node"):
            live.run("berth apply -f docs/examples/cluster.yaml --wait")  # other pages look at it


# --------------------------------------------------------------------------------------- a stopped instance


@pytest.fixture(scope="module")
def stopped() -> Iterator[Shell]:
    """Return a shell with an instance on which nothing runs."""
    with scratch_dir() as directory:
        shell = Shell(directory)
        shell.run("berth init")
        yield shell


@pytest.mark.deep
@pytest.mark.parametrize("command", of_kind("stopped"), ids=str)
def test_a_command_for_a_stopped_instance_runs_as_printed(stopped: Shell, command: Command) -> None:
    stopped.run(command.text)
