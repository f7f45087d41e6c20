"""What is wrong with berth now, in words, with what to do about it: `/readyz` and the shards in prose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from services.console.blocks import Json

LAG_SECONDS_WRONG = 10.0
_PARTS = {
    "database": "The database does not answer",
    "migrations": "The tables of the database do not fit this version",
    "workers": "Workers are missing",
    "log": "The log does not answer",
}
_REMEDIES = {
    "database": "See that Postgres runs and that BERTH_POSTGRES_DSN names it. Nothing is lost meanwhile: "
    "events wait in the log, and workers go on by themselves once it is back.",
    "migrations": "Run `berth init` with the newer version, or start the version that the tables are of.",
    "workers": "Start `berth worker`, or `berth up`; pods wait until a worker holds their shard.",
    "log": "See that Kafka runs and that BERTH_KAFKA_BOOTSTRAP names it. What is placed stays placed; "
    "nothing new is decided.",
}
_LAGGING = "Its worker is busy or stuck: see the shard, and the workers' log; more workers share the work."
_ALARM = "docs/operations.md says what each alarm means, and what to run."


class Wrong(NamedTuple):
    """One thing that is wrong, what the API says of it, and what to do."""

    title: str
    says: str
    remedy: str


class Health(NamedTuple):
    """Everything that is wrong, the worst first; nothing: all is well."""

    wrong: Sequence[Wrong]
    lag: Sequence[Json]

    @staticmethod
    def of(ready: Json) -> Health:
        """Read the answer of ``/readyz``."""
        checks = ready.get("checks", {"api": "it does not say whether the deployment is ready"})
        found = [
            Wrong(_PARTS.get(part, f"The check of {part} fails"), says, _REMEDIES.get(part, ""))
            for part, says in checks.items()
            if says != "ok"
        ]
        found += [Wrong("A relay raised an alarm", says, _ALARM) for says in ready.get("alarms", ())]
        found += [
            Wrong(
                f"Shard {each['shard']} is behind",
                f"{each['records']:,} records wait, the oldest for {each['seconds']:.0f} s.",
                _LAGGING,
            )
            for each in ready.get("lag", ())
            if each["seconds"] > LAG_SECONDS_WRONG
        ]
        return Health(found, ready.get("lag", ()))

    @property
    def summary(self) -> str:
        """The same in a few words."""
        if not self.wrong:
            return "berth works"
        return self.wrong[0].title if len(self.wrong) == 1 else f"{len(self.wrong)} things are wrong"
