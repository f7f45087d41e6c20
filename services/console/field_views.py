"""What the field says without a script: squares for few nodes, and for any number a summary of each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from services.console.blocks import Json
from services.phrases import plural

STEPS = 10
"""Colours of the scale, from nothing to all that a node has; one more is for more than that."""
HIGH = 0.8
"""From which share on a summary counts a node as nearly full."""
SQUARES_MAX = 1_000
"""Nodes that are drawn as squares without a script; each is a link."""
GROUPS_MAX = 200
PITCH, SIDE, COLUMNS = 22, 20, 40


class Colour(NamedTuple):
    """What squares are coloured by: what is asked or measured of a resource."""

    name: str
    resource: str
    is_measured: bool = False


COLOURS = {
    "cpu": Colour("asked cpu", "cpu"),
    "memory": Colour("asked memory", "memory"),
    "devices": Colour("devices in use", "nvidia.com/gpu"),
    "pods": Colour("pods", "pods"),
    "measured-cpu": Colour("measured cpu", "cpu", is_measured=True),
    "measured-memory": Colour("measured memory", "memory", is_measured=True),
}


class Square(NamedTuple):
    """A node's square: where it is, its step of the scale (-1: nothing is known), and what it says."""

    name: str
    x: int
    y: int
    step: int
    says: str
    is_marked: bool


class Group(NamedTuple):
    """Nodes with one value of the label: how many, how full, and how many of them are at each step."""

    name: str
    nodes_count: int
    mean: str
    high_count: int
    not_ready_count: int
    steps: Sequence[tuple[int, float]]  # height of each column in percent, by step
    steps_said: str
    squares: Sequence[Square]

    @property
    def height(self) -> int:
        """Height of its squares in pixels."""
        return -(-self.nodes_count // COLUMNS) * PITCH


def shares_of(field: Json, colour: Colour) -> list[float | None]:
    """Return the share of each node that is asked or measured; None where there is nothing to show."""
    column = next((each for each in field["resources"] if each["name"] == colour.resource), None)
    if column is None:
        return [None] * len(field["names"])
    if colour.is_measured:
        measured: Sequence[Any] = column["measured"] or [None] * len(field["names"])
        return [None if value is None else value / 100 for value in measured]
    amounts = zip(column["allocatable"], column["requested"], strict=True)
    return [asked / offered if offered > 0 else None for offered, asked in amounts]


def step_of(share: float | None) -> int:
    """Return the step of a share: 0 to 9, 10 where it is more than all, -1 where nothing is known."""
    if share is None:
        return -1
    return STEPS if share > 1 else min(STEPS - 1, int(share * STEPS))


def percent(share: float | None) -> str:
    """Return a share in percent."""
    return "–" if share is None else f"{100 * share:.1f} %"


def groups_of(field: Json, colour: Colour) -> list[Group]:
    """Return the first groups of a field with their sums, and with squares where all nodes are few."""
    shares, down = shares_of(field, colour), frozenset(field["not_ready"])
    marked = down.union(field["unschedulable"], field["hot"] or ())
    has_squares, first, found = len(shares) <= SQUARES_MAX, 0, []
    for group in field["groups"][:GROUPS_MAX]:
        nodes = range(first, first + group["nodes"])
        first = nodes.stop
        known = [share for at in nodes if (share := shares[at]) is not None]
        squares = [
            Square(
                name=field["names"][at],
                x=(at - nodes.start) % COLUMNS * PITCH,
                y=(at - nodes.start) // COLUMNS * PITCH,
                step=step_of(shares[at]),
                says=f"{field['names'][at]}: {colour.name} {percent(shares[at])}{_flags(field, at)}",
                is_marked=at in marked,
            )
            for at in (nodes if has_squares else ())
        ]
        found.append(
            Group(
                name=_name_of(group["value"], field["by"]),
                nodes_count=len(nodes),
                mean=percent(sum(known) / len(known) if known else None),
                high_count=sum(share >= HIGH for share in known),
                not_ready_count=len(down.intersection(nodes)),
                steps=_columns(known),
                steps_said=_steps_said(known),
                squares=squares,
            )
        )
    return found


def _name_of(value: str | None, by: str | None) -> str:
    if by is None:
        return "all nodes"
    return "without this label" if value is None else value


def _flags(field: Json, at: int) -> str:
    names = {
        "not_ready": "not ready",
        "unschedulable": "takes no new pods",
        "tainted": "tainted",
        "hot": "hot",
    }
    return "".join(f", {says}" for name, says in names.items() if at in (field[name] or ()))


def _counts(known: Sequence[float]) -> list[int]:
    """Return how many nodes are at each step."""
    counts = [0] * (STEPS + 1)
    for share in known:
        counts[step_of(share)] += 1
    return counts


def _steps_said(known: Sequence[float]) -> str:
    """Return how many nodes are at each step, in words: ``2 nodes at 10 to 20 %, 1 node above 100 %``."""
    width = 100 // STEPS
    names = [*(f"at {width * step} to {width * step + width} %" for step in range(STEPS)), "above 100 %"]
    counts = zip(_counts(known), names, strict=True)
    return ", ".join(f"{plural(count, 'node')} {name}" for count, name in counts if count) or "nothing known"


def _columns(known: Sequence[float]) -> list[tuple[int, float]]:
    """Return how high the column of each step is, the highest being 100."""
    counts = _counts(known)
    most = max(counts) or 1
    return [(step, 100 * count / most) for step, count in enumerate(counts)]
