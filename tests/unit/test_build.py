"""Do two builds of berth say that they are two?"""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from services.build import COMMIT_FILE, build, commit
from services.metrics import process_registry

ROOT = Path(__file__).parents[2]
ONE, OTHER = "1" * 40, "2" * 40


def _checkout(top: Path) -> Path:
    (top / "services").mkdir(parents=True)
    (top / "pyproject.toml").touch()
    return top / "services"


def test_this_build_is_named_by_release_and_commit() -> None:
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        head = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout")
    assert commit(ROOT / "services") == head
    assert build() == f"{version('berth')}+{head[:12]}"
    assert f'berth_build_info{{version="{build()}"}} 1.0' in generate_latest(process_registry()).decode()


@pytest.mark.parametrize("of", ["loose", "packed", "detached", "work tree"])
def test_the_commit_is_read_as_git_keeps_it(tmp_path: Path, of: str) -> None:
    services, git = _checkout(tmp_path / "top"), tmp_path / "top" / ".git"
    if of == "work tree":
        git.write_text("gitdir: ../first/.git/worktrees/top\n")
        git, home = tmp_path / "first/.git/worktrees/top", tmp_path / "first/.git"
        git.mkdir(parents=True)
        (git / "commondir").write_text("../..\n")
    else:
        home = git
        git.mkdir()
    (git / "HEAD").write_text(f"{ONE}\n" if of == "detached" else "ref: refs/heads/main\n")
    (home / "packed-refs").write_text(f"# pack-refs\n{OTHER} refs/heads/other\n{ONE} refs/heads/main\n")
    if of == "loose":
        (home / "refs/heads").mkdir(parents=True)
        (home / "refs/heads/main").write_text(f"{ONE}\n")
        (home / "packed-refs").write_text(f"{OTHER} refs/heads/main\n")
    assert commit(services) == ONE


def test_a_wheel_says_the_commit_that_was_noted_when_it_was_made(tmp_path: Path) -> None:
    (tmp_path / "services").mkdir()
    assert commit(tmp_path / "services") == ""
    (tmp_path / "services" / COMMIT_FILE).write_text(f"{ONE}\n")
    assert commit(tmp_path / "services") == ONE
    (tmp_path / "services" / COMMIT_FILE).write_text("\n")
    assert commit(tmp_path / "services") == "", "an image for which nobody named it"
