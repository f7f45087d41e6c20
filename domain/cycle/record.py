"""Turns what the kernel said of a call into placements, failures and attempts, and counts the placements."""

from __future__ import annotations

from collections import Counter as Counted
from collections.abc import Mapping, Sequence
from itertools import compress

import msgspec
import numpy as np

from domain.counting.counter import Counter
from domain.counting.matchers import matchers_of
from domain.cycle.run import CycleRun
from domain.engine.explanation import KernelOutput, explain, explain_held, store_versions
from domain.engine.picked import with_devices
from domain.engine.program import Program
from domain.engine.verdicts import Failure, Placement
from domain.kernels import arrays as kernel
from domain.model.decisions import Attempt, GangSeen
from domain.queue.groups import GroupKey, Tried, WaitingGroup
from domain.state.changes import Change, NominationEnded
from domain.state.steps import Assumed


def take_over(
    run: CycleRun,
    tried: Sequence[Tried],
    programs: Mapping[GroupKey, Program],
    placed: kernel.Placed,
    *,
    is_home: bool = False,
    is_undone: bool = False,
) -> None:
    """Turn the kernel's rows into placements and failures, and count the placements in the state.

    ``is_home``: home nodes alone were looked at, so no group is parked. ``is_undone``: what the kernel placed
    was taken back, so its rows tell of no pod where it goes.
    """
    result, state, queue = run.result, run.state, run.queue
    base = len(result.attempts)
    attempts = _explain_all(run, programs, placed, is_home=is_home)
    attempt_of = {key: base + i for i, key in enumerate(programs)}
    result.attempts.extend(attempts)
    for group, program in programs.items():
        note_rules(run, program, attempt_of[group])
    measured = {base + i: each for i, each in enumerate(attempts) if each.basis and each.basis.usage}
    pods, names, nodes, verdicts = state.pods, state.table.names, state.nodes, result.verdicts
    keys: list[str] = []
    versions: dict[str, int] = {}
    specs = {}
    if placed.devices.any():
        specs = with_devices(pods, [key for key, _ in tried], placed.row, placed.devices)
    scores = (placed.score / kernel.TOTAL_ONE).tolist()
    numbers = [attempt_of[group.key] for _, group in tried]
    for (key, _), attempt, row, score in zip(tried, numbers, placed.row.tolist(), scores, strict=True):
        if measured and attempt in measured:
            store_versions(measured.pop(attempt), versions, nodes)
        entry = pods[key]
        pod = specs.get(key, entry.spec)
        if row >= 0:
            node = names[row]
            version = versions[node] = (versions[node] if node in versions else nodes[node].version) + 1
            verdicts.append(Placement(pod, entry.arrival, attempt, node, version, score))
            keys.append(key)
        elif queue.is_fresh(key):
            verdicts.append(Failure(pod, entry.arrival, attempt))
    found = placed.row >= 0
    _count(result.attempts, numbers, found)
    queue.note_tried(tried[i][0] for i in (~found).nonzero()[0].tolist())  # the others leave it
    note_ended(run, state.apply(Assumed(keys, placed.row[found], specs)))
    run.snapshot.caught_up()
    queue.remove_pods(keys)
    if not is_home:
        _park(run, programs, placed, attempts, is_undone=is_undone)
    queue.wake_counted(run.slots.counters)


def _explain_all(
    run: CycleRun, programs: Mapping[GroupKey, Program], placed: kernel.Placed, *, is_home: bool
) -> list[Attempt]:
    output = KernelOutput(placed, programs.values(), run.view, run.slots.counters)
    nodes_home = len(run.slots.homes.rows) if is_home else msgspec.UNSET
    return [
        explain(
            program,
            output,
            run.view,
            signature=key[0],
            seed=run.seed,
            generation=run.snapshot.generation,
            at_ms=run.at_ms,
            nodes_home=nodes_home,
        )
        for key, program in programs.items()
    ]


def note_rules(run: CycleRun, program: Program, attempt: int) -> None:
    """Take note of what an attempt asks for beyond room."""
    if program.is_strict:
        run.result.strict.add(attempt)
    if program.counted.rules and run.slots.homes.shared:
        run.result.matchers[attempt] = matchers_of(program.counted)


def note_ended(run: CycleRun, changes: Sequence[Change]) -> None:
    """Take note of nominations that ended, and let the pods wait for any node that were not placed."""
    for change in changes:
        if isinstance(change, NominationEnded):
            run.result.verdicts.append(change)
            if change.reason != "bound":
                run.queue.add(change.pod, change.arrival, fresh=False)


def _park(
    run: CycleRun,
    programs: Mapping[GroupKey, Program],
    placed: kernel.Placed,
    attempts: Sequence[Attempt],
    *,
    is_undone: bool,
) -> None:
    """Park the groups whose last pod found no node. Others with pods left are tried again.

    Where all was undone, the groups wait of which any pod found none.
    """
    queue = run.queue
    for (key, program), attempt in zip(programs.items(), attempts, strict=True):
        group, a = queue.groups.get(key), placed.attempt_of[program.slot]
        if group is not None and is_undone and attempt.reasons_at_failure:
            queue.park(group, attempt, _counters_read(run, program, None, attempt))
        elif group is not None and placed.exhausted[a]:
            queue.park(group, attempt, _counters_read(run, program, int(placed.version[a]), attempt))
        elif group is not None and attempt.reasons_at_failure:
            queue.wake_group(group)


def _counters_read(
    run: CycleRun, program: Program, version: int | None, attempt: Attempt
) -> tuple[Sequence[Counter], int] | None:
    """Return the counters whose rules refused nodes, and the sum of their versions then; None: no rule.

    ``version`` is the part of those that a placement can cure; None: all are as of now. The others are as
    they were: placing only adds to them. Rules about a node by itself are left out: what cures them makes
    room on it.
    """
    sees_all = program.static.domain is None
    if sees_all and attempt.rules is msgspec.UNSET and not program.counted.is_cut:
        return None
    spanning = [
        (number, rule.kind)
        for number, (_, rule) in zip(program.counters, program.counted.rules, strict=False)
        if rule.counter.topology_key
    ]
    if not spanning:
        return None
    counters = run.slots.counters
    read = counters.having(number for number, _ in spanning)
    if version is None:
        return read, counters.version_of(read)
    at_most = counters.having(number for number, kind in spanning if kind == kernel.AT_MOST)
    return read, version + counters.version_of(at_most)


def refuse(run: CycleRun, group: WaitingGroup, keys: Sequence[str]) -> None:
    """Let fresh pods of a parked or held group wait without an attempt of their own."""
    if group.held_by:
        seen = group.gang.seen() if group.gang is not None and not group.held_by_itself else msgspec.UNSET
        run.queue.park(group, explain_held_now(run, group, group.held_by, seen))
    assert group.attempt is not None
    result = run.result
    result.attempts.append(group.attempt.again(len(keys), run.snapshot.generation))
    for key in keys:
        entry = run.state.pods[key]
        result.verdicts.append(Failure(entry.spec, entry.arrival, len(result.attempts) - 1))


def explain_held_now(
    run: CycleRun, group: WaitingGroup, codes: Sequence[str], gang: GangSeen | msgspec.UnsetType
) -> Attempt:
    """Return an attempt that says why a group is held, without a look at any node."""
    return explain_held(
        group,
        codes,
        gang,
        seed=run.seed,
        generation=run.snapshot.generation,
        at_ms=run.at_ms,
        nodes_count=run.state.table.count,
    )


def _count(attempts: Sequence[Attempt], numbers: Sequence[int], is_bound: np.ndarray) -> None:
    """Count the pods of attempts, given by their numbers, and those of them that have a node."""
    for number, count in Counted(numbers).items():
        attempts[number].pods_count += count
    for number, count in Counted(compress(numbers, is_bound.tolist())).items():
        attempts[number].bound_count += count
