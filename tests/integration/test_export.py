"""Exports, from the events to the files that other programs read."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pandas
import pyarrow.parquet
import pytest
import pytest_asyncio

from docs.build import export_page
from domain.model import limits
from services import bootstrap
from services.adapters.postgres.exports import view_statement
from services.api.export import Cut
from services.cli.in_process import InProcess
from services.cli.web import httpx
from services.codec.exported import ExportFormat, arrow_schema
from services.ports.exports import SCHEMAS, Kind, What
from tests.builders import event, node_manifest, pod_manifest
from tests.integration.api_world import World, client_of, fresh_database, query, work_off

PODS = 30
PRIORITY_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 7,
}


@pytest_asyncio.fixture(scope="module")
async def world(embedded_dsn: str) -> AsyncIterator[World]:
    """Return a ledger on which pods of two namespaces were placed, and one waits."""
    async with fresh_database(embedded_dsn, migrated=True) as place:
        await bootstrap.initialise(place, 2)
        async with client_of(place) as client:
            world = World(place, client)
            pods = [
                pod_manifest(f"p{i}", "ab"[i % 2], uid=f"u{i}", cpu="1", labels={"i": "x"})
                for i in range(PODS)
            ]
            big = pod_manifest("big", "a", uid="big", cpu="99")
            nodes = [node_manifest(f"n{i}", cpu=40, memory="64Gi") for i in range(3)]
            events = [event("ADDED", each) for each in (*nodes, *pods, big, PRIORITY_CLASS)]
            assert (await client.post("/v1/events", json=events)).status_code == 202
            await work_off(place)
            yield world


async def exported(world: World, what: What, **asked: str) -> bytes:
    answer = await world.client.get(f"/v1/export/{what}", params=asked)
    assert answer.status_code == 200, answer.text
    assert answer.headers["berth-schema"] == SCHEMAS[what].label
    return answer.content


@pytest.mark.parametrize("what", What)
async def test_each_format_has_the_columns_of_the_schema_and_the_same_rows(world: World, what: What) -> None:
    schema = SCHEMAS[what]
    lines = [json.loads(line) for line in (await exported(world, what, format="ndjson")).splitlines()]
    assert lines
    assert {tuple(line) for line in lines} == {schema.names}
    header, *rows = csv.reader(io.StringIO((await exported(world, what)).decode()))
    assert tuple(header) == schema.names
    assert len(rows) == len(lines)
    table = pyarrow.parquet.read_table(io.BytesIO(await exported(world, what, format="parquet")))
    assert table.schema.equals(arrow_schema(schema), check_metadata=True)
    assert table.schema.metadata[b"berth.schema"] == schema.label.encode()
    for row, line, cells in zip(table.to_pylist(), lines, rows, strict=True):
        for column, cell in zip(schema.columns, cells, strict=True):
            value, told = row[column.name], line[column.name]
            if value is None:
                assert (told, cell) == (None, "")
            elif column.kind is Kind.TIME:
                assert told == cell == f"{value:%Y-%m-%dT%H:%M:%S}.{value.microsecond // 1000:03d}Z"
            elif column.kind is Kind.JSON:
                assert json.loads(value) == json.loads(cell) == told
            else:
                assert value == told
                assert cell == (str(value).lower() if column.kind is Kind.BOOL else str(value))


@pytest.mark.parametrize("what", What)
async def test_the_views_have_the_columns_and_the_rows_of_the_export(world: World, what: What) -> None:
    rows = await query(world.place, f"SELECT to_jsonb(v) FROM audit.{what} v")
    lines = [json.loads(line) for line in (await exported(world, what, format="ndjson")).splitlines()]
    columns = await query(world.place, f"SELECT * FROM audit.{what} LIMIT 1")
    assert tuple(columns[0].keys()) == SCHEMAS[what].names
    times = {each.name for each in SCHEMAS[what].columns if each.kind is Kind.TIME}

    def told(row: dict[str, Any]) -> dict[str, Any]:
        moments = {name: pandas.Timestamp(row[name]).value for name in times if row[name] is not None}
        return row | moments

    def place(row: dict[str, Any]) -> list[Any]:
        return [row[name] for name in SCHEMAS[what].order]

    shown = sorted((json.loads(row[0]) for row in rows), key=place)
    assert list(map(told, shown)) == list(map(told, lines))


@pytest.mark.parametrize("what", What)
async def test_the_migration_makes_the_views_that_the_code_says(world: World, what: What) -> None:
    connection = await asyncpg.connect(world.place.dsn)
    try:
        await connection.execute(f"CREATE TEMPORARY VIEW said AS {view_statement(what)}")
        said, made = await connection.fetchrow(
            f"SELECT pg_get_viewdef('said'::regclass), pg_get_viewdef('audit.{what}'::regclass)"
        )
    finally:
        await connection.close()
    assert made == said, "a new migration makes the view anew"


async def test_what_cannot_be_exported_is_said_before_the_first_byte(world: World) -> None:
    for target, status, text in (
        ("/v1/export/pods", 422, "decisions"),
        ("/v1/export/nodes?namespace=a", 422, "of no namespace"),
        ("/v1/export/nodes?format=xml", 422, "parquet"),
        ("/v1/export/nodes?sinc=1h", 422, "sinc"),
        ("/v1/export/nodes?since=yesteryear", 422, "since"),
    ):
        answer = await world.client.get(target)
        assert (answer.status_code, text in answer.text) == (status, True), answer.text


async def test_parquet_without_its_library_has_a_remedy(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    answer = await world.client.get("/v1/export/nodes?format=parquet")
    assert answer.status_code == 501
    assert answer.json()["error"]["code"] == "no-parquet"
    assert "install berth[parquet]" in answer.json()["error"]["message"]


async def test_a_time_without_rows_has_a_header_or_nothing(world: World) -> None:
    asked, names = {"until": "1990-01-01"}, SCHEMAS[What.DECISIONS].names
    assert (await exported(world, What.DECISIONS, **asked)).decode() == ",".join(names) + "\n"
    assert await exported(world, What.DECISIONS, format="ndjson", **asked) == b""
    content = await exported(world, What.DECISIONS, format="parquet", **asked)
    empty = pyarrow.parquet.read_table(io.BytesIO(content))
    assert (empty.num_rows, empty.schema.names) == (0, list(names))


async def test_a_namespace_is_exported_alone(world: World) -> None:
    frame = pandas.read_csv(io.BytesIO(await exported(world, What.PLACEMENTS, namespace="a")))
    assert set(frame.namespace) == {"a"}
    assert len(frame) == PODS // 2
    assert set(frame.cpu_milli) == {1000}


class Slow:
    """A client that takes the first piece of an export, and then no more for now."""

    def __init__(self, app: Any) -> None:
        self._client = httpx.AsyncClient(base_url="http://berth", transport=InProcess(app))

    async def begin(self, target: str) -> httpx.Response:
        return await self._client.send(self._client.build_request("GET", target), stream=True)


@pytest.mark.parametrize("form", ExportFormat)
async def test_an_export_is_of_one_moment_and_holds_few_rows(
    world: World, form: ExportFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written while a slow client reads is not in it, and at most a few pieces are read ahead."""
    few = {what: each._replace(rows_at_once=2) for what, each in SCHEMAS.items()}
    for what, schema in few.items():
        monkeypatch.setitem(SCHEMAS, what, schema)
    async with bootstrap.open_app(world.place, keys_required=False) as app:
        answer = await Slow(app).begin(f"/v1/export/decisions?format={form}")
        others = [Slow(app) for _ in range(limits.exports_at_once)]
        begun = [await each.begin("/v1/export/decisions") for each in others[:-1]]
        busy = await others[-1].begin("/v1/export/decisions")
        assert (busy.status_code, json.loads(await busy.aread())["error"]["code"]) == (503, "busy")
        (before,) = await query(world.place, "SELECT count(*) FROM decisions")
        columns = (
            "epoch, pod_uid, namespace, outcome, node, profile, profile_revision, signature, cycle_seq, "
        )
        columns += "decided_at_ms, recorded_at, payload"
        await query(
            world.place,
            f"INSERT INTO decisions (shard, seq, name, {columns}) "
            f"SELECT shard, seq + 1000000, 'later', {columns} FROM decisions",
        )
        try:
            content = await answer.aread()
            for each in begun:
                await each.aclose()
            again = await others[0].begin("/v1/export/decisions")
            assert again.status_code == 200, "an export whose client has gone leaves its place"
            await again.aclose()
        finally:
            await query(world.place, "DELETE FROM decisions WHERE seq > 1000000")
    assert _count(form, content) == before[0]


def _count(form: ExportFormat, content: bytes) -> int:
    if form is ExportFormat.PARQUET:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(content))
        assert file.num_row_groups > 1
        return int(file.metadata.num_rows)
    return len(content.splitlines()) - (form is ExportFormat.CSV)


async def test_an_export_that_takes_too_long_is_cut_and_never_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what, schema in SCHEMAS.items():
        monkeypatch.setitem(SCHEMAS, what, schema._replace(rows_at_once=2))
    monkeypatch.setattr(limits, "export_seconds_max", 0.2)
    async with bootstrap.open_app(world.place, keys_required=False) as app:
        answer = await Slow(app).begin("/v1/export/decisions")
        await asyncio.sleep(0.4)
        with pytest.raises(Cut, match="cut after"):
            await answer.aread()


def _examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", export_page.PAGE.read_text(), re.DOTALL)


async def test_the_examples_of_the_page_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("decisions.parquet", "placements.parquet", "placements.csv"):
        what, _, form = name.partition(".")
        (tmp_path / name).write_bytes(await exported(world, What(what), format=form))
    monkeypatch.chdir(tmp_path)
    in_ledger, *in_duckdb = _examples("sql")
    assert [tuple(row) for row in await query(world.place, in_ledger)] == [("a", 1)]
    found = [duckdb.execute(each).fetchall() for each in in_duckdb]
    assert found[0] == [("a", "bound", 15), ("a", "unresolvable", 1), ("b", "bound", 15)]
    assert sum(cores for _, cores in found[1]) == PODS
    assert found[2] == [("insufficient:cpu", 1)]
    (script,) = _examples("python")
    made: dict[str, Any] = {}
    exec(compile(script, "docs/export.md", "exec"), made)
    assert made["by_hour"].sum() == PODS + 1
    assert made["requests"].iloc[0] == {"cpu": 1000}
    assert made["cores"].to_dict() == {node: pytest.approx(cores) for node, cores in found[1]}
