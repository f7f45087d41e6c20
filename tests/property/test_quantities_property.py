"""Do quantities agree with plain exact arithmetic, whatever the number and the suffix?"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from domain.model.errors import FieldError
from domain.model.quantities import format_milli, format_units, parse_quantity, to_milli, to_units

PATIENT = settings(deadline=None)  # a busy machine is no finding

FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    **{suffix: Fraction(1000 ** (power + 1)) for power, suffix in enumerate("kMGTPE")},
    **{f"{suffix}i": Fraction(1024 ** (power + 1)) for power, suffix in enumerate("KMGTPE")},
    **{f"{letter}{power}": Fraction(10) ** power for letter in "eE" for power in range(-12, 13)},
}

numbers = st.from_regex(r"[+-]?([0-9]{1,12}(\.[0-9]{0,9})?|\.[0-9]{1,9})", fullmatch=True)


def exact(number: str, suffix: str) -> Fraction:
    with localcontext() as context:
        context.prec = 60
        return Fraction(Decimal(number)) * FACTORS[suffix]


def away_from_zero(value: Fraction) -> int:
    return math.ceil(value) if value >= 0 else math.floor(value)


@PATIENT
@given(number=numbers, suffix=st.sampled_from(sorted(FACTORS)))
def test_value_is_exact_up_to_a_billionth(number: str, suffix: str) -> None:
    expected = Fraction(away_from_zero(exact(number, suffix) * 10**9), 10**9)
    if suffix.endswith("i"):
        expected = max(min(expected, Fraction(2**63 - 1)), Fraction(1 - 2**63))
    assert parse_quantity(number + suffix) == expected
    assert to_milli(number + suffix) == away_from_zero(expected * 1000)
    assert to_units(number + suffix) == away_from_zero(expected)


@PATIENT
@given(text=st.text(max_size=70))
def test_any_text_is_a_value_or_a_named_error(text: str) -> None:
    try:
        value = parse_quantity(text)
    except FieldError:
        return
    assert to_milli(text) == away_from_zero(value * 1000)


@PATIENT
@given(milli=st.integers(min_value=-(10**15), max_value=10**15))
def test_what_is_shown_reads_back(milli: int) -> None:
    assert to_milli(format_milli(milli)) == milli


@PATIENT
@given(
    units=st.integers(min_value=0, max_value=2**62),
    shift=st.integers(min_value=0, max_value=60),
    binary=st.booleans(),
)
def test_units_shown_read_back(units: int, shift: int, binary: bool) -> None:
    value = units >> shift << shift
    assert to_units(format_units(value, binary=binary)) == value
