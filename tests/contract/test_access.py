"""Does every store keep the access log alike: equal requests of a minute once, in order, not for ever?"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from domain.model.limits import sessions_per_key_max
from services.ports.access import MINUTE_MS, Access, AccessFilter
from services.ports.log import PODS_TOPIC, Span
from services.ports.store import Grant, Store
from tests.contract.ledgers import Backend, MemoryBackend

AT_MS = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS
ANY = AccessFilter()


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store()


def asked(at_ms: int = AT_MS, **more: Any) -> Access:
    """Return a request that was let in."""
    fields = {
        "at_ms": at_ms,
        "last_at_ms": at_ms,
        "caller": "key:a",
        "roles": ("auditor", "producer"),
        "address": "127.0.0.1",
        "method": "GET",
        "route": "/v1/pods/{namespace}/{name}",
        "target": "/v1/pods/ä/b?x=%00",
        "status": 200,
        "code": "",
        "duration_ms": 7,
    }
    return Access(**{**fields, **more})


async def test_what_was_noted_comes_back_latest_minute_first(store: Store) -> None:
    sent = asked(AT_MS + 5, events_count=3, spans=(Span(PODS_TOPIC, 0, 7, 10),))
    nobody = asked(AT_MS + 3 * MINUTE_MS, caller=None, roles=(), target="", status=401, code="no-key")
    rows = [asked(), nobody, sent, asked(AT_MS + MINUTE_MS)]
    await store.callers.note_accesses(rows)
    found = list(await store.callers.accesses(ANY, 10, None))
    assert found == sorted(rows, key=lambda row: (row.minute_ms, row.digest), reverse=True)


async def test_equal_requests_of_a_minute_are_counted(store: Store) -> None:
    await store.callers.note_accesses([asked(AT_MS + 9)])
    await store.callers.note_accesses([asked(AT_MS + 2, last_at_ms=AT_MS + 4, duration_ms=90, times=4)])
    await store.callers.note_accesses([asked(AT_MS + MINUTE_MS)])
    later, both = await store.callers.accesses(ANY, 10, None)
    assert (later.at_ms, later.times) == (AT_MS + MINUTE_MS, 1)
    assert both == asked(AT_MS + 2, last_at_ms=AT_MS + 9, duration_ms=90, times=5)


@pytest.mark.parametrize(
    "other",
    [
        {"caller": None},
        {"roles": ("admin",)},
        {"address": "::1"},
        {"method": "POST"},
        {"route": "/v1/pods"},
        {"target": "/v1/pods"},
        {"status": 404},
        {"code": "not-found"},
        {"events_count": 1, "spans": (Span(PODS_TOPIC, 0, 7, 8),)},
    ],
)
def test_requests_that_differ_are_told_apart(other: dict[str, Any]) -> None:
    assert asked(**other).digest != asked().digest


async def test_a_filter_keeps_what_it_says(store: Store) -> None:
    rows = [
        asked(AT_MS),
        asked(AT_MS + 30_000, caller="key:b"),
        asked(AT_MS + MINUTE_MS, status=403, code="forbidden"),
        asked(AT_MS + 2 * MINUTE_MS, caller=None, status=401, code="wrong-key"),
    ]
    await store.callers.note_accesses(rows)

    async def found(**which: Any) -> list[int]:
        return sorted(
            rows.index(row) for row in await store.callers.accesses(AccessFilter(**which), 10, None)
        )

    assert await found(caller="key:b") == [1]
    assert await found(caller="key:a") == [0, 2]
    assert await found(status=401) == [3]
    assert await found(caller="key:a", status=403) == [2]
    assert await found(since_ms=AT_MS + 30_000) == [1, 2, 3]
    assert await found(until_ms=AT_MS + 30_000) == [0]
    assert await found(since_ms=AT_MS + 1, until_ms=AT_MS + MINUTE_MS) == [1]


async def test_pages_leave_nothing_out(store: Store) -> None:
    rows = [asked(AT_MS + at // 4 * MINUTE_MS, target=f"/{at}") for at in range(10)]
    await store.callers.note_accesses(rows)
    walked: list[Access] = []
    while page := await store.callers.accesses(
        ANY, 3, (walked[-1].minute_ms, walked[-1].digest) if walked else None
    ):
        walked += page
    assert sorted(row.target for row in walked) == [f"/{at}" for at in range(10)]
    assert walked == list(await store.callers.accesses(ANY, 100, None))


async def test_old_ones_are_forgotten_a_few_at_a_time(store: Store, backend: Backend) -> None:
    now_ms = time.time_ns() // 1_000_000
    if isinstance(backend, MemoryBackend):
        await backend.pass_time((now_ms - backend.database.now_ms()) / 1000)
    day_ms = 86_400_000
    old = [asked(now_ms - 3 * day_ms, target=f"/{at}") for at in range(3)]
    await store.callers.note_accesses([*old, asked(now_ms - day_ms)])
    assert await store.callers.forget_accesses(2 * 86_400, 2) == 2
    assert await store.callers.forget_accesses(2 * 86_400, 2) == 1
    assert await store.callers.forget_accesses(2 * 86_400, 2) == 0
    assert [row.at_ms for row in await store.callers.accesses(ANY, 10, None)] == [now_ms - day_ms]


async def test_what_only_some_bytes_can_be_is_kept(store: Store) -> None:
    """Half a character cannot get here: a target is ASCII as the socket gave it."""
    row = msgspec.structs.replace(asked(), address="", route="unknown", target="/%F0%9F?'\"\\;--")
    await store.callers.note_accesses([row])
    assert list(await store.callers.accesses(ANY, 1, None)) == [row]


# ---------------------------------------------------------------------------------------------- sessions


async def test_a_session_lasts_as_long_as_its_key_and_no_longer_than_its_time(backend: Backend) -> None:
    store = backend.store()
    await store.callers.create_key(b"key", Grant("ann", ["auditor"], ["a"]))
    assert await store.callers.begin_session(b"none", b"unknown", 60) is None
    begun = await store.callers.begin_session(b"token", b"key", 60)
    await store.callers.begin_session(b"short", b"key", 0)
    assert begun is not None
    assert begun.grant.name == "ann"
    assert list(begun.grant.namespaces or ()) == ["a"]
    assert await store.callers.session(b"token") == begun
    assert await store.callers.session(b"short") is None
    assert await backend.store().callers.session(b"token") == begun, "another process knows it"
    await store.callers.revoke_key("ann")
    assert await store.callers.session(b"token") is None
    assert await store.callers.begin_session(b"later", b"key", 60) is None


async def test_a_session_that_is_ended_is_no_more(store: Store) -> None:
    await store.callers.create_key(b"key", Grant("ann", ["auditor"]))
    for token in (b"one", b"other"):
        await store.callers.begin_session(token, b"key", 60)
    await store.callers.end_session(b"one")
    await store.callers.end_session(b"never was")
    assert await store.callers.session(b"one") is None
    assert await store.callers.session(b"other") is not None


async def test_sessions_that_ran_out_are_forgotten_and_a_key_has_so_many(backend: Backend) -> None:
    store = backend.store()
    await store.callers.create_key(b"key", Grant("ann", ["auditor"]))
    tokens = [bytes([each]) for each in range(sessions_per_key_max + 2)]
    for token in tokens:
        await store.callers.begin_session(token, b"key", 60)
    there = [token for token in tokens if await store.callers.session(token) is not None]
    assert there == tokens[2:], "the oldest ended"
    assert await store.callers.forget_sessions(0.0, 1000) == 0
    await store.callers.begin_session(b"short", b"key", -1)
    assert await store.callers.forget_sessions(0.0, 1000) == 1
    assert await store.callers.session(tokens[-1]) is not None
