"""Answers of kube-scheduler's preemption, kept with their scenarios for where there is no Go.

``python -m tests.upstream.recording FIRST:LAST`` writes them anew, of small scenarios among these seeds.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec
import orjson

from tests.upstream.draw import Json
from tests.upstream.program import Preempting, Program, build
from tests.upstream.scenarios import PREEMPTING, family_of, scenario_of

FILE = Path(__file__).parent / "preempting.jsonl.gz"
_KEPT_PER_FAMILY = 45
_WITHOUT_CANDIDATES = 10
_OBJECTS_MAX = 40


class Recorded(NamedTuple):
    """A scenario and what upstream found, None where a node takes the pod as it is."""

    scenario: Json
    preemption: Preempting | None


def read() -> list[Recorded]:
    """Return what is recorded."""
    lines = [orjson.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
    return [Recorded(each["scenario"], _preemption(each["preemption"])) for each in lines]


def _preemption(found: Json | None) -> Preempting | None:
    return None if found is None else msgspec.convert(found, Preempting)


def _kept(program: Program, family: str, seeds: range) -> list[Recorded]:
    """Return scenarios of a family, most of them with candidates."""
    kept: list[Recorded] = []
    without = 0
    for seed in seeds:
        scenario = scenario_of(seed) if family_of(seed) == family else None
        if scenario is None or len(scenario["objects"]) > _OBJECTS_MAX or len(kept) == _KEPT_PER_FAMILY:
            continue
        (name,) = scenario["schedule"]
        (answer,) = program.ask(scenario, {name: None})
        is_without = answer.preemption is None or not answer.preemption.candidates
        if not is_without or without < _WITHOUT_CANDIDATES:
            without += is_without
            kept.append(Recorded(scenario, answer.preemption))
    return kept


def main(arguments: list[str]) -> int:
    """Write the file anew."""
    first, _, last = arguments[0].partition(":")
    seeds = range(int(first), int(last))
    with Program(build()) as program:
        kept = [each for family in PREEMPTING for each in _kept(program, family, seeds)]
    lines = [orjson.dumps(msgspec.to_builtins(each._asdict())) for each in kept]
    FILE.write_bytes(gzip.compress(b"\n".join(lines), mtime=0))
    print(f"{len(kept)} scenarios, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
