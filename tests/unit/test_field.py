"""Is the field read seldom, given to all who ask, and never kept where it has to be fresh?"""

from __future__ import annotations

import asyncio
import gzip

import msgspec
import pytest

from domain.model.errors import FieldError
from services.api import field
from services.api.field import KEPT_MAX, READS_SHARE, FieldCache
from services.ports.field import Column, Field, FieldFilter, FieldGroup, Fields
from services.ports.ledger import Committed, Lease, Ledger
from services.ports.past import Moment
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import AT_MS, advance, new_node
from tests.contract.ledgers import MemoryBackend, start

SECONDS = 0.1
AWHILE = (READS_SHARE + 1) * SECONDS
CPU = FieldFilter(resources=("cpu",))


class SlowFields:
    """Counts the reads, of which each takes a while on a clock of its own."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self.now = 0.0
        self.reads_count = 0

    async def field(self, which: FieldFilter, moment: Moment | None) -> Field:
        """See ``Fields.field``."""
        self.reads_count += 1
        self.now += SECONDS
        await asyncio.sleep(0)
        return await self._fields.field(which, moment)


class Site:
    """A cluster in memory whose field takes a tenth of a second to read."""

    def __init__(self, store: Store, ledger: Ledger, lease: Lease) -> None:
        self.store, self._ledger, self._lease = store, ledger, lease
        self.fields = store.fields = SlowFields(store.fields)
        self.cache = FieldCache(lambda: self.fields.now)
        self._nodes_count = 0
        self.newer_seconds = 0.0

    @classmethod
    async def begin(cls) -> Site:
        """Return a cluster with one node."""
        backend = MemoryBackend(1)
        ledger = backend.ledger()
        (lease,) = await start(ledger, 1)
        site = cls(backend.store(), ledger, lease)
        await site.add_node()
        return site

    async def add_node(self) -> None:
        """Commit a batch with one more node."""
        at = self._nodes_count
        self._nodes_count += 1
        moves = [advance(self._lease, at, at + 1)]
        batch = batch_of(advances=moves, facts=[new_node(at + 1)], log_time_ms=AT_MS)
        assert await self._ledger.commit(batch) == Committed()

    async def ask(self, which: FieldFilter = CPU, *, is_fresh: bool = False) -> list[str]:
        """Return the names of the nodes, as the cache gives them."""
        kept, self.newer_seconds = await self.cache.get(self.store, which, is_fresh=is_fresh)
        return msgspec.json.decode(kept.plain, type=field.Field).names


async def test_a_field_is_read_again_only_after_a_commit_and_a_while() -> None:
    site = await Site.begin()
    assert [await site.ask() for _ in range(3)] == [["n1"]] * 3
    assert site.fields.reads_count == 1
    site.fields.now += AWHILE
    assert (await site.ask(), site.fields.reads_count) == (["n1"], 1), "nothing was committed"
    await site.add_node()
    assert (await site.ask(), site.fields.reads_count) == (["n1", "n2"], 2)
    await site.add_node()
    assert (await site.ask(), site.fields.reads_count) == (["n1", "n2"], 2), "that was a moment ago"
    assert site.newer_seconds == pytest.approx(READS_SHARE * SECONDS), "it says when there is a newer one"
    site.fields.now += AWHILE
    assert (await site.ask(), site.fields.reads_count) == (["n1", "n2", "n3"], 3)
    assert site.newer_seconds == 0


async def test_who_waited_for_his_events_sees_them() -> None:
    site = await Site.begin()
    await site.ask()
    await site.add_node()
    assert await site.ask(is_fresh=True) == ["n1", "n2"]
    assert await site.ask() == ["n1", "n2"]


async def test_all_who_ask_at_once_share_one_read() -> None:
    site = await Site.begin()
    assert await asyncio.gather(*(site.ask() for _ in range(50))) == [["n1"]] * 50
    assert site.fields.reads_count == 1


async def test_a_moment_of_the_past_is_read_once_and_few_are_kept() -> None:
    site = await Site.begin()
    now = site.store
    for position in range(KEPT_MAX + 1):
        site.store = now.as_of(Moment(position, 0, [0], [1]))
        for _ in range(2):
            await site.ask()
            site.fields.now += AWHILE
    assert site.fields.reads_count == KEPT_MAX + 1
    site.store = now.as_of(Moment(0, 0, [0], [1]))
    await site.ask()
    assert site.fields.reads_count == KEPT_MAX + 2


async def test_each_question_has_an_answer_of_its_own_with_a_mark() -> None:
    site = await Site.begin()
    plain = (await site.cache.get(site.store, CPU)).kept
    measured = (await site.cache.get(site.store, CPU._replace(measured=True))).kept
    assert plain.etag != measured.etag
    assert gzip.decompress(plain.packed) == plain.plain
    found = [msgspec.json.decode(each.plain, type=field.Field) for each in (plain, measured)]
    assert [each.hot for each in found] == [None, []]
    assert [each.resources[0].measured for each in found] == [None, [None]]


def test_an_answer_of_the_past_says_when_it_was_and_nothing_measured() -> None:
    moment = Moment(3, AT_MS, [3], [1])
    columns = Field([FieldGroup("a", 1)], ["n1"], {"cpu": Column([8], [1], [None])}, [0], [], [], [])
    found = field.field_of(FieldFilter("zone", ("cpu",), measured=True), moment, columns)
    assert (found.at, found.by, found.hot, found.unschedulable) == (
        "2023-11-14T22:13:20.000Z",
        "zone",
        None,
        [0],
    )
    assert found.resources == [field.FieldColumn(name="cpu", allocatable=[8], requested=[1], measured=None)]


@pytest.mark.parametrize("text", ["", ",", ",".join(f"x.io/{number}" for number in range(17))])
def test_a_wrong_number_of_resources_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="1 to 16 names"):
        field.parse_resources(text)
    assert field.parse_resources("cpu,,memory,cpu") == ("cpu", "memory")
