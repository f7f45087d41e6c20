"""Asks the process that knows the cluster, why pods wait and where others would go: one question at a time.

It is started with the first question and ended some time after the last one. The API itself neither reads the
whole ledger nor loads a kernel, so that no question holds up its event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from domain.model.errors import FieldError
from domain.model.limits import (
    advisor_answer_seconds_max,
    advisor_kept_seconds,
    cures_asked_at_once_max,
    page_bytes_max,
)
from services.api.failures import STATUS, ApiError
from services.background import begin
from services.ports.advice import Asked, Beginning, Failed, PlanAsked, PlanTold, Told


class How(NamedTuple):
    """How the process is started: its command, its environment, and what it is told first."""

    command: Sequence[str]
    environment: dict[str, str]
    beginning: Beginning


_Answer = Told | PlanTold | Failed
_decode: Callable[[bytes], _Answer] = msgspec.json.Decoder(_Answer).decode


class Advisor:
    """The process, and the questions that wait for it."""

    def __init__(self, how: How, *, kept_seconds: float = advisor_kept_seconds) -> None:
        self._how = how
        self._kept_seconds = kept_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._asked_count = 0
        self._ending: asyncio.TimerHandle | None = None
        self.started_count = 0

    @property
    def pid(self) -> int | None:
        """The id of the process; None: there is none now."""
        return None if self._process is None else self._process.pid

    async def ask(self, question: Asked) -> Told:
        """Return why a pod waits.

        Raises ``ApiError``: too many wait for an answer already, or the process failed.
        """
        answer = await self._ask(question)
        assert isinstance(answer, Told)
        return answer

    async def plan(self, question: PlanAsked) -> PlanTold:
        """Return where pods would go. Raises ``FieldError`` for manifests without sense, else as ``ask``."""
        answer = await self._ask(question)
        assert isinstance(answer, PlanTold)
        return answer

    async def _ask(self, question: Asked | PlanAsked) -> Told | PlanTold:
        if self._asked_count >= cures_asked_at_once_max:
            raise ApiError("busy", f"{cures_asked_at_once_max} such questions wait already; ask again soon")
        if self._ending is not None:
            self._ending.cancel()
        self._asked_count += 1
        # A caller that leaves must not take the answer of the next one for its own.
        return await asyncio.shield(begin("asking about the cluster", self._in_turn(question)))

    async def _in_turn(self, question: Asked | PlanAsked) -> Told | PlanTold:
        try:
            async with self._turn:
                answer = await self._exchange(question)
        finally:
            self._asked_count -= 1
            if not self._asked_count:
                loop = asyncio.get_running_loop()
                self._ending = loop.call_later(self._kept_seconds, self._kill)
        if isinstance(answer, Failed):
            if answer.path is not None:
                raise FieldError(answer.path, answer.message)
            raise ApiError(answer.code if answer.code in STATUS else "unavailable", answer.message)
        return answer

    async def _exchange(self, question: Asked | PlanAsked) -> _Answer:
        if self._process is not None and self._process.returncode is not None:  # it was killed meanwhile
            self._process = None
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(msgspec.json.encode(question) + b"\n")
            async with asyncio.timeout(advisor_answer_seconds_max):
                line = await process.stdout.readline()
            if not line:
                raise ApiError("unavailable", "the search for cures failed; the log of the API says why")
            answer = _decode(line)
        except TimeoutError:
            self._kill()
            raise ApiError("too-slow", "the ledger could not be read and searched in time") from None
        except BaseException:
            self._kill()
            raise
        return answer

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self._how.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd="/",
            env=self._how.environment,
            limit=page_bytes_max,
        )
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(self._how.beginning) + b"\n")
        self._process = process
        self.started_count += 1
        return process

    def _kill(self) -> None:
        """End the process, with all that it holds; the next question starts another one."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            begin("ending the search for cures", process.wait())

    async def aclose(self) -> None:
        """End the process."""
        if self._ending is not None:
            self._ending.cancel()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
