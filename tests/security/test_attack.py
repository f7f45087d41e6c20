"""Under attack from all sides, is every ordinary pod decided, and the API alive?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.load import Attack, attacked


@pytest.mark.deep
async def test_ordinary_pods_are_decided_while_others_attack(server_dir: Path) -> None:
    attack = Attack(seconds=5, half_open=200, slow_readers=10, hostile_nodes=200, hostile_pods=200)
    found = await attacked(server_dir, attack)
    assert found.posted == 50
    assert found.lost == []
    assert found.outcomes == {"bound": 50}
    assert found.attackers["hostile_events"] == 400, found.line()
