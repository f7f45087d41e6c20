"""Do workers share the shards evenly, and leave them where they are once they do?"""

from __future__ import annotations

from random import Random

import pytest

from services.worker.holding import gives, share


def _step(held: dict[str, int], free: int, shards: int, who: str) -> tuple[int, bool]:
    """Let one worker look; return what is free then, and whether anything moved."""
    others = {other: count for other, count in held.items() if other != who}
    taken = share(held[who], others.values(), free, shards)
    gave = not free and gives(held[who], who, others)
    held[who] += taken - gave
    return free - taken + gave, bool(taken or gave)


def _settle(held: dict[str, int], free: int, shards: int, random: Random) -> int:
    """Let workers look in any order until nothing moves; return how many shards were given up."""
    given, moves = 0, True
    while moves:
        moves = False
        for who in random.sample(sorted(held), len(held)):
            before, (free, moved) = free, _step(held, free, shards, who)
            given, moves = given + (free > before), moves or moved
        assert given <= shards, "shards go to and fro"
    assert free == 0
    return given


@pytest.mark.parametrize("seed", range(50))
def test_workers_that_come_and_go_share_evenly(seed: int) -> None:
    random = Random(seed)
    shards, held = random.randint(1, 40), {"w0": 0}
    free = shards
    for number in range(1, 12):
        _settle(held, free, shards, random)
        assert max(held.values()) - min(held.values()) <= 1
        assert sum(held.values()) == shards
        free = 0
        if random.random() < 0.6 or len(held) == 1:
            held[f"w{number}"] = 0
        else:
            free = held.pop(random.choice(sorted(held)))


def test_one_worker_takes_all_at_once_and_two_that_start_together_half_each() -> None:
    assert share(0, [], 4, 4) == 4
    assert share(0, [0], 4, 4) == 2


def test_who_holds_more_waits_for_who_holds_fewer() -> None:
    assert share(1, [0, 2], 1, 4) == 0
    assert share(0, [1, 2], 1, 4) == 1


def test_only_one_of_those_who_hold_most_gives() -> None:
    held = {"a": 2, "b": 2, "c": 0}
    assert [who for who in held if gives(held[who], who, {o: n for o, n in held.items() if o != who})] == [
        "a"
    ]
