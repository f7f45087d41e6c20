"""Labels and taints by key: is each row's value found, and is what nobody has forgotten?"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from domain.model.integers import integer
from domain.state.keyed_values import ABSENT, KeyedValues

ROWS = 64
KEYS = ("all", "some", "one")


def content(keyed: KeyedValues[str], row: int) -> dict[str, str]:
    found = {}
    for key in KEYS:
        column = keyed.column(key)
        if column is not None and column[row] != ABSENT:
            found[key] = keyed.values.text(int(column[row]))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_rows_have_what_was_written_whatever_moved(seed: int) -> None:
    random = Random(seed)
    keyed: KeyedValues[str] = KeyedValues(ROWS, integer)
    rows: dict[int, dict[str, str]] = {}
    shares = {"all": random.random(), "some": random.random() / 5, "one": 0.03}
    for _ in range(600):
        row = random.randrange(ROWS)
        entries = {key: str(random.randrange(5)) for key in KEYS if random.random() < shares[key]}
        if random.random() < 0.1:
            shares = {key: random.random() ** 3 for key in KEYS}
        if random.random() < 0.2 and row in rows:
            free = next((each for each in range(ROWS) if each not in rows), None)
            if free is not None:
                keyed.move(row, free, rows[row])
                rows[free] = rows.pop(row)
            continue
        keyed.write(row, rows.get(row, {}), entries)
        rows[row] = entries
    assert all(content(keyed, row) == rows.get(row, {}) for row in range(ROWS))
    for row, entries in rows.items():
        keyed.write(row, entries, {})
    assert (len(keyed), len(keyed.values)) == (0, 0)


def test_a_key_of_few_rows_takes_no_column() -> None:
    keyed: KeyedValues[str] = KeyedValues(4_096, integer)
    for row in range(4_096):
        keyed.write(row, {}, {f"own-{row}": "x", "zone": str(row % 3)})
    assert (len(keyed), len(keyed._many), len(keyed.values)) == (4_097, 1, 4)


def test_numbers_follow_their_texts() -> None:
    keyed: KeyedValues[str] = KeyedValues(ROWS, integer)
    for i in range(200):
        keyed.write(0, {"k": str(i - 1)} if i else {}, {"k": str(i)})
    value = keyed.values.id_of("199")
    assert value is not None
    assert (keyed.values.numbers[value], keyed.values.is_number.sum()) == (199, 1)
    assert not keyed.values.is_number[ABSENT]
    found = np.array([value, ABSENT], dtype=np.int32)
    for texts in ([], ["199"], ["198", "x"], ["x", "199", "198"]):
        assert keyed.values.among(found, texts).tolist() == ["199" in texts, False]


def test_entries_are_the_column() -> None:
    keyed: KeyedValues[str] = KeyedValues(ROWS, integer)
    for row in range(40):
        keyed.write(row, {}, {"all": str(row), **({"one": "x"} if row == 7 else {})})
        for key in KEYS:
            column, entries = keyed.column(key), keyed.entries(key)
            assert (column is None) == (entries is None)
            if column is not None and entries is not None:
                found = np.full(ROWS, ABSENT, dtype=np.int32)
                found[entries[0]] = entries[1]
                assert found.tolist() == column.tolist()
