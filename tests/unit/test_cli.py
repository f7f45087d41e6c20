"""The command line without a server: its help, its settings, how it reads input, how it says no."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import io
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text
from typer.testing import CliRunner

from services import listening
from services.cli import apply, documents
from services.cli.get import FILTERS, OTHER_NAMES, Kind, split_pod
from services.cli.main import app
from services.cli.options import CommandError
from services.cli.tables import TABLES
from services.config import SETTINGS, SettingError, Settings

runner = CliRunner()


def commands() -> Iterator[tuple[str, Any]]:
    """Return all commands with their full names."""
    pending: list[tuple[str, Any]] = [("berth", typer.main.get_command(app))]
    while pending:
        name, command = pending.pop()
        yield name, command
        pending += [(f"{name} {sub}", found) for sub, found in getattr(command, "commands", {}).items()]


def berth(*arguments: str, **environment: str) -> Any:
    """Run a command in this process with nothing but this environment."""
    nothing = {name: "" for setting in SETTINGS for name in (setting.env, setting.env_file) if name}
    return runner.invoke(app, list(arguments), env={**nothing, **environment})


# --------------------------------------------------------------------------------------------- documented


@pytest.mark.parametrize("name", sorted(dict(commands())))
def test_every_command_and_option_is_documented(name: str) -> None:
    command = dict(commands())[name]
    assert command.help, name
    missing = [param.name for param in command.params if not getattr(param, "help", None)]
    assert missing == [], name


@pytest.mark.parametrize("name", sorted(set(dict(commands())) - {"berth"}))
def test_help_breaks_lines_where_the_terminal_ends(name: str) -> None:
    paragraphs = dict(commands())[name].help.split("\n\n")
    assert [each for each in paragraphs if "\n" in each.strip()] == []


def test_the_commands_are_those_that_are_promised() -> None:
    promised = "up demo worker relay api executor init apply delete get explain trace serve-dev"
    root = typer.main.get_command(app)
    assert set(promised.split()) <= set(getattr(root, "commands", {}))


def test_every_command_is_in_a_group_of_the_help() -> None:
    root = typer.main.get_command(app)
    for name, command in getattr(root, "commands", {}).items():
        assert getattr(command, "rich_help_panel", None), name


def test_every_setting_is_described_where_it_is_defined() -> None:
    assert [setting.field for setting in SETTINGS] == [field.name for field in dataclasses.fields(Settings)]
    assert [setting.env for setting in SETTINGS if not setting.help.endswith(".")] == []


def test_a_setting_has_one_name_as_variable_and_as_flag() -> None:
    opts = {opt for _, command in commands() for param in command.params for opt in param.opts}
    for setting in SETTINGS:
        names = {setting.env: setting.flags[:1], setting.env_file: (setting.file_flag,)}
        for variable, flags in names.items():
            for flag in filter(None, flags):
                assert flag in opts, "each is a flag somewhere"
                assert f"BERTH_{flag[2:].replace('-', '_').upper()}" == variable


def test_the_page_names_every_command_and_its_output_fits_80_columns() -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text()
    assert [
        name for name in dict(commands()) if name not in page and not name.startswith("berth bench")
    ] == []
    shown = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    assert [line for text in shown for line in text.splitlines() if len(line) > 80] == []
    for kind, columns in TABLES.items():
        titles = [column.title for column in columns if not column.wide]
        assert re.search(r"^ *" + r" {2,}".join(map(re.escape, titles)) + "$", page, re.MULTILINE), kind


@pytest.mark.parametrize("name", sorted(dict(commands())))
def test_the_help_breaks_no_word_at_80_columns(name: str) -> None:
    shown = berth(*name.split()[1:], "--help", COLUMNS="80").output
    boxes = [line for line in shown.splitlines() if line.startswith("│")]
    assert [line for line in boxes if re.search(r"<[^> ]*( |$)", line) and "|" in line] == []


@pytest.mark.parametrize("name", sorted(dict(commands())))
def test_the_help_shows_what_it_has_in_brackets(name: str) -> None:
    """Rich takes them for a style, and leaves them out."""
    command = dict(commands())[name]
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]
    texts = [re.sub(r"\[/?bold\]", "", text) for text in texts]
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


def test_help_all_shows_every_setting_and_help_is_short() -> None:
    shown = berth("--help-all").output
    assert [setting.env for setting in SETTINGS if setting.env not in shown] == []
    short = berth("--help").output
    assert "BERTH_SEED" not in short
    assert "--help-all" in short


def test_the_help_of_a_command_shows_its_first_settings_and_help_all_the_others() -> None:
    short, full = berth("worker", "--help").output, berth("worker", "--help-all").output
    assert "BERTH_POSTGRES_DSN" in short
    assert "BERTH_LEASE_SECONDS" not in short
    assert "BERTH_LEASE_SECONDS" in full


def test_every_kind_has_columns_and_filters() -> None:
    assert set(TABLES) == {"owners", *(kind.value for kind in Kind)}
    assert set(FILTERS) == set(OTHER_NAMES) == set(Kind)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["simulate", "--help"], ["bench", "e2e", "--help"]])
def test_start_up_imports_nothing_heavy(arguments: list[str]) -> None:
    heavy = [
        "numba",
        "numpy",
        "fastapi",
        "sqlalchemy",
        "asyncpg",
        "aiokafka",
        "uvicorn",
        "alembic",
        "yaml",
        "httpx",
    ]
    code = (
        "import sys; from services.cli.main import app\n"
        f"if {arguments!r}: app({arguments!r}, standalone_mode=False)\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_question_to_an_api_imports_nothing_heavy() -> None:
    """Most of what a user waits for are imports."""
    heavy = ["numba", "numpy", "fastapi", "sqlalchemy", "asyncpg", "aiokafka", "pygments", "rich.progress"]
    code = (
        "import sys; from services.cli.main import app\n"
        "app(['get', 'nodes', '--api-url', 'http://127.0.0.1:9'], standalone_mode=False)\n"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the API at http://127.0.0.1:9 does not answer" in done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


# ----------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("BERTH_SHARDS", "0", "from 1 to 1024"),
        ("BERTH_SHARDS", "two", "from 1 to 1024"),
        ("BERTH_SEED", "-1", "from 0"),
        ("BERTH_API_PORT", "65536", "from 0 to 65535"),
        ("BERTH_POSTGRES_DSN", "localhost", "postgresql://"),
        ("BERTH_KAFKA_BOOTSTRAP", "localhost", "host:port"),
        ("BERTH_API_URL", "localhost:8080", "http://"),
        ("BERTH_API_URL", "http://[::1", "http://"),
        ("BERTH_API_URL", "http://here:port", "http://"),
        ("BERTH_LOG_LEVEL", "loud", "debug, info, warning, error"),
    ],
)
def test_a_bad_setting_is_named_with_what_is_allowed(variable: str, value: str, allowed: str) -> None:
    with pytest.raises(SettingError, match=variable) as error:
        Settings.from_env({variable: value})
    assert allowed in str(error.value)
    may_hold_a_password = variable in ("BERTH_POSTGRES_DSN", "BERTH_API_URL")
    assert (value in str(error.value)) != may_hold_a_password


def test_flags_win_over_variables_over_defaults() -> None:
    assert Settings.from_env({}).seed == 0
    assert Settings.from_env({"BERTH_SEED": "5", "BERTH_SHARDS": ""}).seed == 5
    assert Settings.from_env({"BERTH_SEED": "5"}, seed="6").seed == 6
    assert Settings.from_env({"BERTH_SHARDS": ""}).shards is None


def test_settings_do_not_change() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().seed = 1  # type: ignore[misc]


# ------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "arguments",
    [
        ("nope",),
        ("get",),
        ("get", "nodes", "--limit", "x"),
        ("get", "nods"),
        ("get", "shards", "--node", "n1"),
        ("explain", "pod", "a/b/c"),
        ("explain", "pod", "a/b", "--at", "25:00"),
        ("explain", "decision", "0-1", "--at", "14:00"),
        ("apply",),
        ("delete",),
        ("delete", "pod"),
        ("delete", "pod", "a/b", "-f", "x.yaml"),
        ("trace", "azure"),
    ],
)
def test_wrong_use_is_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    done = berth(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert "--help" in done.stderr


@pytest.mark.parametrize("arguments", [("get", "nodes"), ("explain", "pod", "a/b"), ("delete", "node", "n")])
def test_an_api_that_is_not_there_is_one_line_and_exit_1(arguments: tuple[str, ...]) -> None:
    done = berth(*arguments, "--api", "http://127.0.0.1:9")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the API at http://127.0.0.1:9 does not answer")
    assert "BERTH_API_URL" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_database_that_is_not_there_is_one_line_and_exit_1() -> None:
    done = berth("get", "nodes", "--postgres-dsn", "postgresql://nobody@127.0.0.1:9/none")
    assert done.exit_code == 1
    assert done.stderr.startswith("error: the ledger does not answer")
    assert done.stderr.count("\n") == 1


def test_debug_shows_where() -> None:
    done = berth("--debug", "get", "nodes", "--api", "http://127.0.0.1:9")
    assert done.exit_code == 1
    assert done.stderr.startswith("Traceback ")
    assert "services.cli.options.CommandError: the API at" in done.stderr


def test_a_bad_setting_is_exit_1() -> None:
    done = berth("init", BERTH_SHARDS="zero")
    assert done.exit_code == 1
    assert (
        done.stderr == "error: BERTH_SHARDS (--shards) is 'zero': a whole number from 1 to 1024 is allowed\n"
    )


@pytest.mark.parametrize(("text", "expected"), [("web", ("default", "web")), ("a/b", ("a", "b"))])
def test_pod_names(text: str, expected: tuple[str, str]) -> None:
    assert split_pod(text) == expected


@pytest.mark.parametrize("text", ["", "/", "a/", "/b", "a/b/c"])
def test_names_that_are_no_pod(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        split_pod(text)


def test_only_the_default_port_gives_way_to_whoever_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening.bind("127.0.0.1", 0, move=True) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(listening.ServeError, match=f"cannot listen on 127.0.0.1:{port}"):
            listening.bind("127.0.0.1", port, move=True)
        monkeypatch.setattr(listening, "DEFAULT_API_PORT", port)
        with pytest.raises(listening.ServeError, match="choose another --port"):
            listening.bind("127.0.0.1", port, move=False)
        with listening.bind("127.0.0.1", port, move=True) as moved:
            assert moved.getsockname()[1] != port
            assert listening.url_of(moved).startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_only_loopback_is_open_without_a_key(host: str, loopback: bool) -> None:
    assert listening.is_loopback(host) is loopback


# -------------------------------------------------------------------------------------------------- input

NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "4"}},
}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p1"},
    "spec": {"containers": [{"name": "c"}]},
}
WATCH = {"type": "MODIFIED", "object": POD, "id": "x"}
YAML_POD = (
    "kind: Pod\nmetadata: {name: p1, creationTimestamp: 2024-01-01T00:00:00Z}\nspec: {containers: []}\n"
)


def read(path: Path, text: str, event_type: str = "ADDED") -> list[tuple[str, str]]:
    """Return type and name of each event of a file."""
    path.write_text(text)
    return [
        (found.event["type"], found.event["object"]["metadata"]["name"])
        for found in documents.read_file(str(path), event_type)
    ]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("one.json", json.dumps(NODE), [("ADDED", "n1")]),
        ("pretty.json", json.dumps(NODE, indent=2), [("ADDED", "n1")]),
        (
            "two.json",
            json.dumps(NODE, indent=2) + "\n" + json.dumps(POD, indent=2),
            [("ADDED", "n1"), ("ADDED", "p1")],
        ),
        ("list.json", json.dumps([NODE, WATCH]), [("ADDED", "n1"), ("MODIFIED", "p1")]),
        ("kind.json", json.dumps({"kind": "List", "items": [NODE, POD]}), [("ADDED", "n1"), ("ADDED", "p1")]),
        ("pods.json", json.dumps({"kind": "PodList", "items": [POD]}), [("ADDED", "p1")]),
        (
            "lines.jsonl",
            f"{json.dumps(WATCH)}\n\n{json.dumps(NODE)}\n",
            [("MODIFIED", "p1"), ("ADDED", "n1")],
        ),
        ("failed.json", json.dumps(WATCH | {"type": "BIND_FAILED"}), [("BIND_FAILED", "p1")]),
        ("bookmark.json", json.dumps(WATCH | {"type": "BOOKMARK"}) + json.dumps(NODE), [("ADDED", "n1")]),
        ("many.yaml", f"{YAML_POD}---\n---\n{YAML_POD}", [("ADDED", "p1"), ("ADDED", "p1")]),
        ("flow.yaml", json.dumps(NODE), [("ADDED", "n1")]),
        ("sniffed", YAML_POD, [("ADDED", "p1")]),
        ("sniffed-too", json.dumps(NODE), [("ADDED", "n1")]),
        ("empty.yaml", "# nothing\n", []),
    ],
)
def test_files_of_every_form(tmp_path: Path, name: str, text: str, expected: list[Any]) -> None:
    assert read(tmp_path / name, text) == expected


def test_deleting_a_file_deletes_whatever_it_holds(tmp_path: Path) -> None:
    text = json.dumps([NODE, WATCH])
    assert read(tmp_path / "x.json", text, "DELETED") == [("DELETED", "n1"), ("DELETED", "p1")]


def test_times_that_yaml_parsed_are_text_again(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML_POD)
    (found,) = documents.read_file(str(tmp_path / "x.yaml"), "ADDED")
    assert found.event["object"]["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.yaml", "a: [1\n", "x.yaml, line 2: not YAML"),
        ("x.json", json.dumps(NODE) + '\n{"a": }', "x.json, line 2: not JSON"),
        ("x.yaml", "kind: Pod\n---\nhello\n", "x.yaml, document 2: neither a manifest"),
        ("x.json", json.dumps([NODE, [3]]), "x.json, document 1, item 2, item 1: neither a manifest"),
        ("x.json", "[" * 100_000, "nested too deeply"),
        ("x.yaml", "kind: Node\n---\nkind: [{a: {b: .nan}}]\n", "document 2: kind[0].a.b: is nan; a finite"),
        ("x.json", '{"kind": "Node", "x": [1e400]}', "document 1: x[0]: is inf; a finite number is allowed"),
        ("x.yaml", "kind: Node\nmetadata: {labels: {8: x}}\n", "metadata.labels: the key 8 is not a text"),
        ("x.yaml", "kind: !!binary aGk=\n", "document 1: kind: is a bytes of YAML"),
        ("x.yaml", "kind: &a [*a]\n", "nested too deeply"),
    ],
)
def test_files_that_do_not_read_say_where(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(CommandError) as error:
        read(tmp_path / name, text)
    assert said in str(error.value)


def test_a_stream_of_lines_comes_in_chunks() -> None:
    lines = b"".join(json.dumps(WATCH).encode() + b"\n" for _ in range(2 * documents.CHUNK + 5))
    sizes = [len(chunk) for chunk in documents.read_stream(io.BytesIO(lines), "ADDED")]
    assert sizes == [documents.CHUNK, documents.CHUNK, 5]


@pytest.mark.parametrize("text", [YAML_POD, json.dumps(NODE, indent=2), json.dumps([NODE])])
def test_a_stream_of_any_other_form_is_read_whole(text: str) -> None:
    (chunk,) = documents.read_stream(io.BytesIO(text.encode()), "ADDED")
    assert len(chunk) == 1


def test_a_bad_line_of_a_stream_is_named() -> None:
    stream = io.BytesIO(json.dumps(WATCH).encode() + b"\n{nope}\n")
    with pytest.raises(CommandError, match="stdin, line 2: not JSON"):
        list(documents.read_stream(stream, "ADDED"))


def test_an_error_in_a_stream_that_stays_open_ends_in_one_line_each() -> None:
    command = [sys.executable, "-m", "services.cli.main", "apply", "-f", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(json.dumps(WATCH).encode() + b"\n{}\n")
        process.stdin.flush()
        lines = process.stderr.read().decode().splitlines()
        assert process.wait() == 1
    assert lines == [
        "error: stdin, line 2: neither a manifest (kind, metadata) nor a watch event (type, object)",
        "nothing was sent; correct the input and apply it again",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is nothing in the input"),
        ("# nothing\n---\n", "there is nothing in the input"),
        (
            json.dumps(POD | {"spec": {"containers": [], "nodeSelector": {"x": "x" * (1 << 20)}}}),
            "(Pod p1): is 1048",
        ),
    ],
)
def test_files_with_nothing_or_too_much(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x").write_text(text)
    done = berth("apply", "-f", str(tmp_path / "x"))
    assert done.exit_code == 1
    assert said in done.stderr


BAD = """\
kind: Node
metadata: {name: fine}
status: {allocatable: {cpu: 4}}
---
kind: Pod
metadata: {name: neg}
spec: {containers: [{name: c, resources: {requests: {cpu: -1}}}]}
---
kind: Node
metadata: {name: y}
status: {allocatable: {cpu: none}}
"""


def test_nothing_of_a_bad_file_is_sent_and_all_that_is_wrong_is_said(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    done = berth("apply", "-f", str(file), "--dir", str(tmp_path / "state"))
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith(
        f"error: {file}, document 2 (Pod neg): spec.containers[0].resources.requests.cpu: "
    )
    assert lines[1].startswith(f"{file}, document 3 (Node y): status.allocatable.cpu: ")
    assert lines[2] == "nothing was sent; correct the input and apply it again"
    assert not (tmp_path / "state").exists(), "no server was started for it"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = berth("apply", "-f", str(tmp_path / "none.yaml"))
    assert done.exit_code == 1
    assert "No such file" in done.stderr


def test_the_trace_is_json_lines() -> None:
    done = berth("trace", "openb")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(events) == 9675
    assert events[0]["object"]["kind"] == "Node"


def test_a_trace_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    done = berth("trace", "openb", str(tmp_path))
    assert done.exit_code == 1
    assert "openb_node_list_all_node.csv is not in" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "wait"),
    [
        ([], None),
        (["--wait"], "folded"),
        (["--wait", "--timeout", "5s"], "folded"),
        (["--wait", "decided"], "decided"),
        (["--wait=decided"], "decided"),
    ],
)
def test_wait_needs_no_value(arguments: list[str], wait: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    async def send(settings: Any, chunks: Any, *how: Any) -> None:
        asked.append(how)

    monkeypatch.setattr(apply, "_send", send)
    for given in (["-f", "x.yaml", *arguments], [*arguments, "-f", "x.yaml"]):
        done = runner.invoke(app, ["apply", *given])
        assert done.exit_code == 0, done.output
    assert asked == [(wait, "5s" if "5s" in arguments else "30s")] * 2


def test_what_was_waited_for_is_said_and_failing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    pod = {"namespace": "shop", "name": "p"}
    bound = {"pod": pod, "outcome": "bound", "node": "n1", "reason": ""}
    waits = {"pod": pod, "outcome": "unschedulable", "node": None, "reason": "there are no nodes"}
    apply._show_fate(
        {"folded": True, "decisions": [bound, waits], "deadletters": [], "older": ["a/b"]}, "5s", ""
    )
    said = capsys.readouterr()
    assert said.out.splitlines() == ["shop/p bound on n1", "shop/p unschedulable: there are no nodes"]
    assert "a/b: a higher resourceVersion of it stands" in said.err
    letter = {"topic": "berth.usage", "path": "object.used", "message": "is not known"}
    with pytest.raises(CommandError, match=r"berth\.usage: object\.used: is not known"):
        apply._show_fate({"folded": True, "decisions": [], "deadletters": [letter], "older": []}, "5s", "")
    with pytest.raises(CommandError, match="not folded within 5s"):
        apply._show_fate({"folded": False, "decisions": [], "deadletters": []}, "5s", "")


def test_who_waits_while_workers_compile_is_told_how_many_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = "no worker holds any shard yet; 2 are starting"
    event = {"type": "ADDED", "object": {"kind": "Node", "metadata": {"name": "n"}}}

    class Waited:
        async def request(self, *_: str) -> tuple[int, bytes]:
            return 503, b'{"checks": {"workers": "%s"}}' % starting.encode()

    @contextlib.asynccontextmanager
    async def opened(_: object, *, make: bool) -> AsyncIterator[Waited]:
        assert make
        yield Waited()

    async def sent(*_: object, **__: object) -> dict[str, Any]:
        return {"accepted": 1, "duplicates": 0, "folded": False, "decisions": []}

    monkeypatch.setattr("services.cli.source.open_source", opened)
    monkeypatch.setattr("services.cli.source.send_events", sent)
    with pytest.raises(CommandError, match=f"not folded within 5s: {starting}. They are folded as soon as"):
        asyncio.run(apply._send(None, iter([[event]]), apply.Wait.FOLDED, "5s"))
