"""What `berth bill` asks for and prints."""

from __future__ import annotations

import contextlib
import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from typer.testing import CliRunner

from services.cli import source
from services.cli.main import app
from services.cli.source import in_process

FIELDS = ("cpu_core_hours", "memory_gib_hours", "lent_cpu_core_hours", "lent_memory_gib_hours")


def sums(core_hours: float, lent: float, billed: float, saved: float) -> dict[str, float]:
    amounts = dict(zip(FIELDS, (core_hours, 0.0, lent, 0.0), strict=True))
    return amounts | {"billed": billed, "saved": saved}


A, B = sums(1_005.0, 3.0, 3.2, 1.8), sums(20.0, 20.0, 2.0, 18.0)
TOTAL = sums(1_025.0, 23.0, 5.2, 19.8)


class Api:
    """Answers with a bill of two pages."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items, self.asked = items, list[dict[str, list[str]]]()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = parse_qs(scope["query_string"].decode())
        self.asked.append(asked)
        at = int(asked.get("cursor", ["0"])[0])
        following = str(at + 1) if at + 1 < len(self.items) else None
        bill = {"items": self.items[at : at + 1], "next": following, "by": asked["by"][0], "total": TOTAL}
        body = json.dumps(bill | {"since": None, "until": None}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


def told(api: Api, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    """Run the command with an API."""
    opened = lambda settings, **_: contextlib.aclosing(in_process(api))  # noqa: E731
    monkeypatch.setattr(source, "open_source", opened)
    done = CliRunner().invoke(app, ["bill", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_bill_has_a_line_each_and_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api({"name": "a"} | A, {"name": "b"} | B)
    lines = [line.split("\t") for line in told(api, monkeypatch, "--since", "1d", "-n", "a").splitlines()]
    assert lines == [
        ["NAMESPACE", "CORE HOURS", "LENT", "GIB HOURS", "BILLED", "SAVED"],
        ["a", "1005.000000", "3.000000", "0.000000", "3.200000", "1.800000"],
        ["b", "20.000000", "20.000000", "0.000000", "2.000000", "18.000000"],
        ["total", "1025.000000", "23.000000", "0.000000", "5.200000", "19.800000"],
    ]
    assert [each.get("cursor") for each in api.asked] == [None, ["1"]]
    assert {(*each["since"], *each["namespace"], *each["by"]) for each in api.asked} == {
        ("1d", "a", "namespace")
    }


def test_a_program_gets_all_pages_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api({"name": "high"} | A, {"name": "low"} | B)
    found = json.loads(told(api, monkeypatch, "--by", "quality", "-o", "json"))
    assert found["items"] == [{"name": "high"} | A, {"name": "low"} | B]
    assert (found["by"], found["total"], "next" in found) == ("quality", TOTAL, False)


def test_an_empty_bill_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(Api(), monkeypatch)
    assert said.startswith("nothing is billed; what pods used is told by `berth agent`")


def test_a_time_that_is_none_is_refused_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(app, ["bill", "--since", "yesterday"])
    assert done.exit_code != 0
    assert "yesterday" in done.output
