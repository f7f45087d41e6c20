"""Does a child process run code, or see secrets, that it has no business with?"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ops.postgres.server import EmbeddedServer

ROOT = Path(__file__).parents[2]
HARMLESS_NAMES = ("psutil", "asyncio", "ops", "services", "contextlib", "json", "signal", "sitecustomize")
_STARTS = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec", "spawnv", "execv"}


@pytest.fixture
def trap(server_dir: Path) -> Path:
    """Return a directory whose modules leave a file behind when they are imported."""
    path = server_dir / "trap"
    path.mkdir()
    for name in HARMLESS_NAMES:
        (path / f"{name}.py").write_text(f"open({str(path / 'ran')!r}, 'a').write('{name} ')\n")
    path.chmod(0o755)
    return path


def test_no_child_imports_from_the_current_directory(trap: Path, server_dir: Path) -> None:
    names = ("PATH", "HOME", "NUMBA_CACHE_DIR", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    environment = kept | {"BERTH_DIR": str(server_dir / "state"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "services.cli.main", "init"],
        cwd=trap,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    ran = trap / "ran"
    assert not ran.exists(), f"ran code of the current directory: {ran.read_text()}"


def test_the_child_of_a_server_sees_no_secrets_and_stands_in_no_directory_of_ours(
    server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTH_API_KEY", "hunter2")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    others = set(psutil.Process().children(recursive=True))
    with EmbeddedServer(server_dir / "server"):
        children = set(psutil.Process().children(recursive=True)) - others
        assert {"postgres"} < {child.name() for child in children}, "and the process that watches over it"
        for child in children:
            assert "hunter2" not in child.environ().values(), child
            assert child.cwd() in ("/", str(server_dir / "server" / "data")), child


def calls() -> Iterator[tuple[str, ast.Call]]:
    for folder in ("services", "ops", "research", "benchmarks", "migrations", "domain"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    owner = node.func.value
                    starts = isinstance(owner, ast.Name) and owner.id in ("subprocess", "os", "asyncio")
                    if starts and node.func.attr in _STARTS and ast.unparse(node.func) != "asyncio.run":
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", node


def test_every_start_of_a_child_names_its_directory_and_its_environment() -> None:
    found = dict(calls())
    assert found
    for place, call in found.items():
        named = {keyword.arg for keyword in call.keywords}
        assert {"cwd", "env"} <= named, place


def test_python_is_always_started_without_the_current_directory() -> None:
    for folder in ("services", "ops", "research", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.List) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
                    assert ast.unparse(node.elts[1]) == "'-P'", f"{path}:{node.lineno}"
