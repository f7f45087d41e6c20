"""Is the reference of the commands what the commands are?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.build.cli_pages import COMMAND, PAGE, commands, main, sentence
from services.config import SETTINGS

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_as_the_commands_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_is_not_up_to_date_names_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("docs.build.cli_pages.PAGE", tmp_path / "cli-reference.md")
    assert main(["--check"]) == 1
    assert f"run `{COMMAND}`" in capsys.readouterr().err
    assert (main([]), main(["--check"])) == (0, 0)


@pytest.mark.parametrize("columns", ["20", "500"])
def test_the_page_is_the_same_on_any_terminal_and_in_any_environment(tmp_path: Path, columns: str) -> None:
    environment = {"COLUMNS": columns, "HOME": str(tmp_path), "LANG": "C", "TERM": "dumb", "SHELL": "/bin/sh"}
    more = {"BERTH_DIR": str(tmp_path), "BERTH_SHARDS": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "docs.build.cli_pages", "--check"],
        env=environment | more,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_command_option_and_setting_is_named() -> None:
    page = PAGE.read_text(encoding="utf-8")
    titles = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert titles == [*dict(commands()), "Settings"]
    sections = dict(zip(titles, re.split(r"^## .*$", page, flags=re.MULTILINE)[1:], strict=True))
    for name, command in commands():
        shown = {
            f"`{flag}"
            for each in command.params
            if not each.hidden
            for flag in each.opts[:1]
            if flag[0] == "-"
        }
        generic = {"`-h", "`--help", "`--help-all", "`--install-completion", "`--show-completion"}
        assert {flag for flag in shown - generic if flag not in sections[name]} == set(), name
    assert [each.env for each in SETTINGS if f"`{each.env}`" not in sections["Settings"]] == []


def test_one_sentence_is_taken_without_its_colours() -> None:
    assert sentence("Says [bold]one[/bold] thing: this.  And more.\n\nMore.") == "Says one thing: this."
    assert sentence("Says 0.5 of it.") == "Says 0.5 of it."
