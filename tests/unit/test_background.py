"""Does a task that runs beside a process's own work ever end without a word?"""

from __future__ import annotations

import ast
import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import services
from domain.model.errors import Unavailable
from services import supervising
from services.background import begin, ended, endless, every
from services.metrics import tidied_gauge

_AWAITED = {
    "services/adapters/kafka/connection.py": "by the call that began it",
    "services/api/audit.py": "by all who ask for the audit",
    "services/api/disconnect.py": "by the request",
    "services/background.py": "this is the one place",
    "services/cli/reaching.py": "by the question whether any server answers, which ends them all",
    "services/cli/streaming.py": "by the loop that it tells of changes, which ends it",
    "services/processes.py": "by the thread, which ends with it",
    "services/serving.py": "the server itself, by serve_http",
    "services/supervising.py": "by the process, which ends with it",
    "services/topics.py": "by until_first",
    "services/worker/checkpoints.py": "by the next checkpoint, and by aclose",
    "services/worker/compiling.py": "by the turn",
    "services/worker/loop.py": "by the next batch",
    "services/worker/run.py": "by the step",
}
"""The files that begin tasks, and what waits for each of these, so that its fault is not lost."""


def test_no_other_file_begins_tasks() -> None:
    top = Path(services.__file__).parents[1]
    found = {
        str(path.relative_to(top))
        for folder in ("services", "research")
        for path in (top / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("create_task", "ensure_future", "run_in_executor")
    }
    assert found == set(_AWAITED)


class Failing:
    """Work that fails in its first tries, and then goes on until it is cancelled."""

    def __init__(self, *faults: BaseException | None) -> None:
        self.faults = list(faults)
        self.goes_on = asyncio.Event()

    async def __call__(self) -> None:
        if self.faults:
            fault = self.faults.pop(0)
            if fault is not None:
                raise fault
            return
        self.goes_on.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("fault", "said", "level"),
    [
        (TypeError("no number"), "tidying failed and begins anew: TypeError: no number", logging.ERROR),
        (Unavailable("away"), "tidying failed and begins anew: away", logging.WARNING),
        (asyncio.CancelledError(), "tidying failed and begins anew: CancelledError", logging.ERROR),
        (None, "tidying ended by itself and begins anew", logging.ERROR),
    ],
    ids=["bug", "outage", "cancelled from within", "return"],
)
async def test_a_task_without_end_says_why_it_ended_and_begins_anew(
    fault: BaseException | None, said: str, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    work = Failing(fault)
    task = endless("tidying", work)
    async with asyncio.timeout(10):
        await work.goes_on.wait()
    assert [(each.getMessage(), each.levelno) for each in caplog.records] == [(said, level)]
    assert (caplog.records[0].exc_info is not None) == (level == logging.ERROR and fault is not None)
    await ended([task])
    assert task.cancelled()
    assert len(caplog.records) == 1, "its end was asked for"


async def test_a_task_with_an_end_says_its_fault_also_where_nothing_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    await ended(
        [begin("a look", Failing(ValueError("odd"))()), begin("another", Failing(None)())], cancel=False
    )
    assert [each.getMessage() for each in caplog.records] == ["a look failed: ValueError: odd"]


async def test_a_step_is_done_again_and_again_and_its_success_is_noted() -> None:
    registry = CollectorRegistry()
    gauge = tidied_gauge(registry, "berth_tidied")
    steps: list[int] = []

    async def step() -> None:
        steps.append(len(steps))
        if len(steps) == 1:
            raise Unavailable("away")

    def success() -> float | None:
        return registry.get_sample_value("berth_tidied_timestamp_seconds", {"what": "tombstones"})

    label = gauge.labels("tombstones")
    assert success() == 0.0, "never yet"
    task = endless("tidying", partial(every, 0.01, step, label.set_to_current_time))
    async with asyncio.timeout(10):
        while not success():
            await asyncio.sleep(0.01)
    await ended([task])
    assert len(steps) >= 2


async def _forever() -> None:
    await asyncio.Event().wait()


async def _at_once() -> None:
    pass


async def test_a_process_whose_work_ends_by_itself_fails() -> None:
    with pytest.raises(supervising.Ended, match="_at_once"):
        await supervising.supervise(_forever(), _at_once())
    await supervising.supervise(_forever(), until=_at_once())
