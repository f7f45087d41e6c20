"""Does the judge of a day see decisions in the order of their numbers, wherever their rows came to lie?"""

from __future__ import annotations

from tests.chaos.judging import in_turn


def test_a_row_that_lies_before_an_earlier_one_comes_after_it() -> None:
    written = {(7, 61): 900, (7, 62): 40, (7, 63): 901}
    assert in_turn({7: range(61, 64)}, written) == [(7, 61), (7, 62), (7, 63)]


def test_the_decisions_of_several_shards_mix_as_their_rows_do() -> None:
    written = {(0, 1): 1, (2, 5): 2, (0, 2): 3, (2, 6): 0}
    assert in_turn({0: range(1, 3), 2: range(5, 7)}, written) == [(0, 1), (2, 5), (2, 6), (0, 2)]
