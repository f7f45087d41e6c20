"""Shapes of an explanation: a decision, the cycle behind it, and what the candidates were scored from."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from services.api.models import INSTANT, QUANTITIES, Decision, Shape


class SumOfNode(Shape):
    """What a node offers of a resource, and what the pods on it hold."""

    allocatable: str = Field(description="What the node offers, as a quantity")
    requested: str = Field(description="What its pods request together, without the pod itself")


class FiguresThen(Shape):
    """What was measured of one resource of a node, in percent of what the node has; null: not measured."""

    avg: float | None = Field(description="Average over the window")
    std: float | None = Field(description="Standard deviation over the window (of the population)")
    latest: float | None = Field(description="Latest value in the window")
    peak_yesterday: float | None = Field(description="Highest value of the UTC day before the latest one")


class UsageThen(Shape):
    """What was measured of a node when it was looked at."""

    at: str | None = Field(description=f"Time of the latest measurement ({INSTANT}); null: there was none")
    resources: dict[str, FiguresThen] = Field(description="Figures by resource")


class CandidateInputs(Shape):
    """What a candidate was scored from."""

    node_version: int | None = Field(
        description="The node's version just before; kept where the profile reads measured usage"
    )
    resource_version: int | None = Field(
        description="Version of the node's spec that its producer gave; kept where usage is"
    )
    sums: dict[str, SumOfNode] = Field(
        description="What filters and scores read as sums; names with ~ are explained in docs/explanations.md"
    )
    usage: UsageThen | None = Field(
        description="What was measured, as the profile's plugins read it; null where they do not"
    )


class Extremes(Shape):
    """What the raw values of a score were normalised with."""

    low: float | None = Field(description="Lowest raw score of the feasible nodes; null: none was a number")
    high: float | None = Field(description="Highest raw score of the feasible nodes; null: as for low")
    nodes: int = Field(description="Of a variance: nodes that count in it")
    metrics_sum: int = Field(description="Of a variance: the sum of their metrics, in units of 2^-20")


class Candidate(Shape):
    """A node that could have been chosen."""

    node: str = Field(description="The node")
    score: float = Field(description="Its total score")
    parts: dict[str, float] = Field(description="Its score per plugin, 0 to 100, before the weight")
    inputs: CandidateInputs | None = Field(
        description="What it was scored from: of all candidates where the profile reads measured usage, else "
        "of the first two"
    )


class Cycle(Shape):
    """One scheduling attempt of one equivalence group."""

    id: str = Field(description="<shard>-<seq of its first decision>")
    profile: str = Field(description="Profile that was used")
    profile_revision: int = Field(description="Revision of the profile")
    seed: int = Field(description="Seed of tie-breaking")
    generation: int = Field(description="Generation of the snapshot that was looked at")
    looked_at: str | None = Field(description=f"When it was looked at ({INSTANT}, log time)")
    repeated_at_generation: int | None = Field(
        description="Generation at which the verdict was only repeated, for further pods of a parked group; "
        "null: it is no repetition"
    )
    nodes: int = Field(description="Nodes that were looked at: all of them")
    feasible: int = Field(description="Nodes that passed all filters")
    unresolvable: int = Field(description="Nodes that would not fit even if all their pods left")
    reasons: dict[str, int] = Field(description="Nodes per reason code of the first filter that failed")
    candidates: list[Candidate] = Field(description="Best nodes, best first, as the first pod saw them")
    extremes: dict[str, Extremes] = Field(description="What scores were normalised with, by score")
    pods: int = Field(description="Pods of the group in this attempt")
    bound: int = Field(description="Pods that got a node")
    duration_us: int = Field(
        description="Microseconds in which the worker placed all pods of the batch, this attempt's among them"
    )


class Explanation(Shape):
    """Why a decision was what it was."""

    decision: Decision = Field(description="The decision")
    requests: dict[str, str] = Field(description=f"What the pod asks for: {QUANTITIES}")
    template: dict[str, Any] = Field(
        description="All of the pod that mattered for placing it, in canonical units; empty fields left out"
    )
    cycle: Cycle | None = Field(description="The attempt behind it; null where none was needed")
    profile: str | None = Field(description="Where this API shows the revision of the profile that was used")
    summary: str = Field(description="The same in words")
