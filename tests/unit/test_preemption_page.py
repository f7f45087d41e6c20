"""Do the examples of docs/preemption.md, docs/gangs.md and docs/devices.md say what the command says?"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = "".join((ROOT / "docs" / name).read_text() for name in ("preemption.md", "gangs.md", "devices.md"))
EXAMPLES = re.findall(r"```console\n\$ berth ([^\n]*)\n(.*?)```", PAGES, re.DOTALL)


def said(command: str) -> str:
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exit_code == 0, done.output
    return done.stdout


def columns(text: str) -> list[list[str]]:
    """Return the cells of each line: a terminal shows them in columns, a pipe with tabs between."""
    return [re.split(r"\t|  +", line.rstrip()) for line in text.strip().splitlines()]


@pytest.mark.parametrize(("command", "shown"), EXAMPLES)
def test_an_example_says_what_the_command_says(
    command: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    asked, _, query = command.partition(" | jq ")
    if query:
        place, _, field = query.removeprefix(".[").partition("].")
        assert json.loads(said(asked))[int(place)][field.strip()] == json.loads(shown)
    else:
        assert columns(said(asked)) == columns(shown)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4
