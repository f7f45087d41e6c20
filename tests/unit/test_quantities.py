"""Does a quantity mean what Kubernetes says it means?"""

from __future__ import annotations

from fractions import Fraction

import pytest

from domain.model.errors import FieldError
from domain.model.quantities import (
    format_milli,
    format_resource,
    format_units,
    milli_to_units,
    parse_quantity,
    to_milli,
    to_units,
)

MILLI = {
    "0": 0,
    "100m": 100,
    "4": 4000,
    "1.5": 1500,
    "+1.5": 1500,
    "-2": -2000,
    ".5": 500,
    "1.": 1000,
    "1.G": 10**12,
    "007": 7000,
    "1e3": 10**6,
    "1E3": 10**6,
    "1E": 10**21,
    "1e+3": 10**6,
    "1.5e-3": 2,
    "15e-1": 1500,
    "1E-9": 1,
    "0.1m": 1,
    "1n": 1,
    "1000001n": 2,
    "1u": 1,
    "2k": 2 * 10**6,
    "3M": 3 * 10**9,
    "1T": 10**15,
    "1P": 10**18,
    "128Mi": (128 << 20) * 1000,
    "2Gi": (2 << 30) * 1000,
    "1.5Ki": 1536 * 1000,
    "0.5Ki": 512 * 1000,
    "1Ki": 1024 * 1000,
    "1Ti": (1 << 40) * 1000,
    "1Pi": (1 << 50) * 1000,
    "7Ei": (7 << 60) * 1000,
    "8Ei": (2**63 - 1) * 1000,
    "8.5Ei": (2**63 - 1) * 1000,
    "128974848": 128974848 * 1000,
    "-0": 0,
    "0e9": 0,
}


@pytest.mark.parametrize(("text", "milli"), MILLI.items())
def test_thousandths(text: str, milli: int) -> None:
    assert to_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "units"),
    {"1": 1, "100m": 1, "1001m": 2, "-1001m": -2, "1n": 1, "1.5Gi": 3 << 29, "1e3": 1000, "0": 0}.items(),
)
def test_units_round_away_from_zero(text: str, units: int) -> None:
    assert to_units(text) == units


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "m",
            "Ki",
            "+",
            "-",
            ".",
            "e3",
            "abc",
            "1i",
            "1mi",
            "1ki",
            "1KI",
            "1K",
            "1kb",
            "1 Gi",
            " 1",
            "1 ",
        ),
        *(
            "--1",
            "+-1",
            "1.2.3",
            "1,5",
            "1e",
            "1e1.5",
            "1e3Ki",
            "1Gim",
            "1_000",
            "0x10",
            "NaN",
            "inf",
            "1e61",
        ),
        *("٣", "1²", "1\n", "1\x00", "9" * 65, "1e99999999999999999999"),
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    for parse in (parse_quantity, to_milli):
        with pytest.raises(FieldError, match="Ki Mi Gi Ti Pi Ei") as caught:
            parse(text)
        assert caught.value.message.isascii() or "…" in caught.value.message


def test_values_are_exact() -> None:
    assert parse_quantity("0.1") == Fraction(1, 10)
    assert parse_quantity("0.3Ki") == Fraction(3072, 10)
    assert parse_quantity("0.0000000001") == Fraction(1, 10**9)  # the smallest step is a billionth
    assert parse_quantity("-0.0000000001") == Fraction(-1, 10**9)


@pytest.mark.parametrize(
    ("milli", "text"), {0: "0", 500: "500m", 4000: "4", 1500: "1500m", -250: "-250m"}.items()
)
def test_thousandths_are_shown(milli: int, text: str) -> None:
    assert format_milli(milli) == text


@pytest.mark.parametrize(
    ("units", "text"),
    {
        0: "0",
        1: "1",
        1023: "1023",
        1024: "1Ki",
        1536: "1536",
        256 << 30: "256Gi",
        (256 << 30) + 1: "274877906945",
    }.items(),
)
def test_units_are_shown_binary_only_when_exact(units: int, text: str) -> None:
    assert format_units(units, binary=True) == text
    assert format_units(units, binary=False) == str(units)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("cpu", 250, "250m"),
        ("memory", 1 << 30, "1Gi"),
        ("ephemeral-storage", 10 << 20, "10Mi"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("pods", 1024, "1024"),
        ("nvidia.com/gpu", 8, "8"),
    ],
)
def test_resources_are_shown_in_their_own_way(name: str, value: int, text: str) -> None:
    assert format_resource(name, value) == text


def test_milli_to_units_rounds_away_from_zero() -> None:
    assert [milli_to_units(milli) for milli in (0, 1, 1000, 1001, -1, -1001)] == [0, 1, 1, 2, -1, -2]
