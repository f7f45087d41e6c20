"""Writes docs/export.md from the table of columns: `python -m docs.build.export_page [--check]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.build.writing import write_or_check
from domain.model.limits import export_seconds_max, exports_at_once, rollup_days
from services.codec.exported import READS_PER_GROUP
from services.ports.exports import SCHEMAS, Kind, Schema, What
from services.ports.rollups import STEP_MS

PAGE = Path(__file__).parent.parent / "export.md"
COMMAND = "python -m docs.build.export_page"

STEP_MINUTES = STEP_MS // 60_000
_DECISIONS = SCHEMAS[What.DECISIONS]
_WHAT = ", ".join(f"[{each}](#{each})" for each in What)
_KINDS = {
    Kind.TEXT: ("text", "string", "text"),
    Kind.INT: ("digits", "int64", "bigint, integer"),
    Kind.REAL: ("digits", "double", "double precision"),
    Kind.BOOL: ("`true`, `false`", "boolean", "boolean"),
    Kind.TIME: ("`2026-01-31T08:00:00.000Z`", "timestamp, milliseconds, UTC", "timestamptz"),
    Kind.JSON: ("its text", "string", "json"),
}

_HEAD = f"""# Exports

Made from `services/ports/exports.py` by `{COMMAND}`; edit those, not this page.

```console
$ berth export decisions --since 2026-01-01 --until 2026-02-01 --to january.parquet
$ berth export placements --namespace shop --format ndjson
$ curl -H "Authorization: Bearer $BERTH_API_KEY" 'localhost:8080/v1/export/decisions?format=csv&since=1d'
```

`berth export` and `GET /v1/export/{{what}}` write {_WHAT}
as `csv`, `ndjson` (a JSON object a line) or `parquet`. `since` and `until` are log time, from a moment on to
before another, and are about the time that each section below names. A file of `--to` has its name only once
it is whole.

- **All rows are of one moment**: one snapshot of the database, read through a cursor. Nothing holds more than
  some thousand rows: {_DECISIONS.rows_at_once:,} decisions at once, {READS_PER_GROUP} times that in a row
  group of a Parquet file.
- **Placing does not wait for it.** An export has a connection of its own and one core of the server.
  Of one API process {exports_at_once} run at once; another is answered 503, `busy`. A snapshot keeps the
  database from cleaning up what commits leave behind, so an export is cut after
  {export_seconds_max // 60} minutes (`export_seconds_max`). The answer then breaks
  off, which `berth export` and any HTTP client take for an error; export a shorter time, one after the other.
- **Who may**: keys with the role `auditor`, `operator` or `admin`. A key with namespaces gets the rows of its
  own alone, and what names others is empty, as [everywhere](audit.md#what-a-key-sees-that-has-namespaces).
- **Parquet** needs `pyarrow` where the API runs: `pip install 'berth[parquet]'`. Without it the answer is
  501, `no-parquet`. The file names its schema as `berth.schema`, each column its `berth.unit` and
  `berth.about`.
- **CSV** is quoted as RFC 4180 says, and its lines end with a line feed. What is not there is empty, in text
  columns, too. A text that begins with `=`, `+`, `-`, `@`, a tab or a carriage return gets an apostrophe
  before it, so that no spreadsheet takes it for a formula. Numbers and JSON have none, nor do the other
  formats: a program that needs texts as they are takes `ndjson`.

## Versions

The name of a schema has its version, as `{_DECISIONS.label}`: in the header `Berth-Schema` of the API, in the
metadata of a Parquet file, and in the comments of the views. A new column comes at the end, and leaves the
version. A column that goes, or means something else, makes it a higher one.

## The same in SQL

The views {", ".join(f"`audit.{each}`" for each in What)} have the same columns, for logins in the role
`berth_auditor` ([operations](operations.md)): `berth init --roles` lets it read them. They read the tables as
they are, without an index on their times; a long history is better exported by `since` and `until`.

```sql
SELECT namespace, count(*) FROM audit.decisions WHERE outcome = 'unresolvable' GROUP BY namespace;
```

## In DuckDB and pandas

Both read the files as they are. For DuckDB, with `decisions.parquet` and `placements.parquet`:

```sql
SELECT namespace, outcome, count(*) AS decisions
FROM 'decisions.parquet' GROUP BY ALL ORDER BY ALL;
```

```sql
SELECT node, sum(cpu_milli) / 1000 AS cores
FROM 'placements.parquet' WHERE released_at IS NULL GROUP BY node ORDER BY node;
```

```sql
SELECT reason.key AS code, count(*) AS refusals
FROM 'decisions.parquet', json_each(reasons) AS reason
WHERE outcome = 'unresolvable' GROUP BY ALL ORDER BY ALL;
```

For pandas:

```python
import json

import pandas

decisions = pandas.read_parquet("decisions.parquet")
by_hour = decisions.set_index("decided_at").groupby("outcome").resample("1h").size()
requests = decisions["requests"].map(json.loads)
placements = pandas.read_csv("placements.csv", parse_dates=["bound_at", "released_at"])
cores = placements[placements["released_at"].isna()].groupby("node")["cpu_milli"].sum() / 1000
```

## Over time

`berth top` and `GET /v1/usage?since=&until=&step=&by=namespace|node|cluster` say what was requested, offered,
measured and decided, in steps of {STEP_MINUTES} minutes of log time or a multiple of that; without `step` as
one.

```console
$ berth top nodes --since 1h
$ berth top namespaces --since 7d --step 1d
$ curl 'localhost:8080/v1/usage?by=cluster&since=1d&step=1h'
```

- **Decisions** are counted by outcome, exactly once, by their log time; a worker counts them some seconds
  after they are durable. `evictions` are those with the outcome `evicted`.
- **All else is the mean of samples**: one each {STEP_MINUTES} minutes in which log time passes, as `samples`
  says. In a quiet log there is none, and all of it is null. cpu is in thousandths of a core, memory in bytes.
  `pods` and `requested_…` are of pods that have a node. What was measured is the latest measurement of the
  node, not older than a step, times its capacity; null where there was none. Namespaces have none: the
  [bill](bill.md) says what pods used. The cluster's figures are the sums of its nodes'.
- **It is kept for `BERTH_ROLLUP_DAYS`** ({rollup_days}), longer than the decisions that it counts:
  `berth prune` [deletes what is older](operations.md#pruning-the-history). It begins with the first decision
  that is kept when the first worker of this version starts.

## Kinds of columns

| kind | CSV | Parquet | SQL |
|---|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    kinds = "".join(f"| {kind} | {' | '.join(shown)} |\n" for kind, shown in _KINDS.items())
    parts = [_HEAD + kinds]
    for schema in SCHEMAS.values():
        parts += [f"## {schema.what}\n", *_about(schema), ""]
    return "\n".join(parts)


def _about(schema: Schema) -> Iterator[str]:
    order, namespace = ", ".join(f"`{each}`" for each in schema.order), ""
    if not schema.by_namespace:
        namespace = " It takes no `namespace`."
    elif schema.what is What.ATTEMPTS:
        namespace = (
            " Of a namespace are the groups of which pods of it are or were, from when the first was there."
        )
    touching = "that touch the time from `bound_at` to `released_at`"
    times = touching if schema.what is What.PLACEMENTS else f"by `{schema.time}`"
    yield f"`{schema.label}`: {schema.about}"
    yield f"They come by {order}; `since` and `until` choose {times}.{namespace}\n"
    yield "| column | kind | unit | |"
    yield "|---|---|---|---|"
    for column in schema.columns:
        yield f"| `{column.name}` | {column.kind} | {column.unit or '–'} | {column.about} |"


def main(arguments: list[str]) -> int:
    """Write the page; with ``--check`` only say whether it is as the table is."""
    return write_or_check(PAGE, page(), arguments, source="the table says", command=COMMAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
