"""Do packages register commands of their own, and does the product do without them?"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from services.cli import registered
from services.cli.main import app
from services.cli.registered import COMMANDS, TRACES, Commands

REGISTERED = {"bench", "search", "simulate", "study"}

runner = CliRunner()


def known(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    """Let these be all that is registered."""
    monkeypatch.setattr(registered, "entry_points", lambda group: EntryPoints(entries).select(group=group))


def test_research_and_benchmarks_register_their_commands() -> None:
    """Where this fails, install berth again: a command is known since the installation that named it."""
    assert set(registered.registered(COMMANDS)) == REGISTERED
    assert set(registered.registered(TRACES)) == {"tianchi"}
    shown = runner.invoke(app, ["--help"]).output
    assert [name for name in REGISTERED if f"│ {name} " not in shown] == []


def test_what_was_left_out_of_an_installation_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    known(
        monkeypatch,
        EntryPoint("simulate", "left_out.cli:simulate", COMMANDS),
        EntryPoint("tianchi", "left_out.cli:pack", TRACES),
    )
    shown = runner.invoke(app, ["--help"])
    assert shown.exit_code == 0
    assert "optimise" in shown.output
    assert "simulate" not in shown.output
    asked = runner.invoke(app, ["simulate", "openb"])
    assert asked.exit_code == 2
    assert "No such command 'simulate'" in asked.output
    packed = runner.invoke(app, ["optimise", "--trace", "tianchi", "--data", "."])
    assert packed.exit_code == 1
    assert "needs the package research" in packed.output


def test_a_command_is_imported_when_it_is_called_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_commands.py").write_text(
        'def greet() -> None:\n    """Greet."""\n    print("good day")\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    known(monkeypatch, EntryPoint("greet", "own_commands:greet", COMMANDS))
    assert runner.invoke(app, ["version"]).exit_code == 0
    assert "own_commands" not in sys.modules
    assert runner.invoke(app, ["greet"]).output == "good day\n"
    monkeypatch.delitem(sys.modules, "own_commands")


def test_no_other_package_takes_the_place_of_a_command_of_the_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known(
        monkeypatch, EntryPoint("version", "typer:echo", COMMANDS), EntryPoint("more", "typer:echo", COMMANDS)
    )
    own = object()
    commands = Commands({"version": own}, "Panel")
    assert commands["version"] is own
    assert list(commands) == ["version", "more"]
    assert len(commands) == 2


def test_a_slip_is_told_the_registered_command() -> None:
    asked = runner.invoke(app, ["simulat"])
    assert "Did you mean 'simulate'" in " ".join(asked.output.split())


def test_the_product_is_imported_without_research_and_benchmarks() -> None:
    code = (
        "import sys\n"
        "sys.modules['research'] = sys.modules['benchmarks'] = None\n"
        "from services.cli.main import app\n"
        "app(['version'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_function_and_a_group_are_both_commands() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert not hasattr(commands["simulate"], "commands")
    assert "functions" in commands["search"].commands
    assert commands["search"].name == "search"
