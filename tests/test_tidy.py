"""Is the house in order: the rules of style that no linter knows, and the linters themselves."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PRODUCT = ("berth", "domain", "services", "ops")
ALL = (*PRODUCT, "research", "migrations", "tests", "benchmarks", "docs")

FUNCTION_LINES_MAX = 70
METHODS_MAX, FIELDS_MAX = 25, 12
HEART = (
    "domain/model", "domain/state", "domain/counting", "domain/queue", "domain/engine", "domain/cycle",
    "services/codec", "services/ports", "services/worker", "services/relay", "services/replay",
)  # fmt: skip
LARGE = {
    "domain/counting/counters.py:CounterTable": (35, 17),
    "domain/counting/domains.py:Domains": (18, 16),
    "domain/cycle/schedule.py:Scheduler": (25, 24),
    "domain/engine/explanation.py:KernelOutput": (5, 14),
    "domain/engine/program.py:Program": (3, 19),
    "domain/engine/program.py:StaticPart": (2, 14),
    "domain/engine/slots.py:GroupSlots": (26, 17),
    "domain/plugins/registry.py:ProfilePlan": (9, 22),
    "domain/queue/gangs.py:Gangs": (13, 14),
    "domain/queue/groups.py:Gang": (14, 13),
    "domain/queue/queue.py:Queue": (41, 17),
    "domain/queue/waking.py:Waking": (22, 13),
    "domain/engine/budgets.py:Budgets": (12, 17),
    "domain/state/cluster.py:ClusterState": (22, 19),
    "domain/state/occupancy.py:Occupancy": (25, 16),
    "domain/state/pod_index.py:PodIndex": (30, 23),
    "domain/state/table.py:NodeTable": (18, 16),
    "services/adapters/memory/database.py:MemoryDatabase": (22, 49),
    "services/adapters/memory/ledger.py:MemoryLedger": (28, 2),
    "services/adapters/memory/store.py:MemoryStore": (39, 12),
    "services/adapters/postgres/store.py:PostgresStore": (29, 12),
    "services/codec/decode.py:Decoder": (9, 14),
    "services/ports/store.py:Store": (27, 0),
    "services/worker/holding.py:Holding": (7, 17),
    "services/worker/metrics.py:WorkerMetrics": (7, 26),
    "services/worker/planner.py:Planner": (30, 26),
    "services/worker/run.py:Worker": (13, 17),
}
"""Classes with more methods or fields, and how many they have."""


MAY_PRINT = ("services/cli/", "services/log_format.py", "services/worker/compiling.py")
MAY_NAME_ADAPTERS = ("services/bootstrap.py", "services/adapters/")
NOT_IN_DOMAIN = {"asyncio", "random", "time", "socket", "threading", "uuid", "secrets", "os"}
MAY_LOOK_AT_FILES = ("domain/model/ownership.py",)
"""Compiled kernels are kept in files, and loaded only where no other account can change these."""
NOT_OUR_WORDS = {
    "machine", "machines", "instance", "instances", "task", "tasks", "job", "jobs", "pool", "predicate",
    "predicates", "allocation", "round", "loop", "tier",
}  # fmt: skip
HOST_FIELDS = ("host_port", "host_ip", "host_network", "host_users", "HostPort")
"""Words of the manifests, and the only ones in which a node may be called a host."""

REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("maven", "org"), ("npmjs", "org"), ("npmjs", "com"),
        ("crates", "io"), ("docker", "io"), ("ghcr", "io"), ("quay", "io"), ("conda", "org"),
        ("anaconda", "org"), ("debian", "org"), ("rubygems", "org"), ("golang", "org"),
    )
)  # fmt: skip


@cache
def sources(*folders: str) -> tuple[Path, ...]:
    """Return the Python files of some folders, relative to the repository."""
    return tuple(
        path.relative_to(ROOT)
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "__pycache__" not in path.parts
    )


@cache
def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def imports(path: Path) -> Iterator[str]:
    """Yield what a file imports, ``a.b.c`` also for ``from a.b import c``."""
    for each in ast.walk(tree_of(path)):
        if isinstance(each, ast.Import):
            yield from (alias.name for alias in each.names)
        elif isinstance(each, ast.ImportFrom) and each.module:
            yield from (f"{each.module}.{alias.name}" for alias in each.names)


def identifiers(path: Path) -> Iterator[str]:
    for each in ast.walk(tree_of(path)):
        match each:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name


def starts_with(path: Path, prefixes: tuple[str, ...]) -> bool:
    return path.as_posix().startswith(prefixes)


def test_the_rules_look_at_something() -> None:
    assert len(sources("domain")) > 30
    assert len(sources("services")) > 30
    assert Path("tests/test_tidy.py") in sources("tests")


def test_every_module_opens_with_a_sentence() -> None:
    """Tests may ask a question."""
    wrong = []
    for path in sources(*ALL):
        first = (ast.get_docstring(tree_of(path)) or "").partition("\n")[0]
        ends = (".", "?") if path.parts[0] == "tests" else (".",)
        if text_of(path).strip() and not first.endswith(ends):
            wrong.append(f"{path}: {first!r}")
    assert wrong == []


def test_what_tests_share_is_in_no_test_module() -> None:
    """An import of a test module runs it, and makes it hard to move."""
    shared = {path: [each for each in imports(path) if ".test_" in each] for path in sources("tests")}
    assert {path: each for path, each in shared.items() if each} == {}


def test_files_that_are_named_in_scripts_exist() -> None:
    scripts = (
        ".ci/run",
        "Makefile",
        "Dockerfile",
        "docker-compose.yml",
        "pyproject.toml",
        "tests/conftest.py",
    )
    texts = " ".join(text_of(Path(name)) for name in scripts)
    named = set(re.findall(r"\b[\w/.-]+\.(?:py|lock)\b", texts))
    assert {each for each in named if not (ROOT / each).exists()} == set()


def test_functions_are_short_enough_to_read() -> None:
    wrong = [
        f"{path}: {each.name} has {(each.end_lineno or 0) - each.lineno + 1} lines"
        for path in sources(*PRODUCT, "research", "tests")
        for each in ast.walk(tree_of(path))
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
        and (each.end_lineno or 0) - each.lineno >= FUNCTION_LINES_MAX
    ]
    assert wrong == []


def test_no_two_files_of_the_domain_import_each_other() -> None:
    """Imports for types count: where two files know each other, a reader has to read both at once."""
    known = {".".join(path.with_suffix("").parts): path for path in sources("domain")}
    graph = {
        name: {each.rpartition(".")[0] for each in imports(path)} & known.keys()
        for name, path in known.items()
    }
    TopologicalSorter(graph).prepare()  # names the circle, if there is one


def _sizes(each: ast.ClassDef) -> tuple[int, int]:
    """Return how many methods a class has, and how many fields its constructor sets."""
    methods = [f for f in each.body if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]
    makers = [f for f in methods if f.name == "__init__"]
    fields = {
        target.attr
        for maker in makers
        for target in ast.walk(maker)
        if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
        if isinstance(target.value, ast.Name) and target.value.id == "self"
    }
    return len(methods), len(fields)


def test_constructors_of_the_heart_say_what_they_take() -> None:
    """What plugins and commands are given by users is JSON; the planning of pods has types throughout."""
    wrong = [
        f"{path}:{argument.lineno}: {argument.arg}"
        for path in sources(*HEART)
        for maker in ast.walk(tree_of(path))
        if isinstance(maker, ast.FunctionDef) and maker.name == "__init__"
        for argument in ast.walk(maker.args)
        if isinstance(argument, ast.arg) and argument.annotation is not None
        if any(isinstance(each, ast.Name) and each.id == "Any" for each in ast.walk(argument.annotation))
    ]
    assert wrong == []


def test_classes_are_small_enough_to_hold_in_mind() -> None:
    """Those that were larger when this began may only shrink: take them out, or write the smaller number."""
    found = {
        f"{path}:{each.name}": _sizes(each)
        for path in sources(*PRODUCT)
        for each in ast.walk(tree_of(path))
        if isinstance(each, ast.ClassDef)
    }
    large = {name: sizes for name, sizes in found.items() if sizes[0] > METHODS_MAX or sizes[1] > FIELDS_MAX}
    assert large == LARGE


def test_no_limit_takes_the_name_of_another() -> None:
    tree = ast.parse((ROOT / "domain/model/limits.py").read_text())
    named = [name for node in tree.body if isinstance(node, ast.Assign) for name in node.targets]
    names = [name.id for name in named if isinstance(name, ast.Name)]
    assert sorted(names) == sorted(set(names))
    assert "pods_per_node_max" in names


def test_the_domain_has_no_mutable_state_of_its_own() -> None:
    mutable = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
    makers = {"dict", "list", "set", "defaultdict", "deque", "Counter", "bytearray"}
    wrong = []
    for path in sources("domain"):
        wrong += [f"{path}: global" for each in ast.walk(tree_of(path)) if isinstance(each, ast.Global)]
        for each in tree_of(path).body:
            if not isinstance(each, ast.Assign | ast.AnnAssign):
                continue
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            value = each.value
            made = (
                isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makers
            )
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if (made or isinstance(value, mutable)) and any(name != name.upper() for name in names):
                wrong.append(f"{path}: {names}")
    assert wrong == []


def test_the_domain_never_looks_at_the_world() -> None:
    wrong = [
        f"{path}: {name}"
        for path in sources("domain")
        if not starts_with(path, MAY_LOOK_AT_FILES)
        for name in imports(path)
        if name.partition(".")[0] in NOT_IN_DOMAIN
    ]
    assert wrong == []


def test_adapters_are_named_in_one_place() -> None:
    wrong = [
        f"{path}: {name}"
        for path in sources("berth", "domain", "services", "research", "benchmarks", "ops", "migrations")
        if not starts_with(path, MAY_NAME_ADAPTERS)
        for name in imports(path)
        if name.startswith("services.adapters")
    ]
    assert wrong == []


def test_only_the_command_line_prints() -> None:
    wrong = [
        f"{path}:{each.lineno}"
        for path in sources("berth", "domain", "services", "research", "migrations")
        if not starts_with(path, MAY_PRINT)
        for each in ast.walk(tree_of(path))
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "print"
    ]
    assert wrong == []


def test_one_word_has_one_meaning_in_the_domain() -> None:
    wrong = set()
    for path in sources("domain"):
        for name in identifiers(path):
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
            if words & NOT_OUR_WORDS or ("host" in words and not any(field in name for field in HOST_FIELDS)):
                wrong.add(f"{path}: {name}")
    assert wrong == set()


def tracked() -> list[Path]:
    """Return every text file of the repository; without git, every source file."""
    git = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if git.returncode != 0:
        return list(sources(*ALL))
    names = [Path(name) for name in git.stdout.splitlines()]
    return [name for name in names if (ROOT / name).is_file() and name.suffix not in (".gz", ".png", ".csv")]


def test_nothing_is_left_to_do() -> None:
    marks = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X")))
    wrong = [str(path) for path in tracked() if marks.search(text_of(path))]
    assert wrong == []


def test_no_file_names_a_package_registry() -> None:
    """A Go module may have a name that begins with a host's; no registry answers there."""
    modules = re.compile(r"^\t?(\S+/)?(google\.)?golang\.org/\S+ v", re.MULTILINE)
    texts = {
        path: modules.sub("", text_of(path)) if path.name in ("go.mod", "go.sum") else text_of(path)
        for path in tracked()
    }
    wrong = [f"{path}: {host}" for path, text in texts.items() for host in REGISTRY_HOSTS if host in text]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["lint-imports --no-cache", "ruff check --no-cache .", "ruff format --no-cache --check .", "mypy"],
    ids=["imports", "lint", "format", "types"],
)
def test_checker_has_nothing_to_say(command: str) -> None:
    program, *arguments = command.split()
    done = subprocess.run(
        [str(BIN / program), *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
