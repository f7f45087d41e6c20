"""Rules and values over counters, on random arrays: the kernel places each pod where a plain reading does."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from domain.counting.counted import Counted
from domain.engine.bounds import empty_bounds, empty_row_bounds, empty_trees
from domain.engine.explanation import scratch_for
from domain.engine.picked import room_for
from domain.kernels import arrays as kernel
from domain.kernels import placing
from tests.depth import some
from tests.ways import choose_way

MASK = (1 << 64) - 1
ONE = 1 << 20
COLUMN = 1

STATIC = (1 << 14) - 1
"""What static plugins say of each row: the most with which whole scores have bounds by the row."""

WEIGHTS_MAX = 160
"""Scores that weigh more together have none."""


@dataclass
class Counter:
    """What is counted where: ``weights`` are those of each slot's pods.

    A row of domain ``-2 - d`` has none, but its pods count in domain d.
    """

    domains: list[int]
    eligible: list[bool] | None
    weights: list[int]


@dataclass
class Rule:
    """A demand on a counter."""

    kind: int
    counter: int
    bound: int
    min_domains: int = 1
    bootstraps: bool = False
    refuses_missing: bool = False


@dataclass
class Value:
    """A summand of a score."""

    counter: int
    max_skew: int
    sized: bool
    by_row: bool
    is_required: bool


@dataclass
class Slot:
    """A group: what a pod asks for, its rules, and its scores by counts (kind, weight, values)."""

    asks: int
    rules: list[Rule]
    scores: list[tuple[int, float, list[Value]]]
    salt: int


@dataclass
class World:
    """Rows with room, and pods (slot, row) on them; ``whole``: scores are cut to whole numbers."""

    whole: bool
    room: list[int]
    ties: list[int]
    counters: list[Counter]
    slots: list[Slot]
    pods: list[tuple[int, int]] = field(default_factory=list)

    def free(self, row: int) -> int:
        """Return what is free on a row."""
        return self.room[row] - sum(self.slots[g].asks for g, at in self.pods if at == row)

    def count(self, c: int, domain: int) -> int:
        """Count anew what stands in a domain."""
        counter = self.counters[c]
        return sum(
            counter.weights[g]
            for g, row in self.pods
            if counting(counter.domains[row]) == domain
            and (counter.eligible is None or counter.eligible[row])
        )

    def passes(self, slot: Slot, rule: Rule, row: int) -> bool:
        """Say whether a rule lets a pod of the slot onto a row."""
        counter = self.counters[rule.counter]
        domain = counter.domains[row]
        if domain < 0:
            return not rule.refuses_missing
        count = self.count(rule.counter, domain)
        if rule.kind == kernel.AT_MOST:
            return count <= rule.bound
        if rule.kind == kernel.SPREAD:
            rows = [r for r in range(len(self.room)) if counter.eligible is None or counter.eligible[r]]
            known = {counter.domains[r] for r in rows if counter.domains[r] >= 0}
            counts = [self.count(rule.counter, d) for d in known]
            least = min(counts) if len(known) >= max(rule.min_domains, 1) else 0
            return count - least <= rule.bound
        needed = [r.counter for r in slot.rules if r.kind == kernel.NEEDED]
        nothing = all(
            self.count(c, d) == 0 for c in needed for d in set(map(counting, self.counters[c].domains)) - {-1}
        )
        return count >= 1 or (nothing and rule.bootstraps)

    def refusals(self, g: int) -> list[int]:
        """Return each row's code."""
        slot, codes = self.slots[g], []
        for row in range(len(self.room)):
            code = 0
            for r, rule in enumerate(slot.rules):
                if not code and not self.passes(slot, rule, row):
                    lacks = self.counters[rule.counter].domains[row] < 0
                    code = kernel.RULE + 2 * r + lacks
            if not code and slot.asks > self.free(row):
                hopeless = slot.asks > self.room[row]
                code = kernel.FIT + 2 * 2 + hopeless
            codes.append(code)
        return codes

    def by_counts(self, kind: int, values: list[Value], feasible: list[int]) -> dict[int, int]:
        """Return the normalised score by counts of each feasible row."""
        required = [self.counters[v.counter] for v in values if v.is_required]
        ranked = [row for row in feasible if all(c.domains[row] >= 0 for c in required)]
        raw: dict[int, int] = {}
        for row in ranked:
            total = 0.0
            for value in values:
                domains = self.counters[value.counter].domains
                size = len(ranked) if value.by_row else len({counting(domains[r]) for r in ranked})
                if domains[row] >= 0:
                    count = self.count(value.counter, domains[row])
                    total += count * math.log(size + 2) + value.max_skew - 1 if value.sized else count
            raw[row] = math.floor(total + 0.5) if kind == kernel.SPREAD_SCORE else int(total)
        low, high = min(raw.values(), default=0), max(raw.values(), default=0)
        if not values:
            return dict.fromkeys(feasible, 0)
        if kind == kernel.SPREAD_SCORE:
            found = {row: 100 * (high + low - r) // high if high else 100 for row, r in raw.items()}
        else:
            found = {
                row: int(100.0 * ((r - low) / (high - low))) if high > low else 0 for row, r in raw.items()
            }
        return {row: found.get(row, 0) for row in feasible}

    def best(self, g: int) -> tuple[int, int, list[int]]:
        """Return the best row of a slot's next pod, -1 for none; its total; each row's code."""
        slot, codes = self.slots[g], self.refusals(g)
        feasible = [row for row, code in enumerate(codes) if not code]
        totals = {}
        for row in feasible:
            share = (self.free(row) - slot.asks) * 100.0 / self.room[row] if self.room[row] else 0.0
            totals[row] = STATIC * ONE + (math.floor(share) * ONE if self.whole else round(share * ONE))
        for kind, weight, values in slot.scores:
            for row, score in self.by_counts(kind, values, feasible).items():
                totals[row] += round(weight * score * ONE)
        if not feasible:
            return -1, 0, codes
        row = min(feasible, key=lambda r: (-totals[r], mix(self.ties[r] ^ slot.salt)))
        return row, totals[row], codes


def counting(domain: int) -> int:
    """Return the domain in which pods on a row count, -1 for none."""
    return domain if domain >= -1 else -2 - domain


def mix(value: int) -> int:
    """Scatter a tie value as splitmix64 does."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


# ------------------------------------------------------------------------------------------------ random


def draw_world(dice: random.Random, *, whole: bool) -> World:
    """Draw rows, counters, slots and a few pods."""
    rows, slots = dice.choice((dice.randrange(1, 14), 40)), dice.randrange(1, 4)
    counters = []
    for _ in range(dice.randrange(1, 6)):
        domains_count = dice.choice((1, 2, 3, rows))
        lowest = dice.choice((0, 0, -1, -1, -1 - domains_count))
        domains = (
            list(range(rows))
            if dice.random() < 0.3
            else [dice.randrange(lowest, domains_count) for _ in range(rows)]
        )
        eligible = [dice.random() < 0.7 for _ in range(rows)] if dice.random() < 0.4 else None
        counters.append(Counter(domains, eligible, [dice.choice((0, 1, 1, 2)) for _ in range(slots)]))
    world = World(
        whole=whole,
        room=[dice.choice((0, 3, 10, 20)) for _ in range(rows)],
        ties=[dice.getrandbits(64) for _ in range(rows)],
        counters=counters,
        slots=[draw_slot(dice, len(counters)) for _ in range(slots)],
    )
    for _ in range(dice.randrange(12)):
        g, row = dice.randrange(slots), dice.randrange(rows)
        if world.free(row) >= world.slots[g].asks:
            world.pods.append((g, row))
    return world


def draw_slot(dice: random.Random, counters: int) -> Slot:
    """Draw what a group asks for."""
    rules = []
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        kind = dice.choice((kernel.AT_MOST, kernel.SPREAD, kernel.NEEDED))
        rule = Rule(kind, dice.randrange(counters), dice.randrange(3), dice.choice((1, 1, 2, 3)))
        rule.refuses_missing = kind == kernel.NEEDED or dice.random() < 0.5
        rules.append(rule)
    bootstraps = dice.random() < 0.5
    for rule in rules:
        rule.bootstraps = bootstraps and rule.kind == kernel.NEEDED
    scores = []
    for _ in range(dice.choice((0, 1, 1, 2))):
        kind = dice.choice((kernel.SPREAD_SCORE, kernel.AFFINITY_SCORE))
        values = []
        for _ in range(dice.randrange(4)):
            sized = kind == kernel.SPREAD_SCORE
            required = sized and dice.random() < 0.5
            by_row = sized and dice.random() < 0.3
            values.append(Value(dice.randrange(counters), dice.choice((1, 1, 3)), sized, by_row, required))
        scores.append((kind, float(dice.choice((1, 1, 2, 2, 79, 300))), values))
    return Slot(dice.choice((0, 1, 3)), rules, scores, dice.getrandbits(64))


# ----------------------------------------------------------------------------------------------- arrays


def groups_of(world: World, width: int) -> kernel.Groups:
    """Compile the slots by hand."""
    count = len(world.slots)
    groups = kernel.Groups.allocate(
        np.zeros,
        {"G": count, "S": 1, "K": 1, "N": width},
        static_score=np.full((1, width), STATIC * ONE),
        raw_constant=np.full((1, kernel.RAWS_MAX), np.nan),
        static_whole=np.full(1, world.whole, dtype=np.uint8),
        trees=empty_trees(width, count),
        row_bounds=empty_row_bounds(width, min(count, 2)),  # of three slots two take turns at one place
        bases=kernel.Bases.allocate(
            np.zeros, {"B": count, "N": width}, synced=np.full(count, -1, dtype=np.int64)
        ),
    )
    groups.tree_of[:] = -1
    asked = [slot.asks for slot in world.slots]
    groups.base_of[:] = [asked.index(asks) if asks else -1 for asks in asked]
    for g, slot in enumerate(world.slots):
        groups.salt[g] = slot.salt
        groups.fit_position[g] = kernel.RULES_MAX
        groups.demand_count[g], groups.demand_value[g, 1] = 2, slot.asks
        groups.demand_column[g, 1] = groups.add_column[g, 0] = groups.part_column[g, 0] = COLUMN
        groups.add_count[g], groups.add_value[g, 0] = 1, slot.asks
        groups.term_count[g], groups.term_weight[g, 0] = 1, 1.0
        groups.term_kind[g, 0] = kernel.LEAST_ALLOCATED + kernel.WHOLE * world.whole
        groups.term_first[g, 1] = 1
        groups.part_weight[g, 0], groups.part_value[g, 0] = 1.0, slot.asks
        groups.rule_count[g] = len(slot.rules)
        for r, rule in enumerate(slot.rules):
            groups.rule_kind[g, r], groups.rule_counter[g, r] = rule.kind, rule.counter
            groups.rule_position[g, r], groups.rule_bound[g, r] = r, rule.bound
            groups.rule_min_domains[g, r] = rule.min_domains
            groups.rule_bootstraps[g, r] = rule.bootstraps
            groups.rule_missing[g, r] = rule.refuses_missing
        groups.counted_count[g] = len(slot.scores)
        at = 0
        for s, (kind, weight, values) in enumerate(slot.scores):
            groups.counted_kind[g, s] = kind if values else kernel.AFFINITY_SCORE
            groups.counted_weight[g, s] = weight
            for value in values:
                groups.value_counter[g, at] = value.counter
                groups.value_extra[g, at] = value.max_skew - 1
                flags = kernel.REQUIRED * value.is_required | kernel.SIZED * value.sized
                groups.value_flags[g, at] = flags | kernel.BY_ROW * value.by_row
                at += 1
            groups.counted_first[g, s + 1] = at
    return groups


def counters_of(world: World, width: int) -> kernel.Counters:
    """Lay the counters out as arrays, counted from the pods."""
    count = len(world.counters)
    domain = np.full((count, width), -1, dtype=np.int32)
    eligible = np.zeros((count, width), dtype=np.uint8)
    first, sums, has_nodes = [], [0], [0]
    for c, counter in enumerate(world.counters):
        rows = len(counter.domains)
        domain[c, :rows] = counter.domains
        eligible[c, :rows] = True if counter.eligible is None else counter.eligible
        first.append(len(sums))
        for d in range(max(map(counting, counter.domains)) + 1):
            sums.append(world.count(c, d))
            where = [row for row in range(rows) if counter.domains[row] == d]
            has_nodes.append(any(eligible[c, row] for row in where))
    lengths = np.array([max(map(counting, c.domains)) + 1 for c in world.counters], dtype=np.int32)
    totals = [sum(sums[f : f + n]) for f, n in zip(first, lengths.tolist(), strict=True)]
    return kernel.Counters(
        domain=domain,
        eligible=eligible,
        topology=np.arange(count, dtype=np.int32),
        mask=np.array(
            [-1 if c.eligible is None else i for i, c in enumerate(world.counters)], dtype=np.int32
        ),
        first=np.array(first, dtype=np.int64),
        length=lengths,
        sums=np.array([*sums, 0], dtype=np.int32),
        has_nodes=np.array([*has_nodes, 0], dtype=np.uint8),
        total=np.array(totals, dtype=np.int64),
        version=np.zeros(count, dtype=np.int64),
    )


def effects_of(world: World) -> kernel.Effects:
    """Return what each slot's pods add."""
    pairs = [
        [(c, k.weights[g]) for c, k in enumerate(world.counters) if k.weights[g]]
        for g in range(len(world.slots))
    ]
    flat = np.array([pair for of_slot in pairs for pair in of_slot], dtype=np.int32).reshape(-1, 2)
    first = np.cumsum([0, *map(len, pairs)]).astype(np.int32)
    return kernel.Effects(first, flat[:, 0].copy(), flat[:, 1].copy())


def place(world: World, sequence: list[int]) -> kernel.Placed:
    """Let the kernel place pods of these slots, by bounds where there are any."""
    choose_way(1)
    width = kernel.SPAN
    rows, slots = len(world.room), len(world.slots)
    columns = kernel.Columns.allocate(np.zeros, {"R": 2, "N": width})
    columns.rows_count[0] = rows
    columns.allocatable[COLUMN, :rows] = world.room
    columns.requested[COLUMN, :rows] = [world.room[row] - world.free(row) for row in range(rows)]
    columns.tie[:rows] = world.ties
    changes = kernel.ChangeLog.allocate(np.zeros, {"L": len(sequence)})
    programs = [
        SimpleNamespace(counted=Counted([(0, cast(Any, rule)) for rule in slot.rules], []), columns=(COLUMN,))
        for slot in world.slots
    ]
    placed = room_for(len(sequence), cast(Any, programs), slots)
    groups = groups_of(world, width)
    placing.place(
        columns,
        groups,
        empty_bounds(2, width, 1),
        changes,
        counters_of(world, width),
        effects_of(world),
        np.array(sequence, dtype=np.int32),
        placed,
        scratch_for(np.array(sequence, dtype=np.int32), slots, blocks=1, width=width, metrics=0, counted=2),
    )
    if any(has_bounds(world.slots[g]) for g in sequence):
        assert (groups.row_bounds.owner >= 0).any() == world.whole
    return placed


def has_bounds(slot: Slot) -> bool:
    """Say whether a slot's rows have bounds where its scores are whole; it must not have a tree instead."""
    weights = 1 + sum(weight for _, weight, _ in slot.scores)
    return bool(slot.rules or slot.scores) and weights <= WEIGHTS_MAX


def table(placed: kernel.Placed, attempt: int, which: int) -> dict[int, int]:
    """Return a reason table: rows per code."""
    codes, counts = placed.reason_code[attempt, which].tolist(), placed.reason_count[attempt, which].tolist()
    return {code: count for code, count in zip(codes, counts, strict=True) if code >= 0}


def refused(codes: list[int]) -> dict[int, int]:
    """Return how many rows have each code."""
    return {code: codes.count(code) for code in set(codes) - {0}}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("first", some(range(0, 400, 50)))
def test_each_pod_goes_where_a_plain_reading_puts_it(first: int, whole: bool) -> None:
    bound = failed = 0
    for seed in range(first, first + 50):
        dice = random.Random(seed)
        world = draw_world(dice, whole=whole)
        sequence = [dice.randrange(len(world.slots)) for _ in range(dice.randrange(1, 30))]
        placed = place(world, sequence)
        tried: set[int] = set()
        lost: set[int] = set()
        for i, g in enumerate(sequence):
            attempt = int(placed.attempt_of[g])
            row, total, codes = world.best(g)
            assert placed.row[i] == row, (seed, i)
            if g not in tried:
                assert table(placed, attempt, 0) == refused(codes), (seed, i)
            if row < 0 and g not in lost:
                assert table(placed, attempt, 1) == refused(codes), (seed, i)
                lost.add(g)
            if row >= 0:
                assert placed.score[i] == total
                world.pods.append((g, row))
            tried.add(g)
            bound, failed = bound + (row >= 0), failed + (row < 0)
    assert min(bound, failed) > 100
