"""Does every ledger keep what agents did, in order, of one node or all, and for those who may see it?"""

from __future__ import annotations

from typing import Any

import pytest

from domain.model.actions import ActionKind, NodeAction
from services.ports.ledger import ActionRow, Committed, Ledger
from services.ports.store import Store
from tests.batches import batch_of
from tests.contract.batches import AT_MS, advance
from tests.contract.ledgers import SHARDS, Backend, start


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store()


def quota(node: str, **more: Any) -> ActionRow:
    """Return that a box of a node has another quota."""
    fields = {"kind": ActionKind.QUOTA, "quality": "low", "reason": "ä 3 cores are left", "amount": 3_000}
    return ActionRow(NodeAction(**{"node": node, "at_ms": AT_MS - 5, **fields, **more}), AT_MS, "key:agent")


def ended(node: str, pod: str) -> ActionRow:
    """Return that a pod was ended."""
    fields = {"kind": ActionKind.EVICT, "quality": "low", "reason": "starved", "policy": "lend@7"}
    return ActionRow(NodeAction(node=node, at_ms=AT_MS, pod=pod, uid="u1", **fields), AT_MS, None)  # type: ignore[arg-type]


ROWS = [
    quota("n1"),
    ended("n1", "a/web"),
    quota("n2", amount=None, times=9),
    ended("n2", "b/web"),
    quota("n1", kind=ActionKind.RECLAIM, amount=1 << 40),
]


async def told(ledger: Ledger) -> None:
    """Write all, in two batches."""
    lease, _ = await start(ledger, SHARDS)
    for at, rows in enumerate((ROWS[:2], ROWS[2:])):
        batch = batch_of(advances=[advance(lease, at, at + 1)], actions=rows, log_time_ms=AT_MS)
        assert await ledger.commit(batch) == Committed()


async def test_actions_come_latest_first(ledger: Ledger, store: Store) -> None:
    await told(ledger)
    found = await store.processes.actions(None, None, 10, None)
    assert [each.row for each in found] == ROWS[::-1]
    assert [each.number for each in found] == sorted((each.number for each in found), reverse=True)


async def test_actions_of_one_node(ledger: Ledger, store: Store) -> None:
    await told(ledger)
    found = await store.processes.actions("n1", None, 10, None)
    assert [each.row for each in found] == [ROWS[4], ROWS[1], ROWS[0]]
    assert list(await store.processes.actions("n3", None, 10, None)) == []


async def test_actions_page_by_page(ledger: Ledger, store: Store) -> None:
    await told(ledger)
    rows, before = [], None
    while True:
        page = await store.processes.actions(None, None, 2, before)
        rows += [each.row for each in page]
        if not page.more:
            break
        before = page[-1].number
    assert rows == ROWS[::-1]


async def test_pods_of_other_namespaces_are_left_out(ledger: Ledger, store: Store) -> None:
    await told(ledger)
    found = await store.processes.actions(None, frozenset({"b"}), 10, None)
    assert [each.row for each in found] == [row for row in ROWS[::-1] if row is not ROWS[1]]
