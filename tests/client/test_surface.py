"""Are the client's files those of the contract, are both clients alike, and do names read well?"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from berth.client import AsyncClient, AsyncExport, AsyncView, AsyncWatch, Client, Export, View, Watch, models
from docs.build import client as build

SPEC = build.contract()
IDS = [each["operationId"] for methods in SPEC["paths"].values() for each in methods.values()]


def test_generated_files_are_as_the_contract_says() -> None:
    """Whoever changes the API or the client that awaits runs ``python -m docs.build.client``."""
    assert build.main(["--check"]) == 0


def test_operations_have_names_that_a_person_would_choose() -> None:
    assert len(IDS) == len(set(IDS)) > 40
    verb = re.compile(
        r"(list|get|explain|why|begin|end|stream|append|resend|diff|export|create|revoke|check|plan)_[a-z]+(_[a-z]+)*"
    )
    assert [each for each in IDS if not verb.fullmatch(each)] == []
    noise = ("v1", "__", "_get", "_post", "_delete")
    assert [each for each in IDS if any(part in each for part in noise)] == []


def test_each_operation_has_a_method() -> None:
    asked = [each for methods in build.RESOURCES.values() for each in methods.values()]
    assert sorted([*asked, *build.BY_HAND, *build.NOT_ASKED]) == sorted(IDS)


def _surface(kind: type[Any]) -> dict[str, Any]:
    """Return the public methods of a class, with their parameters, in the words of the one that blocks."""
    names = {"aclose": "close", "__anext__": "__next__"}
    names |= {"__aenter__": "__enter__", "__aexit__": "__exit__"}
    found: dict[str, Any] = {}
    for name, each in inspect.getmembers(kind):
        is_public = name in (*names, *names.values()) or not name.startswith("_")
        if not is_public:
            continue
        if isinstance(each, property) and each.fget is not None:
            found[name] = "property"
            returned = inspect.get_annotations(each.fget, eval_str=True)["return"]
            if "resources" in returned.__module__:
                found[name] = _surface(returned)
        elif callable(each):
            text = str(inspect.signature(each))
            found[names.get(name, name)] = re.sub(r"(?<!httpx\.)\bAsync(?=[A-Z])|httpx\.Async", "", text)
    return found


@pytest.mark.parametrize(
    ("blocks", "awaits"),
    [(Client, AsyncClient), (View, AsyncView), (Watch, AsyncWatch), (Export, AsyncExport)],
)
def test_both_clients_have_the_same_methods(blocks: type[Any], awaits: type[Any]) -> None:
    mine, its = _surface(blocks), _surface(awaits)
    assert mine == its
    assert len(mine) >= 3


def test_each_struct_has_the_fields_of_the_contract() -> None:
    """The files are compared above; this looks at what they come to."""
    schemas = SPEC["components"]["schemas"]
    enumerations = {name for name, each in schemas.items() if "enum" in each}
    for name, schema in schemas.items():
        if name in enumerations:
            continue
        struct = getattr(models, name)
        assert list(struct.__struct_encode_fields__) == list(schema["properties"]), name
        for field, each in zip(struct.__struct_fields__, schema["properties"].values(), strict=True):
            assert struct.__annotations__[field].removesuffix(" | None") == build.type_of(
                each, dict.fromkeys(enumerations)
            ).removesuffix(" | None"), (name, field)


def test_what_awaits_is_written_by_hand_and_what_blocks_is_made_from_it() -> None:
    here = Path(build.HERE)
    hand = {each.name for each in (here / "_async").glob("*.py")}
    assert hand == {each.name for each in (here / "_sync").glob("*.py")}
    assert "await" not in "".join(each.read_text() for each in (here / "_sync").glob("*.py"))
