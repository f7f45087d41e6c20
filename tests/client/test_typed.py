"""Do the types of the client help its users: does what is right pass, and is what is wrong named?"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from berth.client import Client, Export, Watch
from berth.client._sync.resources import Resources

ROOT = Path(__file__).parent.parent.parent
GOOD = '''
"""What a user writes."""

import datetime
from pathlib import Path

from berth.client import (
    Applied, AsyncClient, BerthError, Client, Event, Fate, InvalidRequest, NoLongerKept, Retry, Timeout,
    View, models,
)

POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}


def main() -> None:
    with Client("https://berth", key="k", retry=Retry(tries=3), told=lambda seconds, why: None) as client:
        applied: Applied = client.apply([POD], wait="decided", timeout=3, partial=True, idempotency_key="x")
        applied = client.apply(POD, at=datetime.timedelta(hours=1))
        client.read_after(applied)
        fates: dict[str, Fate] = client.wait(applied, "bound", timeout=5.0)
        nodes: list[str | None] = [each.node for each in fates.values() if each.is_bound and not each.is_gone]
        applied = client.delete("pod", "shop/web-0", wait="folded")
        applied = client.delete([POD])
        names: list[str] = [each.name for each in client.pods.list(namespace="shop", limit=3)]
        detail: models.PodDetail = client.pods.get("shop", "web-0")
        why: models.Why = client.why("shop/web-0")
        told: models.Explanation = client.explain("shop/web-0")
        story: list[str] = [each.kind for each in client.history("shop/web-0", limit=3)]
        planned: models.PlanAnswer = client.plan([POD], how_many=True, cures=True, replicas=2)
        then: View = client.at("1h")
        moment: str | None = then.moment
        earlier: models.PlanAnswer = then.plan("kind: Pod")
        made: models.NewKey = client.keys.create(models.KeyToMake(name="robot", roles=["admin"]))
        with client.watch(kinds=["decisions"], since=datetime.timedelta(minutes=5), marks=True) as watch:
            for event in watch:
                seen: Event = event
                decision: models.Decision | None = seen.decision
                last: str | None = watch.last_id
        table = client.export("decisions", since="1d")
        rows: list[dict[str, object]] = [dict(row) for row in table]
        pieces: list[bytes] = list(table.pieces("csv"))
        place: Path = table.save("decisions.parquet")
        frame = table.to_pandas()
        answer: models.Health = client.ask(client_request())
    print(nodes, names, detail, why, told, story, planned, moment, earlier, made, decision, last, rows)
    print(pieces, place, frame, answer)


def client_request() -> "Request[models.Health]":
    return Request("GET", "/healthz", models.Health)


from berth.client.requests import Request


async def awaited() -> None:
    try:
        async with AsyncClient() as client:
            applied: Applied = await client.apply([POD])
            fates: dict[str, Fate] = await client.wait(applied)
            names: list[str] = [each.name async for each in client.nodes.list()]
            async with client.watch(pod="shop/web-0") as watch:
                event: Event = await anext(watch)
            rows = [row async for row in client.export("nodes")]
            place: Path = await client.export("nodes").save(Path("nodes.csv"), "csv")
            totals: models.Totals = await client.at("1h").cluster.totals()
    except InvalidRequest as error:
        print(error.sent_count, error.path, [each.index for each in error.details])
    except Timeout as error:
        print(error.missing)
    except NoLongerKept as error:
        print(error.begin_at, error.last_id)
    except BerthError as error:
        print(error.code, error.status)
    print(fates, names, event, rows, place, totals)
'''

CONFIGURATION = """
[mypy]
strict = true
[mypy-berth.*]
follow_imports = silent
"""
"""What is in the package is its own, as where it is installed."""

WRONG = {
    'client.wait("shop/p", until="placed")': ("arg-type", "Literal['decided', 'bound', 'gone']"),
    "client.pods.list(name_space='shop')": ("call-arg", 'Unexpected keyword argument "name_space"'),
    "client.pods.get('shop', 'p').nodes": ("attr-defined", '"PodDetail" has no attribute "nodes"'),
    "client.apply([1])": ("list-item", 'has incompatible type "int"'),
    "client.export('nodes').save('x', 'xml')": ("arg-type", "Literal['csv', 'ndjson', 'parquet']"),
    "client.plan('kind: Pod').placed + ''": ("operator", 'Unsupported operand types for + ("int" and "str")'),
    "client.keys.create({'name': 'robot'})": ("arg-type", 'expected "KeyToMake"'),
    "for each in client.at('1h').watch(): pass": ("attr-defined", '"View" has no attribute "watch"'),
}


def _checked(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run mypy over a program that has nothing but the client beside it, from its typed package."""
    (folder / "program.py").write_text(text)
    (folder / "setup.cfg").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache" / "users")]
    path = {"MYPYPATH": str(ROOT), "PATH": ""}
    return subprocess.run(
        [*command, "program.py"],
        cwd=folder,
        env=path,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def test_each_public_method_of_a_client_is_used_below() -> None:
    for kind in (Client, Watch, Export):
        public = {name for name, each in inspect.getmembers(kind, callable) if not name.startswith("_")}
        unused = [name for name in public - {"pages", "close"} if f".{name}(" not in GOOD]
        assert unused == [], kind
    assert {"pods", "keys"} < {name for name in vars(Resources) if not name.startswith("_")}


@pytest.mark.slow
def test_a_program_that_is_right_passes(tmp_path: Path) -> None:
    done = _checked(tmp_path, GOOD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues found in 1 source file" in done.stdout


@pytest.mark.slow
def test_what_is_wrong_is_refused_by_its_line_and_name(tmp_path: Path) -> None:
    head = "from berth.client import Client\n\nwith Client() as client:\n"
    done = _checked(tmp_path, head + "".join(f"    {each}\n" for each in WRONG))
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"program\.py:(\d+): error: (.*)  \[([a-z-]+)\]", done.stdout)
    assert [int(line) for line, *_ in found] == [4 + number for number in range(len(WRONG))], done.stdout
    for (_, text, code), (wanted_code, part) in zip(found, WRONG.values(), strict=True):
        assert part in text
        assert code == wanted_code
