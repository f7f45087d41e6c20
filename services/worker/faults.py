"""What makes a worker start over, or end."""

from __future__ import annotations

from domain.model.errors import BerthError


class Stalled(BerthError):
    """The worker got no step further."""

    code = "no-progress"
    retriable = True


class BatchStalled(Stalled):
    """The worker got no step further with a batch that it had read."""


class Hanging(BerthError):
    """A plan does not end, and its thread cannot be ended: only a new process helps."""

    code = "plan-hangs"


class CommitOverdue(BerthError):
    """The ledger ended a commit that took it too long, again and again."""

    code = "commit-overdue"
    retriable = True
