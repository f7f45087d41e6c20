"""Profiles: those in force, the built-in ones included, and all their revisions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from msgspec.structs import asdict

from domain.manifests.profile import profile_to_spec
from domain.model.profiles import BUILT_IN_PROFILES
from services.api.answers import Profile, ProfileDetail, ProfilePage, ProfileRevision
from services.api.contract import answering
from services.api.deps import Deps
from services.api.failures import ApiError, json_answer
from services.api.formats import cursor, instant, parse_name
from services.api.routes import NAME_MAX, AsOf, Cursor, Limit, as_of_store
from services.ports.ledger import ProfileRow
from services.ports.store import Store

REVISIONS_SHOWN_MAX = 100


def _profile(row: ProfileRow) -> Profile:
    return Profile(
        name=row.name,
        revision=row.revision,
        built_in=False,
        deleted=row.spec is None,
        resource_version=row.resource_version,
        since=instant(row.at_ms),
        sent_by=row.sent_by,
        spec=row.spec,
    )


def _built_in(name: str) -> Profile:
    profile = BUILT_IN_PROFILES[name]
    return Profile(
        name=name,
        revision=profile.revision,
        built_in=True,
        deleted=False,
        resource_version=None,
        since=None,
        sent_by=None,
        spec=profile_to_spec(profile),
    )


async def list_profiles(store: Store, *, limit: int, at: str | None) -> ProfilePage:
    """Return a page of the profiles in force, by name."""
    after = parse_name(at) if at else None
    rows = await store.profiles(limit, after)
    found = {row.name: _profile(row) for row in rows}
    for name in BUILT_IN_PROFILES:
        if (after is None or name > after) and not (rows.more and name > rows[-1].name):
            found.setdefault(name, _built_in(name))
    items = [found[name] for name in sorted(found)]
    more = rows.more or len(items) > limit
    items = items[:limit]
    return ProfilePage(items=items, next=cursor(items[-1].name) if more else None)


async def show_profile(store: Store, name: str, revision: int | None) -> ProfileDetail | None:
    """Return a profile as it is in force, or one revision of it, with its latest revisions."""
    known = [_profile(row) for row in await store.profile_revisions(name, REVISIONS_SHOWN_MAX, None)]
    if name in BUILT_IN_PROFILES and len(known) < REVISIONS_SHOWN_MAX:
        built_in = _built_in(name)
        if all(item.revision != built_in.revision for item in known):
            known.append(built_in)
    if not known:
        return None
    asked = known[0]
    if revision is not None:
        older = (_profile(row) for row in await store.profile_revisions(name, 1, revision))
        found = next((item for item in known if item.revision == revision), None) or next(older, None)
        if found is None:
            return None
        asked = found
    return ProfileDetail(
        **asdict(asked),
        in_force=asked is known[0] and not asked.deleted,
        revisions=[
            ProfileRevision(
                revision=item.revision,
                built_in=item.built_in,
                deleted=item.deleted,
                since=item.since,
                sent_by=item.sent_by,
            )
            for item in known
        ],
    )


def profile_routes(deps: Deps) -> APIRouter:
    """Return the routes of profiles."""
    router = APIRouter()

    @router.get(
        "/v1/profiles",
        operation_id="list_profiles",
        responses=answering(ProfilePage),
        summary="List the profiles in force",
    )
    async def profiles(
        request: Request, limit: Limit = 100, cursor: Cursor = None, at: AsOf = None
    ) -> Response:
        store = await as_of_store(deps, request, at)
        return json_answer(await list_profiles(store, limit=limit, at=cursor))

    @router.get(
        "/v1/profiles/{name}",
        operation_id="get_profile",
        responses=answering(ProfileDetail),
        summary="Show a profile or a revision of it",
    )
    async def profile(
        name: Annotated[str, Path(description="Name of the profile", max_length=NAME_MAX)],
        revision: Annotated[
            int | None, Query(ge=1, le=2**31, description="As this revision had it; without it, the last one")
        ] = None,
    ) -> Response:
        answer = await show_profile(deps.store, name, revision)
        if answer is None:
            what = f"profile {name!a}" if revision is None else f"revision {revision} of profile {name!a}"
            raise ApiError("not-found", f"{what} is not known here; events may be on the way")
        return json_answer(answer)

    return router
