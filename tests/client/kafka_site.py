"""A worker, a relay and an API on a real broker and a real database."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from services import bootstrap
from services.bootstrap import Place
from tests.client.world import serving, working
from tests.integration.api_world import fresh_database

SHARDS = 2


class Site(NamedTuple):
    """What runs on a broker."""

    place: Place
    kafka: str
    url: str


@contextlib.asynccontextmanager
async def site(postgres: str, kafka: str) -> AsyncIterator[Site]:
    """Run a worker, a relay and an API on a broker."""
    async with fresh_database(postgres, migrated=True) as made:
        place = Place(made.dsn, kafka)
        await bootstrap.initialise(place, SHARDS)
        async with (
            working(place),
            bootstrap.open_app(place, keys_required=False) as app,
            serving(app) as url,
        ):
            yield Site(place, kafka, url)
