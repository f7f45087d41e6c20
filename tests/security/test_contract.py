"""The OpenAPI contract under fuzzing: whatever is sent, the server has no fault and keeps its contract."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.commands import berth, environment, eventually, listed, up, url_of

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)
EXAMPLES = 4
SHORT_STREAMS = ("--api-stream-seconds", "1")  # the fuzzer reads each answer to its end
SEED = 2026
OF_THE_INTERPRETER = "AST constructor recursion depth mismatch"
"""A fault of Python 3.11 that ends the fuzzer now and then, whatever the API answers."""
TRIES_MAX = 3
OF_THE_INTERPRETER = "AST constructor recursion depth mismatch"
"""A fault of Python 3.11 that ends the fuzzer now and then, whatever the API answers."""
TRIES_MAX = 3


def fuzz(url: str, directory: Path, *, key: str | None = None, phases: str = "fuzzing") -> None:
    """Send what the contract allows and what it does not, always the same, and check each answer."""
    header = ["--header", f"Authorization: Bearer {key}"] if key else []
    command = [
        *(sys.executable, "-P", "-m", "schemathesis.cli", "run", f"{url}/openapi.json"),
        *("--phases", phases, "--max-examples", str(EXAMPLES), "--seed", str(SEED)),
        *("--checks", ",".join(CHECKS), "--continue-on-failure", "--workers", "2", "--no-color"),
    ]
    for _ in range(TRIES_MAX):
        said = subprocess.run(
            command + header,
            cwd=directory,
            env=environment(directory),
            capture_output=True,
            text=True,
            timeout=240,
        )
        if OF_THE_INTERPRETER not in said.stdout:
            break
    assert said.returncode == 0, said.stdout[-6000:] + said.stderr[-2000:]
    assert "generated" in said.stdout, "nothing was tried"


def seed_with_data(directory: Path) -> None:
    """Make decisions, a waiting group and a profile, so that answers have something in them."""
    examples = Path(__file__).parents[2] / "docs" / "examples"
    sent = sorted(examples.glob("*.yaml"))
    files = [argument for path in sent for argument in ("-f", str(path))]
    done = berth(directory, "apply", *files)
    assert done.returncode == 0, done.stderr
    eventually(lambda: len(listed(directory, "decisions")) > 5)


@pytest.mark.deep
def test_an_api_without_keys_keeps_its_contract(server_dir: Path) -> None:
    with up(server_dir, *SHORT_STREAMS):
        seed_with_data(server_dir)
        fuzz(url_of(server_dir), server_dir, phases="coverage,fuzzing")
        assert listed(server_dir, "nodes"), "the API still answers"


@pytest.mark.deep
def test_an_api_with_keys_keeps_its_contract(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = berth(server_dir, "api-key", "create", "fuzzer", "--role", "admin")
    key = made.stdout.strip()
    with up(server_dir, *SHORT_STREAMS):
        url = url_of(server_dir)
        fuzz(url, server_dir)
        refused = berth(server_dir, "get", "nodes")
        assert refused.returncode == 1
        monkeypatch.setitem(os.environ, "BERTH_API_KEY", key)
        fuzz(url, server_dir, key=key)
