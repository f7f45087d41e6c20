"""Do the steps of the page lead to a working plugin of one's own?"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from domain.plugins.registry import FILTERS, SCORES
from domain.plugins.template_filter import TemplateFilter
from domain.plugins.template_score import TemplateScore

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
COPIED = ("berth", "domain", "services", "docs", "tests", "pyproject.toml")
LINES_MAX = 60


def blocks(kind: str, language: str) -> list[str]:
    """Return the blocks of the steps that add a ``filter`` or a ``score``."""
    section = PAGE.partition(f"## Write your own {kind}")[2].partition("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)


def run(commands: str, folder: Path) -> str:
    """Run commands in a shell that stops at the first one that fails; return what they print."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of what a plugin needs, compiled kernels included: a cache is valid beside its source."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)
    return tmp_path


@pytest.mark.parametrize("kind", ["filter", "score"])
def test_the_template_is_small_and_no_plugin_itself(kind: str) -> None:
    source = (ROOT / "domain" / "plugins" / f"template_{kind}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < LINES_MAX
    assert TemplateFilter.name not in FILTERS
    assert TemplateScore.name not in SCORES


@pytest.mark.parametrize(("kind", "name"), [("filter", "MyFilter"), ("score", "MyScore")])
def test_the_steps_of_the_page_make_a_plugin(project: Path, kind: str, name: str) -> None:
    copy, register, plan, check = blocks(kind, "sh")
    (expected,) = map(json.loads, blocks(kind, "json"))
    for commands in (copy, register):
        run(commands, project)
    (answer,) = json.loads(run(plan, project))
    assert {key: answer[key] for key in expected} == expected
    assert answer["unresolvable"] == (["a"] if kind == "filter" else [])
    assert "passed" in run(check, project)
    assert f"### {name}" in (project / "docs" / "plugins.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("left_out", [0, 1], ids=["without the copy", "without the registration"])
def test_no_step_can_be_left_out(project: Path, left_out: int) -> None:
    steps = blocks("filter", "sh")[:3]
    del steps[left_out]
    with pytest.raises(AssertionError):
        run("\n".join(steps), project)
