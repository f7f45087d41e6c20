"""Manifests of strangers: a small file stays small work, and nothing in it steers the terminal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.cli.documents import read_values
from services.cli.main import app
from services.cli.options import CommandError
from services.cli.terminal import printable

ROOT = Path(__file__).parents[2]
PRINTERS = ("services/cli/*.py", "research/cli/*.py", "benchmarks/cli.py", "benchmarks/measured.py")


def levels(opening: str, closing: str, width: int, depth: int) -> str:
    """Return anchors a, b, c, … each of which names the one before ``width`` times."""
    text = "a: &a {k1: 1, k2: 2, k3: 3}\n"
    for at in range(1, depth):
        name, before = chr(97 + at), chr(96 + at)
        text += f"{name}: &{name} {opening}{', '.join([f'*{before}'] * width)}{closing}\n"
    return text


BOMBS = {
    "aliases": levels("[", "]", 9, 10),
    "merges": levels("{<<: [", "]}", 9, 10),
    "aliases, document after document": "\n---\n".join([levels("[", "]", 9, 6)] * 20),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_stays_small_work(name: str, tmp_path: Path) -> None:
    (tmp_path / "bomb.yaml").write_text(BOMBS[name])
    assert len(BOMBS[name]) < 10_000
    with pytest.raises(CommandError, match=r"its aliases make far more of it than its text"):
        read_values(str(tmp_path / "bomb.yaml"))


def test_aliases_that_people_use_still_work(tmp_path: Path) -> None:
    text = "base: &b {cpu: 1, memory: 2}\npods:\n" + "- {<<: *b, memory: 3, same: *b}\n" * 2000
    (tmp_path / "fine.yaml").write_text(text)
    (value,) = read_values(str(tmp_path / "fine.yaml"))
    assert value["pods"][1999] == {"cpu": 1, "memory": 3, "same": {"cpu": 1, "memory": 2}}


DEEP = {"[": "[" * 100_000, "- ": "- " * 100_000 + "a", "{": "{a: " * 50_000, "itself": "a: &a [*a]"}


@pytest.mark.parametrize("name", DEEP)
def test_a_nested_file_is_named_and_does_not_kill_the_parser(name: str, tmp_path: Path) -> None:
    (tmp_path / "deep.yaml").write_text(DEEP[name])
    with pytest.raises(CommandError, match="nested too deeply"):
        read_values(str(tmp_path / "deep.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "a: 2001-99-99",
        "a: !!int abc",
        "a: !!float abc",
        "a: !!timestamp abc",
        f"a: {'9' * 5000}",
        f"a: {':'.join(['59'] * 20_000)}",
    ],
)
def test_a_wrong_value_is_an_error_of_the_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(CommandError, match=r"wrong\.yaml"):
        read_values(str(tmp_path / "wrong.yaml"))


ESCAPES = r"\e]0;title\a\e[31m\x9b2J\u202e"  # as YAML writes them
STEERING = set("\x1b\a\x9b\u202e")
MANIFESTS = (
    'kind: Pod\napiVersion: v1\nmetadata: {name: "%s"}\n',
    'kind: "%s"\napiVersion: v1\nmetadata: {name: a}\n',
    'kind: Pod\napiVersion: v1\nmetadata: {name: a, namespace: "%s"}\n',
    'kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {nodeSelector: {"%s": b}}\n',
    'kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {"%s": 1, schedulerName: "%s"}\n',
    'kind: Node\napiVersion: v1\nmetadata: {name: a}\nstatus: {allocatable: {"%s": 1}}\n',
    'nodes: 3\n"%s": 1\n',
    'a: "%s',
)


COMMANDS = (["plan"], ["plan", "-o", "json"], ["apply", "--api", "http://127.0.0.1:1"])


@pytest.mark.parametrize("manifest", MANIFESTS)
@pytest.mark.parametrize(
    "command", [["plan"], ["plan", "-o", "json"], ["apply", "--api", "http://127.0.0.1:1"]]
)
def test_a_manifest_cannot_steer_the_terminal(manifest: str, command: list[str], tmp_path: Path) -> None:
    (tmp_path / "evil.yaml").write_text(manifest.replace("%s", ESCAPES))
    said = CliRunner().invoke(app, [*command, "-f", str(tmp_path / "evil.yaml")])
    assert said.output
    assert not set(said.output) & STEERING


def test_steering_characters_are_written_out() -> None:
    assert printable("a\x1b[31mb\tc\nd\x9be\u202ef\r") == "a\\u001b[31mb\tc\nd\\u009be\\u202ef\\u000d"
    assert printable("ümlaut 名前") == "ümlaut 名前"


def test_commands_print_through_the_one_way() -> None:
    paths = [path for pattern in PRINTERS for path in ROOT.glob(pattern)]
    assert len(paths) > 30
    for path in paths:
        if path.name == "terminal.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("typer.echo", "typer.secho", "click.echo", "print"), (
                    f"{path.name}: {called}"
                )
