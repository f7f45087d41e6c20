"""Does each call have its effect once, and is nothing missed, while the API goes away and comes back?"""

from __future__ import annotations

import functools
import gc
import itertools
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from berth.client import AsyncClient, Client, Retry
from berth.client._async.connection import AsyncConnection
from berth.client._sync.connection import Connection
from services.api.stream_ids import parse_id
from tests.client.cutting import cutting
from tests.client.restarting import Restarts, restarting
from tests.client.world import Blocked, Loop, node, pod

pytestmark = pytest.mark.filterwarnings("ignore:unclosed connection:ResourceWarning")
"""Of an API that is killed; as its process lives on here, its connections are found by the collector."""

Opened = Callable[..., Any]
TOO_MUCH = "9000"
PODS_COUNT = 10_000
LISTED_COUNT = 2_500
CUT_COUNT = 3_000
SECONDS_MAX = 60
PATIENT = Retry(tries=100, seconds_max=0.5, total_seconds=SECONDS_MAX)
"""Waits less than usual, so that it meets more ends."""


@pytest.fixture(scope="module")
def api(embedded_dsn: str) -> Iterator[Restarts]:
    with restarting(embedded_dsn) as api:
        with Client(api.url) as client:
            client.apply([node(f"n{number}") for number in range(24)], wait="folded")
        yield api
    gc.collect()  # while the warnings of this module hold


async def _made(url: str, **named: Any) -> AsyncClient:
    return AsyncClient(url, **named)


@pytest.fixture(params=["blocks", "awaits"])
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Return what opens a client of either kind at an address, in the words of the one that blocks."""
    if request.param == "blocks":
        yield functools.partial(Client, retry=PATIENT)
        return
    loop = Loop()
    yield lambda url, **named: Blocked(loop, loop.run(_made(url, **{"retry": PATIENT, **named})))
    loop.close()


@pytest.fixture
def space() -> str:
    return f"n-{uuid.uuid4().hex[:8]}"


def _slowly(pods: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield pods for as long as the API is ended again and again: a request of 1,000 each 0.4 s."""
    for number, each in enumerate(pods):
        if number % 50 == 0:
            time.sleep(0.02)
        yield each


class Told:
    """Counts how often a client had to wait."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, seconds: float, why: str) -> None:
        """Take that it waits."""
        self.count += 1


def _apply(opened: Opened, url: str, ready: threading.Barrier, pods: list[dict[str, Any]]) -> int:
    """Apply pods, and wait until all are bound; return how often that was tried again."""
    told = Told()
    with opened(url, told=told) as client:
        client.cluster.totals()
        ready.wait(SECONDS_MAX)
        applied = client.apply(_slowly(pods))
        assert (applied.accepted + applied.duplicates, applied.invalid) == (len(pods), 0)
        fates = client.wait(applied, timeout=SECONDS_MAX)
    assert len(fates) == len(pods)
    assert all(each.is_bound for each in fates.values())
    return told.count


def _wait(opened: Opened, url: str, ready: threading.Barrier, names: list[str]) -> int:
    """Wait for pods that are not there yet."""
    told = Told()
    with opened(url, told=told) as client:
        client.cluster.totals()
        ready.wait(SECONDS_MAX)
        fates = client.wait(names, timeout=SECONDS_MAX)
    assert list(fates) == names
    assert all(each.is_bound for each in fates.values())
    return told.count


def _list(
    opened: Opened, url: str, ready: threading.Barrier, namespace: str, goes_on: Callable[[], bool]
) -> int:
    """Read a list of several pages again and again; it is the same each time."""
    told, wanted = Told(), sorted(f"p{number}" for number in range(LISTED_COUNT))
    with opened(url, told=told) as client:
        client.cluster.totals()
        ready.wait(SECONDS_MAX)
        while goes_on():
            assert sorted(each.name for each in client.pods.list(namespace=namespace)) == wanted
    return told.count


def _watch(watch: Any, until: float) -> list[Any]:
    """Return what happens until all pods are decided; a heartbeat looks at the time."""
    events = list[Any]()
    while len(events) < PODS_COUNT and time.monotonic() < until:
        event = next(watch)
        if not event.is_mark:
            events.append(event)
    return events


def _check_watched(events: list[Any], pods_count: int) -> None:
    places = [parse_id(each.id, "id") for each in events]
    order = [(each.position, each.event) for each in places]
    assert all(first < second for first, second in itertools.pairwise(order)), "ids go up"
    names = [each.decision.pod.name for each in events]
    assert sorted(names) == sorted(f"p{number}" for number in range(pods_count)), "each pod once"


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_all_goes_on_while_the_api_is_ended_again_and_again(
    api: Restarts, opened: Opened, space: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "berth.client")
    listed, is_over = f"{space}-listed", threading.Event()
    pods = [pod(f"p{number}", space, "1m") for number in range(PODS_COUNT)]
    with opened(api.url) as client, ThreadPoolExecutor(8) as threads:
        client.apply([pod(f"p{number}", listed, TOO_MUCH) for number in range(LISTED_COUNT)], wait="folded")
        with client.watch(namespace=space, kinds="decisions", marks=True) as watch:
            assert next(watch).is_mark
            ready = threading.Barrier(4)  # an API that never answered is not waited for
            applied = threads.submit(_apply, opened, api.url, ready, pods)
            names = [f"{space}/p{number}" for number in range(0, PODS_COUNT, 3)]
            waited = threads.submit(_wait, opened, api.url, ready, names)
            lists = threads.submit(
                _list, opened, api.url, ready, listed, lambda: not (is_over.is_set() and applied.done())
            )
            watched = threads.submit(_watch, watch, time.monotonic() + SECONDS_MAX)
            ready.wait(SECONDS_MAX)
            try:
                api.weather(seed, 12)
            finally:
                is_over.set()
            again = [each.result(SECONDS_MAX) for each in (applied, waited, lists)]
            _check_watched(watched.result(SECONDS_MAX), PODS_COUNT)
    assert set(api.decisions_by_pod(space).values()) == {1}
    assert len(api.decisions_by_pod(space)) == PODS_COUNT
    assert again[0] + again[2] > 0, "requests met ends"
    begun_again = [each for each in caplog.records if "begun again" in each.message]
    assert len(begun_again) >= 6, "watch and wait met ends"


def test_the_api_was_killed_and_told_to_end(api: Restarts) -> None:
    """Else the test before this one shows less than it says."""
    if api.kills_count + api.stops_count:
        assert api.kills_count > api.stops_count > 0


# ----------------------------------------------------------------------------- answers that are cut in two


def _redraw_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients send events under other ids each time, as one that knows nothing of ids does."""

    def redrawn(body: bytes | None) -> bytes | None:
        events = json.loads(body or b"null")
        if isinstance(events, list):
            body = json.dumps([{**each, "id": uuid.uuid4().hex} for each in events]).encode()
        return body

    blocks, awaits = Connection._once, AsyncConnection._once

    def once(self: Connection, method: str, target: str, body: bytes | None) -> Any:
        return blocks(self, method, target, redrawn(body))

    async def once_awaited(self: AsyncConnection, method: str, target: str, body: bytes | None) -> Any:
        return await awaits(self, method, target, redrawn(body))

    monkeypatch.setattr(Connection, "_once", once)
    monkeypatch.setattr(AsyncConnection, "_once", once_awaited)


def _check_once(api: Restarts, opened: Opened, space: str, seed: int) -> None:
    """Apply pods through a proxy that cuts answers; check that the log and the ledger have each once."""
    pods = [pod(f"p{number}", space, "1m") for number in range(CUT_COUNT)]
    with cutting(api.url, seed=seed, share=0.5) as proxy, opened(proxy.url) as client:
        client.cluster.totals()
        applied = client.apply(pods)
    with opened(api.url) as straight:
        straight.wait([f"{space}/p{number}" for number in range(CUT_COUNT)], timeout=SECONDS_MAX)
    assert proxy.cuts_count > 0
    records = api.records_by_pod(space)
    assert set(records) == {f"p{number}" for number in range(CUT_COUNT)}
    twice = sorted(name for name, count in records.items() if count != 1)
    assert not twice, twice  # a difference of thousands of names would be computed for minutes
    assert set(api.decisions_by_pod(space).values()) == {1}
    assert applied.accepted + applied.duplicates == CUT_COUNT
    assert applied.duplicates > 0


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_what_is_sent_again_after_an_answer_was_cut_is_in_the_log_once(
    api: Restarts, opened: Opened, space: str, seed: int
) -> None:
    _check_once(api, opened, space, seed)


def test_with_other_ids_each_time_it_is_there_more_than_once(
    api: Restarts, opened: Opened, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the check above fails without ids that stay."""
    _redraw_ids(monkeypatch)
    with pytest.raises(AssertionError, match="p0"):
        _check_once(api, opened, space, 11)


def _is_back(api: Restarts, opened: Opened, space: str) -> bool:
    """Delete a pod before the answer to its ``apply`` is lost; return whether sending again revives it."""

    name, fates = f"{space}/p", list[Any]()

    def delete() -> None:
        if not fates:
            with Client(api.url) as other:
                fates.append(other.wait(name, timeout=20)[name])
                other.delete("pod", name, wait="folded")

    with (
        cutting(api.url, seed=0, share=1.0, before_cut=delete) as proxy,
        opened(proxy.url, retry=Retry(tries=2)) as client,
    ):
        client.cluster.totals()
        with pytest.raises(Exception, match="does not answer"):
            client.apply(pod("p", space))
        assert (proxy.cuts_count, fates[0].is_bound) == (2, True)
    with Client(api.url) as client:
        client.apply(pod("last", space), wait="folded")
        return "p" in {each.name for each in client.pods.list(namespace=space)}


def test_what_was_deleted_since_is_not_revived_by_sending_again(
    api: Restarts, opened: Opened, space: str
) -> None:
    assert not _is_back(api, opened, space)


def test_with_other_ids_each_time_it_is_revived(
    api: Restarts, opened: Opened, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the one above."""
    _redraw_ids(monkeypatch)
    assert _is_back(api, opened, space)
