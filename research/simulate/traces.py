"""The traces that a simulation can go through, by name."""

from __future__ import annotations

from pathlib import Path

import msgspec

from research.simulate.alibaba import ERROR_MINUTES, alibaba_trace
from research.simulate.azure import azure_trace
from research.simulate.generated import day_trace, imbalance_trace
from research.simulate.openb import openb_trace
from research.simulate.tianchi import tianchi_trace
from research.simulate.trace import Trace


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What may be chosen of a trace.

    Attributes
    ----------
    folder : Path, optional
        Where its files are.
    pod_list : str
        Which pod list of openb.
    nodes_count : int, optional
        How many nodes, where a trace has none, or of tianchi only some.
    error_minutes : float
        How long a node takes no pods after an error.
    drain : bool
        Whether the pods of a node that fails are evicted.
    """

    folder: Path | None = None
    pod_list: str = "default"
    nodes_count: int | None = None
    error_minutes: float = ERROR_MINUTES
    drain: bool = False


def trace_of(name: str, choices: Choices, *, seed: int) -> Trace:
    """Return a trace; ``seed`` draws what it leaves open.

    Raises
    ------
    TraceError
        A file is missing or does not read.
    """
    match name:
        case "openb":
            return openb_trace(choices.folder, choices.pod_list)
        case "azure":
            return azure_trace(choices.folder, seed, choices.nodes_count)
        case "alibaba":
            return alibaba_trace(
                choices.folder, seed, error_minutes=choices.error_minutes, drain=choices.drain
            )
        case "tianchi":
            return tianchi_trace(choices.folder, choices.nodes_count)
        case "imbalance":
            return imbalance_trace(seed)
        case "day":
            return day_trace(seed, choices.nodes_count)
        case _:
            raise AssertionError(f"there is no trace {name}")
