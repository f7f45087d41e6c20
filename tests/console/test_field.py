"""Does the field say without a script what the script draws, and what the API says?"""

from __future__ import annotations

from typing import Any

import pytest

from services.console.field_views import COLOURS, COLUMNS, PITCH, SQUARES_MAX, groups_of, shares_of, step_of


def field(
    offered: list[int], asked: list[int], groups: list[tuple[str | None, int]], **more: Any
) -> dict[str, Any]:
    """Return an answer of the API about cpu and nothing else."""
    column = {
        "name": "cpu",
        "allocatable": offered,
        "requested": asked,
        "measured": more.pop("measured", None),
    }
    return {
        "by": "zone" if groups and (len(groups) > 1 or groups[0][0] is not None) else None,
        "groups": [{"value": value, "nodes": count} for value, count in groups],
        "names": [f"n{at}" for at in range(len(offered))],
        "resources": [column],
        "unschedulable": [],
        "not_ready": [],
        "tainted": [],
        "hot": None,
        **more,
    }


@pytest.mark.parametrize(
    ("share", "step"),
    [(None, -1), (0.0, 0), (0.0999, 0), (0.1, 1), (0.95, 9), (1.0, 9), (1.001, 10), (7.0, 10)],
)
def test_a_share_has_a_step_of_the_scale(share: float | None, step: int) -> None:
    assert step_of(share) == step


def test_shares_are_asked_or_measured() -> None:
    found = field([8000, 4000, 0], [2000, 6000, 10], [(None, 3)], measured=[12.5, None, 100.0])
    assert shares_of(found, COLOURS["cpu"]) == [0.25, 1.5, None]
    assert shares_of(found, COLOURS["measured-cpu"]) == [0.125, None, 1.0]
    assert shares_of(found, COLOURS["devices"]) == [None] * 3


def test_groups_are_summed_and_drawn() -> None:
    offered, asked = [1000] * 4, [0, 800, 500, 1000]
    found = field(offered, asked, [("a", 2), (None, 2)], not_ready=[3], unschedulable=[1], hot=[0])
    one, two = groups_of(found, COLOURS["cpu"])
    assert (one.name, one.nodes_count, one.mean, one.high_count, one.not_ready_count) == (
        "a",
        2,
        "40.0 %",
        1,
        0,
    )
    assert (two.name, two.mean, two.high_count, two.not_ready_count) == ("without this label", "75.0 %", 1, 1)
    assert [(each.x, each.y, each.step, each.is_marked) for each in (*one.squares, *two.squares)] == [
        *((0, 0, 0, True), (PITCH, 0, 8, True), (0, 0, 5, False), (PITCH, 0, 9, True))
    ]
    assert two.squares[1].says == "n3: asked cpu 100.0 %, not ready"
    assert dict(one.steps)[8] == 100
    assert dict(one.steps)[1] == 0


def test_a_row_of_squares_is_followed_by_another() -> None:
    (group,) = groups_of(field([1] * 41, [0] * 41, [(None, 41)]), COLOURS["cpu"])
    assert (group.name, group.height) == ("all nodes", 2 * PITCH)
    assert (group.squares[COLUMNS].x, group.squares[COLUMNS].y) == (0, PITCH)


def test_many_nodes_are_summed_alone() -> None:
    count = SQUARES_MAX + 1
    (group,) = groups_of(field([1] * count, [1] * count, [(None, count)]), COLOURS["cpu"])
    assert (group.squares, group.mean) == ([], "100.0 %")


def test_nothing_is_nothing() -> None:
    assert groups_of(field([], [], []), COLOURS["cpu"]) == []
    (group,) = groups_of(field([0], [0], [("a", 1)]), COLOURS["cpu"])
    assert (group.mean, group.high_count) == ("–", 0)
