"""Does `get --watch` print what changed and nothing else, and does `get` find one item by its name?"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs

import pytest
import typer

from services.cli import watch
from services.cli.get import Kind, _one
from services.cli.options import CommandError
from services.cli.shapes import Shape
from services.cli.source import in_process
from tests.unit.items import Item, config_object, decision, node, pod


class Enough(Exception):
    """Raised to end the watch when the test has seen enough."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.0)


TABLE = Shape("table")


async def watched(kind: Kind, lists: list[list[Item]], shape: Shape = TABLE) -> None:
    """Watch lists that are one after the other what there is."""
    left = iter(lists)

    async def items() -> list[Item]:
        found = next(left, None)
        if found is None:
            raise Enough
        return found

    with pytest.raises(Enough):
        await watch.watch_list(kind, items, shape)


async def test_a_row_is_printed_again_when_it_changes_and_when_it_is_gone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    a, b = pod("a", phase="pending", node=None), pod("b")
    await watched(Kind.PODS, [[a], [a], [{**a, "phase": "bound", "node": "n1"}, b], [b], [b]])
    rows = [line.split("\t")[1:4] for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["NAME", "PHASE", "NODE"],
        ["a", "pending", "-"],
        ["a", "bound", "n1"],
        ["b", "bound", "openb-node-1329"],
        ["a", "released", "-"],
    ]


async def test_what_a_table_does_not_show_is_no_change_of_a_row_but_one_of_its_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lists = [[node()], [node(version=12)]]
    await watched(Kind.NODES, lists)
    assert len(capsys.readouterr().out.splitlines()) == 2
    await watched(Kind.NODES, lists, Shape("json"))
    assert [json.loads(line)["version"] for line in capsys.readouterr().out.splitlines()] == [11, 12]


class Ledger:
    """An API whose stream has decisions of two shards; the list was read when some of them were there."""

    def __init__(self, listed: list[Item], streamed: list[Item]) -> None:
        self.listed, self.streamed = listed, streamed

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        asked = {key: values[0] for key, values in parse_qs(scope["query_string"].decode()).items()}
        if scope["path"] == "/v1/decisions":
            assert asked["order"] == "newest"
            body = json.dumps({"items": self.listed, "next": None}).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
            return
        assert (scope["path"], asked["kinds"]) == ("/v1/events", "decisions,releases,pending")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b": begins\nid: a\n\n", "more_body": True})
        for item in self.streamed:
            frame = f"id: {item['id']}\nevent: decisions\ndata: {json.dumps(item)}\n\n".encode()
            for part in (frame[:20], frame[20:]):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        end = json.dumps({"error": {"code": "not-kept", "message": "enough"}})
        await send({"type": "http.response.body", "body": f"event: end\ndata: {end}\n\n".encode()})


def of_shard(shard: int, seq: int) -> Item:
    return decision(id=f"{shard}-{seq}", shard=shard, seq=seq)


async def test_decisions_are_printed_once_each_as_the_stream_has_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ledger = Ledger(
        [of_shard(0, 3), of_shard(1, 2), of_shard(0, 2)],
        [of_shard(1, 2), of_shard(0, 3), of_shard(1, 3), of_shard(0, 4)],
    )
    with pytest.raises(CommandError, match="enough; the last id was 0-4"):
        await watch.watch_decisions(in_process(ledger), {}, 4, Shape("table"))
    ids = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert ids == ["0-2", "1-2", "0-3", "1-3", "0-4"]


async def test_the_decisions_of_one_shard_are_watched_alone(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger([of_shard(1, 2)], [of_shard(0, 3), of_shard(1, 3), of_shard(0, 4), of_shard(1, 4)])
    with pytest.raises(CommandError):
        await watch.watch_decisions(in_process(ledger), {"shard": 1}, 1, Shape("table"))
    ids = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert ids == ["1-2", "1-3", "1-4"]


async def test_one_item_is_found_by_its_name_and_one_that_is_not_there_is_an_error() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0)
        raw = scope["raw_path"].decode()
        found = {
            "/v1/pods/team/web": pod("web"),
            "/v1/pods/default/web": pod("other"),
            "/v1/nodes/n%2F1": node("n/1"),
            "/v1/config/Service/shop/web": config_object(),
            "/v1/config/Namespace/shop": config_object("Namespace", name="shop"),
            "/v1/shards": {"items": [{"shard": 3}], "next": None},
        }.get(raw)
        error = {"error": {"code": "not-found", "message": f"{raw} is not known here"}}
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": []})
        await send({"type": "http.response.body", "body": json.dumps(found or error).encode()})

    source = in_process(app)
    assert (await _one(source, Kind.PODS, "web", "team"))["name"] == "web"
    assert (await _one(source, Kind.PODS, "team/web", None))["name"] == "web"
    assert (await _one(source, Kind.PODS, "web", None))["name"] == "other"
    assert (await _one(source, Kind.NODES, "n/1", None))["name"] == "n/1"
    assert await _one(source, Kind.SHARDS, "3", None) == {"shard": 3}
    assert (await _one(source, Kind.CONFIG, "web", "shop", "Service"))["name"] == "web"
    assert (await _one(source, Kind.CONFIG, "shop/web", None, "Service"))["name"] == "web"
    assert (await _one(source, Kind.CONFIG, "shop", None, "Namespace"))["name"] == "shop"
    with pytest.raises(typer.BadParameter, match="berth get svc web"):
        await _one(source, Kind.CONFIG, "web", None)
    with pytest.raises(CommandError, match="is not known here"):
        await _one(source, Kind.NODES, "n2", None)
    with pytest.raises(CommandError, match="shard 4 is not known here"):
        await _one(source, Kind.SHARDS, "4", None)
