"""The stream of events of a real deployment: through its API, its commands, and its restarts."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.commands import BERTH, berth, environment, up, url_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def streamed(directory: Path, *arguments: str) -> list[Any]:
    """Return what ``berth events -o jsonl`` prints."""
    done = berth(directory, "events", "-o", "jsonl", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.deep
def test_a_stream_goes_on_through_restarts_and_ends_when_its_process_does(server_dir: Path) -> None:
    cluster = ("apply", "-f", str(EXAMPLES / "cluster.yaml"), "--wait")
    with up(server_dir):
        done = berth(server_dir, *cluster)
        assert done.returncode == 0, done.stderr
        first = streamed(server_dir, "--since", "1h", "--limit", "4")
        assert {each["event"] for each in first[:1]} == {"shards"}, "a worker took its shard before all else"
        key = (server_dir / "admin.key").read_text().strip() if (server_dir / "admin.key").exists() else None
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        ended: list[str] = []

        def read() -> None:
            with httpx.stream(
                "GET", f"{url_of(server_dir)}/v1/events", headers=headers, timeout=30
            ) as answer:
                ended.extend(answer.iter_lines())

        reading = threading.Thread(target=read)
        reading.start()
        time.sleep(2)
    reading.join(10)
    assert not reading.is_alive()
    assert "event: end" in ended
    assert any('"stopping"' in line for line in ended), ended
    with up(server_dir):
        again = streamed(server_dir, "--since", "1h", "--limit", "4")
        assert again == first, "what happened is told alike by another process"
        second = streamed(server_dir, "--after", first[1]["id"], "--limit", "2")
        assert second == first[2:]
        wrong = berth(server_dir, "events", "--after", "x")
        assert wrong.returncode == 1
        assert "is not an id of an event" in wrong.stderr


def test_watching_prints_what_comes_by_the_stream(server_dir: Path) -> None:
    with up(server_dir):
        berth(server_dir, "apply", "-f", str(EXAMPLES / "cluster.yaml"), "--wait")
        watching = subprocess.Popen(
            [*BERTH, "get", "decisions", "--watch", "-o", "jsonl", "--limit", "1"],
            env=environment(server_dir),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert watching.stdout is not None
            assert json.loads(watching.stdout.readline())["id"]
            manifest = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "late", "namespace": "default"},
                "spec": {"containers": [{"name": "c"}]},
            }
            berth(server_dir, "apply", "-f", "-", stdin=json.dumps(manifest))
            while json.loads(watching.stdout.readline())["pod"]["name"] != "late":
                pass
        finally:
            watching.kill()
            watching.communicate()


@pytest.mark.deep
def test_a_history_is_told_on_the_command_line(server_dir: Path) -> None:
    with up(server_dir):
        berth(server_dir, "apply", "-f", str(EXAMPLES / "cluster.yaml"), "--wait")
        for kind, name, said in (
            ("pod", "web-0", "bound"),
            ("pod", "default/large", "attempt"),
            ("node", "node-a", "spec"),
            ("shard", "0", "owner"),
        ):
            done = berth(server_dir, "history", kind, name)
            assert done.returncode == 0, done.stderr
            assert said in done.stdout, done.stdout
            pages = berth(server_dir, "history", kind, name, "--newest", "-o", "json")
            assert json.loads(pages.stdout)["items"], pages.stderr
        assert "Why now:" in berth(server_dir, "history", "pod", "web-0").stdout
        assert "is not known here" in berth(server_dir, "history", "node", "none").stderr
        assert "has no history" in berth(server_dir, "history", "gang", "x").stderr
