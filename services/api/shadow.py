"""How shadow profiles compare with the live ones, as workers announce it: `/v1/shadow`."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import reduce
from typing import Annotated

from fastapi import APIRouter, Query, Response
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from domain.model.limits import heartbeat_seconds_max
from services.api.answers import Page
from services.api.answers_decisions import INSTANT, about
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import json_answer
from services.api.formats import stamp
from services.api.routes import NAME_MAX
from services.ports.store import WorkerState
from services.ports.workers import ShadowCounts, ShadowFigures

_STATE = "on, unknown (no profile has this name) or failed (given up after a fault; the worker goes on)"


class ShadowTold(Struct, kw_only=True):
    """What came of comparing, since the revision came into force and the processes began."""

    state: Annotated[str, about(_STATE)]
    revision: Annotated[int, about("The revision of the profile that was compared; 0: unknown")]
    attempts: Annotated[
        int, about("Attempts compared: a group of equal pods that had its turn, by its first pod")
    ]
    pods: Annotated[int, about("The pods of these attempts, but of those for which neither finds a node")]
    agreement: Annotated[
        float | None,
        about("Share of attempts whose live node is among the best of this profile, where either finds one"),
    ]
    pods_agreement: Annotated[float | None, about("The same share of pods")]
    regret: Annotated[
        float | None,
        about("Mean of what the live node lacks under this profile, in points of 0..100 of its total"),
    ]
    live_regret: Annotated[
        float | None, about("Mean of what this profile's node lacks under the live profile, likewise")
    ]
    live_refused: Annotated[int, about("Attempts whose live node this profile refuses")]
    shadow_refused: Annotated[int, about("Attempts of which the live profile refuses this profile's node")]
    only_live: Annotated[int, about("Attempts for which only the live profile finds a node")]
    only_shadow: Annotated[int, about("Attempts for which only this profile finds a node")]
    neither: Annotated[int, about("Attempts for which neither finds a node")]
    skipped: Annotated[int, about("Attempts not compared, as that had taken its share of time")]
    skipped_lagging: Annotated[int, about("Attempts not compared, as the worker was behind")]


class ShadowOfWorker(ShadowTold, kw_only=True):
    """The same of one worker."""

    name: Annotated[str, about("Name of the worker, as in the leases")]
    incarnation: Annotated[str, about("Made anew at each start of a process")]
    seen: Annotated[str, about(f"Its last heartbeat ({INSTANT})")]


class ShadowAnswer(ShadowTold, kw_only=True):
    """A shadow profile: the sums over the workers that compare its newest revision, and each worker."""

    profile: Annotated[str, about("Name of the profile")]
    workers: Annotated[list[ShadowOfWorker], about("The workers that are up and have this shadow profile")]


class ShadowPage(Page[ShadowAnswer]):
    """Shadow profiles, by name."""


def _share(part: float, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _told(state: str, revision: int, counts: ShadowCounts) -> ShadowTold:
    return ShadowTold(
        state=state,
        revision=revision,
        attempts=counts.attempts,
        pods=counts.pods,
        agreement=_share(counts.agreed, counts.attempts - counts.neither),
        pods_agreement=_share(counts.agreed_pods, counts.pods),
        regret=_share(counts.shadow_loss_sum, counts.shadow_rated),
        live_regret=_share(counts.live_loss_sum, counts.live_rated),
        live_refused=counts.live_refused,
        shadow_refused=counts.shadow_refused,
        only_live=counts.only_live,
        only_shadow=counts.only_shadow,
        neither=counts.neither,
        skipped=counts.skipped,
        skipped_lagging=counts.skipped_lagging,
    )


def told(rows: Sequence[WorkerState]) -> list[ShadowAnswer]:
    """Return what the workers that are up announce, by profile."""
    of: dict[str, list[tuple[WorkerState, ShadowFigures]]] = {}
    for row in rows:
        if row.is_up and row.figures is not None and row.figures.shadow is not UNSET:
            of.setdefault(row.figures.shadow.profile, []).append((row, row.figures.shadow))
    return [_answer(name, found) for name, found in sorted(of.items())]


def _answer(profile: str, found: Sequence[tuple[WorkerState, ShadowFigures]]) -> ShadowAnswer:
    newest = max(figures.revision for _, figures in found)
    states = {figures.state for _, figures in found}
    alike = [figures.counts for _, figures in found if figures.revision == newest]
    counts = reduce(ShadowCounts.plus, alike)
    state = next(each for each in ("on", "failed", "unknown") if each in states)
    return ShadowAnswer(
        profile=profile,
        workers=[
            ShadowOfWorker(
                name=row.name,
                incarnation=row.incarnation,
                seen=str(stamp(row.seen_at)),
                **asdict(_told(figures.state, figures.revision, figures.counts)),
            )
            for row, figures in found
        ],
        **asdict(_told(state, newest, counts)),
    )


def shadow_routes(deps: Deps) -> APIRouter:
    """Return the route of shadow profiles."""
    router = APIRouter()

    @router.get(
        "/v1/shadow",
        operation_id="list_shadow_profiles",
        responses=answering(ShadowPage),
        summary="Compare shadow profiles with the live ones",
    )
    async def shadow(
        profile: Annotated[str | None, Query(description="Only this one", max_length=NAME_MAX)] = None,
    ) -> Response:
        since = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=10 * heartbeat_seconds_max)
        rows = await deps.store.processes.workers(since)
        found = [each for each in told(rows) if profile in (None, "", each.profile)]
        return json_answer(ShadowPage(items=found))

    return router
