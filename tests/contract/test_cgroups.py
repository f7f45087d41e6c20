"""Do both versions of control groups do what the port says, in memory and on the real kernel?"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from domain.model.colocation import Quality
from services.ports.cgroups import Feature, Quota, Refused
from tests.contract.machines import (
    BOXES,
    BURN,
    DEAF,
    PERIOD_US,
    Machine,
    alive,
    eventually,
    in_memory_or_real,
    on_the_kernel,
    pod,
)


@pytest.fixture(params=["memory-1", "memory-2", "kernel-1", "kernel-2"])
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    where, version = request.param.split("-")
    with in_memory_or_real(where, int(version)) as found:
        for group in BOXES:
            found.make(group)
        yield found


@pytest.mark.parametrize("version", [1, 2])
def test_tell_what_ran_on_the_real_kernel(
    version: int, record_property: Callable[[str, object], None]
) -> None:
    """Never skipped: the end of the run names each version, and what of it the kernel here offers."""
    told = f"cgroups v{version}: not on a real kernel"
    try:
        with on_the_kernel(version) as machine:
            machine.make(BOXES.low)
            offered = sorted(machine.cgroups.features())
            assert offered, "a group that can be made can be read"
            told = f"cgroups v{version}: on the real kernel, {', '.join(offered)}"
    except pytest.skip.Exception as skipped:
        told += f": {skipped.msg}"
    record_property("ran for real", told)


def test_pods_are_found_in_the_boxes_that_hold_them(machine: Machine) -> None:
    for quality, uid in ((Quality.HIGH, "a-1"), (Quality.MID, "b-2"), (Quality.LOW, "c-3")):
        machine.make(pod(quality, uid))
    machine.make(f"{pod(Quality.LOW, 'c-3')}/container")
    machine.make("kubepods/burstable/other")
    assert machine.cgroups.boxes() == BOXES
    assert machine.cgroups.pods() == [
        ("a-1", Quality.HIGH, "kubepods/poda-1"),
        ("b-2", Quality.MID, "kubepods/burstable/podb-2"),
        ("c-3", Quality.LOW, "kubepods/besteffort/podc-3"),
    ]


def test_what_a_group_used_counts_for_those_above(machine: Machine) -> None:
    machine.make(group := pod())
    before = machine.cgroups.use(group)
    assert before is not None
    assert before.cpu_us < 100_000
    machine.spawn(group, BURN)

    def has_used() -> bool:
        used, above = machine.cgroups.use(group), machine.cgroups.use(BOXES.all)
        return used is not None and above is not None and above.cpu_us >= used.cpu_us > 100_000

    assert eventually(has_used)


def test_memory_is_counted_where_the_kernel_does(machine: Machine) -> None:
    machine.make(group := pod())
    used = machine.cgroups.use(group)
    assert used is not None
    assert (used.memory_bytes is None) == (Feature.MEMORY not in machine.cgroups.features())


def test_the_node_has_cores_and_memory(machine: Machine) -> None:
    node = machine.cgroups.node()
    assert node.capacity.cpu_milli > 0
    assert 0 <= node.memory_bytes <= node.capacity.memory_bytes


def test_a_quota_is_set_and_lifted(machine: Machine) -> None:
    machine.needs(Feature.QUOTA)
    assert machine.cgroups.quota(BOXES.low) == Quota(None, PERIOD_US)
    machine.cgroups.set_quota(BOXES.low, Quota(2_000, PERIOD_US))
    assert machine.cgroups.quota(BOXES.low) == Quota(2_000, PERIOD_US)
    machine.cgroups.set_quota(BOXES.low, Quota(None, PERIOD_US))
    assert machine.cgroups.quota(BOXES.low) == Quota(None, PERIOD_US)


def test_a_quota_below_a_millisecond_is_refused(machine: Machine) -> None:
    machine.needs(Feature.QUOTA)
    with pytest.raises(Refused, match=r"kubepods/besteffort/.*Invalid argument"):
        machine.cgroups.set_quota(BOXES.low, Quota(500, PERIOD_US))


def test_a_box_may_be_smaller_than_what_is_in_it(machine: Machine) -> None:
    """Groups below have their own quota again once there is room, and never more than fits."""
    machine.needs(Feature.QUOTA)
    cgroups = machine.cgroups
    machine.make(inner := f"{pod(Quality.MID)}/container")
    cgroups.set_quota(pod(Quality.MID), Quota(60_000, PERIOD_US))
    cgroups.set_quota(inner, Quota(50_000, PERIOD_US))
    for box_us in (40_000, 20_000, 55_000, 30_000):
        cgroups.set_quota(BOXES.mid, Quota(box_us, PERIOD_US))
        assert cgroups.quota(BOXES.mid) == Quota(box_us, PERIOD_US)
        if cgroups.version == 1:
            assert cgroups.quota(pod(Quality.MID)) == Quota(min(box_us, 60_000), PERIOD_US)
            assert cgroups.quota(inner) == Quota(min(box_us, 50_000), PERIOD_US)
    cgroups.set_quota(BOXES.mid, Quota(None, PERIOD_US))
    assert cgroups.quota(pod(Quality.MID)) == Quota(60_000, PERIOD_US)
    assert cgroups.quota(inner) == Quota(50_000, PERIOD_US)


def test_a_quota_that_its_owner_changed_meanwhile_is_kept(machine: Machine) -> None:
    machine.needs(Feature.QUOTA)
    cgroups = machine.cgroups
    machine.make(group := pod(Quality.MID))
    cgroups.set_quota(group, Quota(60_000, PERIOD_US))
    cgroups.set_quota(BOXES.mid, Quota(40_000, PERIOD_US))
    cgroups.set_quota(group, Quota(35_000, PERIOD_US))  # kubelet resizes the pod
    cgroups.set_quota(BOXES.mid, Quota(None, PERIOD_US))
    assert cgroups.quota(group) == Quota(35_000, PERIOD_US)


REFUSALS: Mapping[int, Sequence[tuple[str, str, str, int]]] = {
    1: [
        ("cpu", "cpu.cfs_quota_us", "999", errno.EINVAL),
        ("cpu", "cpu.cfs_quota_us", "30000", errno.EINVAL),  # a group below has 40,000
        ("cpu", "cpu.cfs_quota_us", "60000", errno.EINVAL),  # the group above has 50,000
        ("cpu", "cpu.cfs_quota_us", "45000", 0),
        ("cpu", "cpu.cfs_quota_us", "-1", 0),
        ("cpu", "cpu.shares", "100", errno.EINVAL),  # it is idle
        ("cpu", "cpu.idle", "2", errno.EINVAL),
        ("cpu", "cpu.stat", "1", errno.EINVAL),
        ("cpu", "cpu.max", "max 100000", errno.ENOENT),
        ("memory", "memory.high", "1", errno.ENOENT),
        ("memory", "memory.reclaim", "1", errno.ENOENT),
        ("memory", "memory.usage_in_bytes", "1", errno.EINVAL),
    ],
    2: [
        ("cpu", "cpu.max", "999 100000", errno.EINVAL),
        ("cpu", "cpu.max", "30000 100000", 0),  # a group below has 40,000
        ("cpu", "cpu.weight", "100", errno.EINVAL),  # it is idle
        ("cpu", "cpu.cfs_quota_us", "-1", errno.ENOENT),
        ("", "cpu.stat", "1", errno.EINVAL),
        ("", "cgroup.kill", "0", errno.ERANGE),
        ("", "cgroup.freeze", "2", errno.ERANGE),
        ("memory", "memory.current", "1", errno.EINVAL),
    ],
}
"""What is written to the box of low, and the kernel's reason for root; 0: it takes it."""


def test_the_folder_in_memory_refuses_what_the_kernel_does(machine: Machine) -> None:
    """Both versions in memory are held to the table, and so is the real kernel, in what it offers."""
    offered = machine.cgroups.features()
    has = {"cpu": Feature.QUOTA in offered, "memory": Feature.MEMORY in offered, "": True}
    if has["cpu"]:
        machine.make(pod())
        machine.cgroups.set_quota(pod(), Quota(40_000, PERIOD_US))
        machine.cgroups.set_quota(BOXES.all, Quota(50_000, PERIOD_US))
        machine.cgroups.set_idle(BOXES.low, True)
    asked = [each for each in REFUSALS[machine.cgroups.version] if has[each[0]]]
    assert [(*each[:3], _reason(machine, *each[:3])) for each in asked] == asked


def _reason(machine: Machine, controller: str, file: str, text: str) -> int:
    try:
        machine.files.write(f"{machine.folder_of(controller)}/{BOXES.low}/{file}", text)
    except OSError as error:
        return error.errno or -1
    return 0


def test_an_idle_box_can_be_made_idle_again_and_let_go(machine: Machine) -> None:
    machine.needs(Feature.WEIGHT)
    for idle in (True, True, False, False):
        machine.cgroups.set_idle(BOXES.low, idle)
        if Feature.IDLE in machine.cgroups.features():
            assert machine.cgroups.is_idle(BOXES.low) == idle


def test_what_is_noted_goes_with_its_group(machine: Machine) -> None:
    machine.make(group := pod())
    assert machine.cgroups.noted(group) == ""
    machine.cgroups.note(group, "12.5")
    machine.cgroups.note(group, "13")
    assert machine.cgroups.noted(group) == "13"
    machine.remove(group)
    assert machine.cgroups.noted(group) == ""
    machine.cgroups.note(group, "14")
    machine.make(group)
    assert machine.cgroups.noted(group) == ""


def test_memory_is_held_back_by_version_two_alone(machine: Machine) -> None:
    can = Feature.MEMORY_HIGH in machine.cgroups.features()
    assert machine.cgroups.set_memory_high(BOXES.low, 1 << 30) == can
    assert machine.cgroups.set_memory_high(BOXES.low, None) == can
    assert machine.cgroups.reclaim(BOXES.low, 1 << 20) == (Feature.RECLAIM in machine.cgroups.features())
    if machine.cgroups.version == 1:
        assert not can


def test_pressure_is_read_where_the_kernel_has_it(machine: Machine) -> None:
    found = machine.cgroups.pressure(BOXES.low)
    assert (found is not None) == (Feature.PRESSURE in machine.cgroups.features())


def test_processes_below_a_group_are_its_own(machine: Machine) -> None:
    machine.make(inner := f"{pod()}/container")
    pids = [machine.spawn(inner, "import time; time.sleep(600)") for _ in range(2)]
    assert sorted(machine.cgroups.processes(pod())) == sorted(pids)


def test_a_pod_is_asked_to_end_and_one_that_is_deaf_is_killed(machine: Machine) -> None:
    machine.make(inner := f"{pod()}/container")
    _, deaf = machine.spawn(inner, "import time; time.sleep(600)"), machine.spawn(inner, DEAF)
    machine.cgroups.terminate(pod())
    assert eventually(lambda: alive(machine, pod()) == {deaf})
    machine.cgroups.kill(pod())
    assert eventually(lambda: not alive(machine, pod()))


def test_what_is_gone_has_nothing_and_takes_nothing(machine: Machine) -> None:
    machine.make(group := pod())
    machine.remove(group)
    cgroups = machine.cgroups
    assert (cgroups.use(group), cgroups.quota(group), cgroups.processes(group)) == (None, None, [])
    cgroups.set_quota(group, Quota(5_000, PERIOD_US))
    cgroups.set_idle(group, True)
    cgroups.terminate(group)
    cgroups.kill(group)
    assert not cgroups.set_memory_high(group, 1)
    assert cgroups.pods() == []
