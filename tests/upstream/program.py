"""Builds the Go program beside this file, and asks it: kube-scheduler's own plugins answer."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType

import msgspec
import orjson

from tests.upstream.draw import Json

_HERE = Path(__file__).parent
BINARY = _HERE.parent.parent / "build" / "upstream" / "upstream"
VERSION = "v1.36.3"


class Refusal(msgspec.Struct, frozen=True):
    """Why the first filter that refused a node did so, in upstream's words."""

    plugin: str
    reasons: list[str]
    unresolvable: bool


class Candidate(msgspec.Struct, frozen=True):
    """The pods that would have to go from a node, most important first, and how many violate a budget."""

    victims: list[str]
    violations: int


class Preempting(msgspec.Struct, frozen=True):
    """What preemption could do for a pod that no node takes; kube-scheduler takes one of ``best``."""

    eligible: bool
    why: str
    might_help: list[str]
    candidates: dict[str, Candidate]
    best: list[str]


class Answer(msgspec.Struct, frozen=True):
    """What kube-scheduler finds for a pod; ``scores`` are node -> plugin -> normalised score, unweighted.

    ``preemption`` is None where it was not asked for, or a node takes the pod.
    """

    pod: str
    feasible: list[str]
    infeasible: dict[str, Refusal]
    scores: dict[str, dict[str, int]]
    totals: dict[str, int]
    preemption: Preempting | None = None


class Greeting(msgspec.Struct, frozen=True):
    """What answers: its version, its plugins in order, the weights of its scores."""

    version: str
    filters: list[str]
    weights: dict[str, int]


class _Ending(msgspec.Struct, frozen=True):
    done: bool
    error: str = ""


class NotBuilt(Exception):
    """The program cannot be had here; the message says why."""


def build() -> Path:
    """Build the program, or what changed of it: seven minutes the first time.

    Raises
    ------
    NotBuilt
        Go is missing, or the build failed.
    """
    if shutil.which("go") is None:
        raise NotBuilt("Go is not installed, so kube-scheduler's own code cannot be built")
    BINARY.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", str(BINARY), "."]
    done = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotBuilt(f"go build failed: {done.stderr[-2000:]}")
    return BINARY


class Program:
    """A running program, which answers scenario after scenario."""

    def __init__(self, binary: Path = BINARY) -> None:
        self._process = subprocess.Popen([binary], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.greeting = msgspec.json.decode(self._line(), type=Greeting)

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the program."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(timeout=30)

    def ask(self, scenario: Json, placed: dict[str, str | None]) -> list[Answer]:
        """Return an answer for each pod of the schedule.

        Parameters
        ----------
        scenario : dict
            ``objects`` and ``schedule``, as ``berth plan`` takes them; ``grandfathered`` names pods that
            today's validation need not accept; ``preempt`` asks for what preemption could do.
        placed : dict
            Pod -> the node that berth chose, None for none: before the next pod is looked at, it is there.

        Raises
        ------
        ValueError
            The API server would refuse an object, or the program failed.
        """
        asked = {key: scenario.get(key, []) for key in ("objects", "schedule", "grandfathered")}
        asked |= {"placed": placed, "preempt": scenario.get("preempt", False)}
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(asked) + b"\n")
        self._process.stdin.flush()
        answers = []
        while not (line := self._line()).startswith(b'{"done"'):
            answers.append(msgspec.json.decode(line, type=Answer))
        ending = msgspec.json.decode(line, type=_Ending)
        if not ending.done:
            raise ValueError(ending.error)
        return answers

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        line: bytes = self._process.stdout.readline()
        if not line:
            raise ValueError(f"the program ended: {self._process.wait(timeout=30)}")
        return line
