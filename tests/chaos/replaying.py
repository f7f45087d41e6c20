"""Plans the batches of a day again: they have to follow from journal and log alone, whoever died."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter

import orjson

from ops.child import environment, python_module, python_path
from services.bootstrap import Place
from tests.chaos.judging import Found
from tests.chaos.processes import SOUND

_SECONDS_MAX = 300.0
_NEVER_RESTED = "there is no checkpoint yet"


async def plan_again(place: Place) -> tuple[Found, Counter[str]]:
    """Run ``berth replay`` over all that it reaches; return what is wrong, and how much it planned again."""
    return await asyncio.to_thread(_plan_again, place)


def _plan_again(place: Place) -> tuple[Found, Counter[str]]:
    assert place.kafka_bootstrap is not None
    env = environment(
        PYTHONPATH=python_path(), BERTH_POSTGRES_DSN=place.dsn, BERTH_KAFKA_BOOTSTRAP=place.kafka_bootstrap
    )
    done = subprocess.run(
        python_module(SOUND, "replay", "-o", "json"),
        cwd="/",
        env=env,
        capture_output=True,
        timeout=_SECONDS_MAX,
    )
    if not done.stdout:
        said = done.stderr.decode(errors="replace")
        if _NEVER_RESTED in said:
            return [], Counter({"days without a checkpoint": 1})
        return [("CANNOT_REPLAY", said[-600:])], Counter()
    outcome = orjson.loads(done.stdout)
    progress = outcome["progress"]
    counts = Counter(
        {
            "batches planned again": progress["batches_count"],
            "decisions planned again": progress["decisions_count"],
            "restarts planned again": progress["restarts_count"],
        }
    )
    if outcome["difference"] is None:
        return [], counts
    return [("REPLAY_DIFFERS", str(outcome["difference"]))], counts
