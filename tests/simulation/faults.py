"""The faults by name: what each is, how often it strikes on a day, and how often it did."""

from __future__ import annotations

import enum
import random
from collections import Counter
from collections.abc import Collection


class Fault(enum.StrEnum):
    """What goes wrong."""

    says: str

    def __new__(cls, value: str, says: str) -> Fault:
        """Make a member of its name and its sentence."""
        fault = str.__new__(cls, value)
        fault._value_, fault.says = value, says
        return fault

    # What a call or an await of a process meets.
    CRASH = "crash", "a process dies at an await and cleans nothing up"
    FREEZE = "freeze", "a process stands still for 1 to 60 seconds, and goes on"
    ERROR_BEFORE = "error before", "a call fails before it has any effect"
    ERROR_AFTER = "error after", "a call takes effect and its answer is lost"
    PARTLY_APPENDED = "partly appended", "an append fails when some of its records are in"
    POLL_FAILED = "poll failed", "a poll fails"
    LATE_COMMIT = "late commit", "a commit reaches the database up to 10 seconds later"
    # What befalls one process or a server for a while.
    STOP = "stop", "a process is told to stop (SIGTERM)"
    LOG_CUT = "log cut", "a process reaches the ledger and not the log, for up to 30 seconds"
    LEDGER_CUT = "ledger cut", "a process reaches the log and not the ledger, for up to 30 seconds"
    LOG_AWAY = "log away", "nobody reaches the log, for up to 10 seconds"
    LEDGER_RESTART = (
        "ledger restart",
        "the database restarts: connections and transactions die, nothing is lost",
    )
    DISK_FULL = "disk full", "the database refuses every write, for up to 10 seconds"
    FOREIGN_WRITE = "foreign write", "somebody else raises the version of a node"
    CLOCK_AHEAD = "clock ahead", "the clock of a partition's broker is up to 90 seconds ahead"
    CLOCK_BEHIND = "clock behind", "the clock of a partition's broker is up to 90 seconds behind"
    HOLE = "hole", "offsets of a partition hold no record: the end of a transaction, or a compacted record"
    DECISIONS_LOST = "decisions lost", "the log loses the last decisions that were published"
    FAIL_OVER = "fail-over", "a replica takes over that lacks the last transactions"
    RESTORED = "restored", "a snapshot of the ledger's volume is restored, which has its name"
    TAIL_LOST = "tail lost", "the log loses the last records of a partition"
    TRUNCATED = "truncated", "retention takes records of a partition that nobody has read"
    MORE_PARTITIONS = (
        "more partitions",
        "an operator adds a shard, often after one topic alone grew",
    )
    BIND_FAILED = "bind failed", "who runs the pods cannot bind one to the node that was chosen for it"
    # What producers do.
    DUPLICATE = "duplicate", "a record is sent again, however late"
    BROKEN = "broken", "a record makes no sense"
    OTHER_CLOCK = "other clock", "a producer claims that its event happened hours away from now"


NOISE = (Fault.DUPLICATE, Fault.BROKEN, Fault.OTHER_CLOCK)
OF_CALLS = (
    Fault.CRASH,
    Fault.FREEZE,
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.PARTLY_APPENDED,
    Fault.POLL_FAILED,
    Fault.LATE_COMMIT,
)
OF_A_WHILE = (
    Fault.STOP,
    Fault.LOG_CUT,
    Fault.LEDGER_CUT,
    Fault.LOG_AWAY,
    Fault.LEDGER_RESTART,
    Fault.DISK_FULL,
    Fault.FOREIGN_WRITE,
    Fault.CLOCK_AHEAD,
    Fault.CLOCK_BEHIND,
    Fault.HOLE,
    Fault.DECISIONS_LOST,
    Fault.FAIL_OVER,
    Fault.RESTORED,
    Fault.TAIL_LOST,
    Fault.TRUNCATED,
    Fault.MORE_PARTITIONS,
)
SQUALL_FACTOR = 6.0
BRIEF = {Fault.FOREIGN_WRITE, Fault.CLOCK_AHEAD, Fault.CLOCK_BEHIND, Fault.HOLE}
"""They are over at once, and others can strike beside them."""


class Faults:
    """How often each fault strikes on one day, and how often it did.

    Attributes
    ----------
    rates : dict
        Fault of a call -> its probability.
    per_second : dict
        Fault of a while -> how often it strikes in a second of virtual time.
    lasting : list
        Those of a while that are on by design: each strikes once before chance has its say.
    noise : float
        The probability that a producer sends a record again, or a broken one, after each record.
    is_squally : bool
        Whether calls meet faults in squalls, with lulls between them in which work gets on.
    is_lull : bool
        Whether this is a lull.
    slow : float
        The probability that an await takes long; no fault, and not counted.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rates: dict[Fault, float] = dict.fromkeys(OF_CALLS, 0.0)
        self.per_second: dict[Fault, float] = {}
        self.lasting: list[Fault] = []
        self.slow = 0.05
        self.noise = 0.0
        self.is_squally = self.is_lull = False
        self.counts: Counter[Fault] = Counter()

    def draw(self, without: Collection[Fault] = (), lasting: Collection[Fault] = ()) -> None:
        """Make this day a bad one, of its own kind; ``lasting`` are on in any case."""
        rng = self._rng
        self.rates = {
            Fault.CRASH: rng.choice((0.0, 0.002, 0.005, 0.01)),
            Fault.FREEZE: rng.choice((0.0, 0.0, 0.002, 0.005)),
            Fault.ERROR_BEFORE: rng.choice((0.0, 0.01, 0.02, 0.05)),
            Fault.ERROR_AFTER: rng.choice((0.0, 0.01, 0.02, 0.05)),
            Fault.PARTLY_APPENDED: rng.choice((0.0, 0.05, 0.1)),
            Fault.POLL_FAILED: rng.choice((0.0, 0.02, 0.05)),
            Fault.LATE_COMMIT: rng.choice((0.0, 0.0, 0.03, 0.1)),
        }
        self.is_squally = rng.random() < 0.7
        if self.is_squally:
            self.rates = {fault: SQUALL_FACTOR * rate for fault, rate in self.rates.items()}
        self.slow = rng.choice((0.0, 0.05, 0.3))
        allowed = [fault for fault in OF_A_WHILE if fault not in without]
        chosen = rng.sample(allowed, rng.randint(0, 2))
        # To add a shard takes long, and nothing else lasting strikes meanwhile.
        self.lasting = sorted((f for f in lasting if f in allowed), key=lambda f: f is Fault.MORE_PARTITIONS)
        chosen = [*self.lasting, *(fault for fault in chosen if fault not in self.lasting)]
        # What lasts would leave no time to work in, if it struck more often.
        rates = {fault: (0.02, 0.1, 1.0) if fault in BRIEF else (0.02, 0.1) for fault in chosen}
        self.per_second = {fault: rng.choice(each) for fault, each in rates.items()}
        self.per_second |= {fault: max(0.1, self.per_second[fault]) for fault in self.lasting}
        self.noise = rng.choice((0.0, 0.3, 0.6, 0.8))

    def strikes(self, fault: Fault) -> bool:
        """Say whether a fault of a call strikes now."""
        rate = 0.0 if self.is_lull else self.rates[fault]
        if rate and self._rng.random() < rate:
            self.counts[fault] += 1
            return True
        return False

    def end(self) -> None:
        """Let nothing go wrong from now on."""
        self.rates = dict.fromkeys(OF_CALLS, 0.0)
        self.per_second = {}
