"""Are lists sorted and printed as `-o` and `--sort-by` say, and are JSON paths those of kubectl?"""

from __future__ import annotations

from typing import Any

import pytest
import typer

from services.cli import jsonpath
from services.cli.get import _lists
from services.cli.options import CommandError
from services.cli.output import Column
from services.cli.shapes import print_list, shape_of, sorted_by

ITEMS: list[dict[str, Any]] = [
    {"name": "b", "cpu": "500m", "at": {"x/y.z": 1}, "ports": [1, 2]},
    {"name": "a", "cpu": "2", "at": {"x/y.z": True}, "ports": []},
    {"name": "c", "cpu": None, "at": {}, "ports": [3]},
]
COLUMNS = (Column("NAME", lambda item: item["name"]), Column("CPU", lambda item: item["cpu"], wide=True))


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{.items[*].name}", "b a c"),
        ("{[*].name}", "b a c"),
        ("[0].name", "b"),
        ("{[-1].name}", "c"),
        ('{[0].at["x/y.z"]}', "1"),
        (r"{[1].at.x/y\.z}", "true"),
        ("{[0].ports[*]}", "1 2"),
        ("{[0].ports}", "[1, 2]"),
        ('{[0].name}{"\\n"}and {[1].name}', "b\nand a"),
        ("{[9].name}", ""),
        ("{.nothing}", ""),
        ("{$[0].name}", "b"),
    ],
)
def test_a_json_path_gives_what_kubectl_does(template: str, shown: str) -> None:
    assert jsonpath.rendered(ITEMS, jsonpath.parsed(template)) == shown


@pytest.mark.parametrize(
    "template", ["{.items[?(@.x)]}", "{..name}", "{range .items[*]}{end}", "{.a", "{[1:2]}"]
)
def test_a_path_that_is_not_read_is_refused(template: str) -> None:
    with pytest.raises(CommandError, match="is not a JSON path that is read here; allowed are"):
        jsonpath.parsed(template)


def test_a_list_is_sorted_by_size_where_all_are_quantities_and_none_comes_last() -> None:
    assert [each["name"] for each in sorted_by(ITEMS, ".cpu")] == ["b", "a", "c"]
    assert [each["name"] for each in sorted_by(ITEMS, "{.name}")] == ["a", "b", "c"]
    with pytest.raises(typer.BadParameter, match=r"no item has it; the fields are \.name, \.cpu"):
        sorted_by(ITEMS, ".nope")


def test_csv_has_all_columns_and_json_lines_an_item_each(capsys: pytest.CaptureFixture[str]) -> None:
    print_list("items", COLUMNS, ITEMS, shape_of("csv"))
    assert capsys.readouterr().out == "NAME,CPU\nb,500m\na,2\nc,\n"
    print_list("items", COLUMNS, ITEMS[:1], shape_of("jsonl"))
    assert capsys.readouterr().out == ('{"name":"b","cpu":"500m","at":{"x/y.z":1},"ports":[1,2]}\n')
    print_list("items", COLUMNS, ITEMS, shape_of("name"), lambda item: f"pod/{item['name']}")
    assert capsys.readouterr().out == "pod/b\npod/a\npod/c\n"


def test_csv_is_quoted_and_no_spreadsheet_runs_it(capsys: pytest.CaptureFixture[str]) -> None:
    items: list[dict[str, Any]] = [
        {"name": '=HYPERLINK("x")', "cpu": -1},
        {"name": "a,b", "cpu": "-"},
        {"name": "@x", "cpu": None},
    ]
    print_list("items", COLUMNS, items, shape_of("csv"))
    assert capsys.readouterr().out == 'NAME,CPU\n"\'=HYPERLINK(""x"")",-1\n"a,b",\n\'@x,\n'


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="allowed are table, wide, name, csv"):
        shape_of("xml")


GIVEN: dict[str, Any] = {"namespace": None, "node": None, "history": None, "since": None}


def test_several_kinds_take_the_filters_that_they_have() -> None:
    pods, nodes = _lists("po,no", [], {**GIVEN, "namespace": "shop"})
    assert (pods.parameters, nodes.parameters) == ({"namespace": "shop"}, {})
    with pytest.raises(typer.BadParameter, match="--outcome does not apply"):
        _lists("po,no", [], {**GIVEN, "outcome": "bound"})


def test_a_name_as_it_is_printed_is_read_again() -> None:
    (asked,) = _lists("pod/shop/web-0", [], GIVEN)
    assert (asked.kind, asked.names) == ("pods", ["shop/web-0"])


def test_the_time_of_shards_is_that_of_their_history() -> None:
    with pytest.raises(typer.BadParameter, match="--since does not apply to shards"):
        _lists("shards", [], {**GIVEN, "since": "1h"})
    (asked,) = _lists("shards", [], {**GIVEN, "since": "1h", "history": True})
    assert asked.table == "owners"
