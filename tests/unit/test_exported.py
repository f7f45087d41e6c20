"""Do exports say what rows hold, whatever is in them, and does the page say what exports are?"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from docs.build import export_page
from services.adapters.postgres.exports import COLUMNS, SOURCES
from services.codec.exported import ExportFormat, arrow_schema, export_writer, guarded
from services.ports.exports import SCHEMAS, Column, Kind, Schema, What

SCHEMA = Schema(
    What.CONFIG,
    7,
    "Anything.",
    "time",
    ("text",),
    tuple(Column(kind.value, kind, "", "") for kind in Kind),
    3,
)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.TEXT: st.text(st.sampled_from("a=+-@\t\r\n\"',ä\u2028 0")),
    Kind.INT: st.integers(-(2**63), 2**63 - 1),
    Kind.REAL: st.floats(allow_nan=False, allow_infinity=False),
    Kind.BOOL: st.booleans(),
    Kind.TIME: st.integers(0, 253_402_300_799_999),
    Kind.JSON: st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=3).map(json.dumps),
}
ROWS = st.lists(st.tuples(*(st.none() | VALUES[kind] for kind in Kind)), max_size=7)


def written(form: ExportFormat, rows: list[Any]) -> bytes:
    writer = export_writer(SCHEMA, form)
    pieces = [writer.rows(rows[at : at + 3]) for at in range(0, len(rows), 3)]
    return b"".join((*pieces, writer.end()))


@given(ROWS)
def test_csv_reads_back_but_for_formulas(rows: list[Any]) -> None:
    header, *found = csv.reader(io.StringIO(written(ExportFormat.CSV, rows).decode(), newline=""))
    assert header == [kind.value for kind in Kind]
    for row, cells in zip(rows, found, strict=True):
        text, whole, real, truth, _, said = row[:6]
        assert cells[0] == ("" if text is None else guarded(text))
        assert not cells[0].startswith(("=", "+", "-", "@", "\t", "\r"))
        assert cells[1] == ("" if whole is None else str(whole))
        assert (float(cells[2]) if cells[2] else None) == real
        assert {"true": True, "false": False, "": None}[cells[3]] == truth
        assert cells[5] == (said or "")


@given(ROWS)
def test_json_lines_read_back(rows: list[Any]) -> None:
    found = [json.loads(line) for line in written(ExportFormat.NDJSON, rows).decode().split("\n")[:-1]]
    for row, line in zip(rows, found, strict=True):
        assert [*line.values()][:4] == list(row[:4])
        assert line["json"] == (None if row[5] is None else json.loads(row[5]))


@settings(deadline=None)  # its library is loaded by the first example
@given(ROWS)
def test_parquet_reads_back_whatever_the_row_groups_are(rows: list[Any]) -> None:
    from pyarrow import parquet

    table = parquet.read_table(io.BytesIO(written(ExportFormat.PARQUET, rows * 9)))
    assert table.schema.equals(arrow_schema(SCHEMA), check_metadata=True)
    assert table.num_rows == len(rows) * 9
    for row, found in zip(rows * 9, table.to_pylist(), strict=True):
        values = list(found.values())
        assert [*values[:4], values[5]] == [*row[:4], row[5]]
        assert (values[4] is None) == (row[4] is None)


def test_each_column_is_read_somehow_and_has_a_meaning() -> None:
    assert set(SCHEMAS) == set(What) == set(COLUMNS) == set(SOURCES)
    for what, schema in SCHEMAS.items():
        assert len(set(schema.names)) == len(schema.names)
        assert set(COLUMNS[what]) <= set(schema.names), "what SQL reads is a column"
        assert {schema.time, *schema.order} <= set(schema.names)
        assert schema.time in COLUMNS[what]
        for column in schema.columns:
            assert column.about
            if column.name.endswith(("_milli", "_bytes")) or column.kind is Kind.TIME:
                assert column.unit, column.name


def test_the_page_is_what_the_table_says() -> None:
    """Whoever changes the table runs ``python -m docs.build.export_page``."""
    assert export_page.main(["--check"]) == 0


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "\tx", "\rx"])
def test_a_text_that_a_spreadsheet_would_run_is_guarded(text: str) -> None:
    assert guarded(text) == f"'{text}"
    assert guarded(f"a{text}") == f"a{text}"
