"""The moments of log time at which time alone lets something be decided."""

from __future__ import annotations

from domain.cycle.schedule import Scheduler
from domain.model.limits import timed_step_ms
from domain.model.timestamps import NEVER_MS


class DueMoments:
    """Says where a batch ends for what is timed, wherever the log would have been cut otherwise.

    What is due is decided at the next multiple of ``timed_step_ms``, before any record of that moment or
    later. So many small things that are due cost one batch a step, and nothing where nothing is timed.

    Attributes
    ----------
    due_ms : int
        The next such moment, ``NEVER_MS`` where nothing is timed.
    """

    def __init__(self) -> None:
        self.due_ms = NEVER_MS
        self._has_looked = False

    def expect(self, due_ms: int) -> None:
        """Take note of a moment that is known before the first look, as it follows from log time alone."""
        if due_ms < self.due_ms:
            self.due_ms = due_ms + -due_ms % timed_step_ms

    def ends_ms(self, now_ms: int, is_recorded: bool) -> int:
        """Return the moment at which a batch that begins now ends; of a recorded one its row says that."""
        return NEVER_MS if is_recorded or now_ms >= self.due_ms else self.due_ms

    def ended_ms(self, now_ms: int, until_ms: int) -> int:
        """Return the moment at which a recorded batch ended of which the last record is of now.

        Behind a checkpoint it is not known what was due: there the row of the batch is believed.
        """
        if not self._has_looked:
            return max(now_ms, until_ms)
        return self.due_ms if now_ms < self.due_ms <= until_ms else now_ms

    def passed_ms(self, now_ms: int) -> int:
        """Return the moment to which log time has come for what is timed."""
        return now_ms - now_ms % timed_step_ms

    def look(self, scheduler: Scheduler, now_ms: int) -> bool:
        """Look again at what is timed, after a cycle; say whether that is news for the ledger."""
        self._has_looked = True
        before_ms, due_ms = self.due_ms, max(scheduler.due_ms(now_ms), now_ms + 1)
        self.due_ms = due_ms if due_ms >= NEVER_MS else due_ms + -due_ms % timed_step_ms
        return now_ms >= before_ms or before_ms != self.due_ms
