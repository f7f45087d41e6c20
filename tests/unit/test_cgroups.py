"""Are groups found by both names, on old kernels, and where the system mounts them?"""

from __future__ import annotations

import signal

import pytest

from domain.model.colocation import Amounts, Quality
from services.adapters.cgroups.mounts import NoCgroups, open_cgroups
from services.adapters.memory.cgroups import KernelFolder, memory_cgroups
from services.ports.cgroups import Boxes, Feature, NodeUse, Pressure

UID = "0f9e6a3c-1c1b-4ad7-9a66-0b8f6d7f2e11"
SYSTEMD_UID = UID.replace("-", "_")
LOW = "kubepods/besteffort"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("stem", ["kubepods", "kubelet-kubepods"])
def test_names_of_systemd_say_the_same(version: int, stem: str) -> None:
    kernel = KernelFolder(version)
    for group in (f"{stem}-pod{SYSTEMD_UID}", f"{stem}-burstable.slice/{stem}-burstable-podb_1"):
        kernel.make(f"{stem}.slice/{group}.slice")
    kernel.make(f"{stem}.slice/{stem}-besteffort.slice")
    cgroups = memory_cgroups(kernel)
    assert cgroups.boxes() == Boxes(
        f"{stem}.slice", f"{stem}.slice/{stem}-burstable.slice", f"{stem}.slice/{stem}-besteffort.slice"
    )
    assert [(each.uid, each.quality) for each in cgroups.pods()] == [
        (UID, Quality.HIGH),
        ("b-1", Quality.MID),
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_groups_below_a_root_are_found_there_alone(version: int) -> None:
    kernel = KernelFolder(version)
    kernel.make(f"kubelet/{LOW}/pod{UID}")
    assert memory_cgroups(kernel).boxes() is None
    assert memory_cgroups(kernel).pods() == []
    assert memory_cgroups(kernel).features() == frozenset()
    assert [each.group for each in memory_cgroups(kernel, "/kubelet/").pods()] == [f"{LOW}/pod{UID}"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_kernel_ends_pods_one_by_one(version: int) -> None:
    """A process that begins another one meanwhile is frozen, where the kernel can."""
    kernel = KernelFolder(version, lacks=frozenset({"cgroup.kill", "cpu.idle", "memory.reclaim"}))
    kernel.make(f"{LOW}/pod{UID}/container")
    kernel.make(f"{LOW}/podother")
    for pid, group in ((1, f"pod{UID}"), (2, f"pod{UID}/container"), (3, "podother")):
        kernel.spawn(f"{LOW}/{group}", pid)
    cgroups = memory_cgroups(kernel)
    assert not {Feature.KILL, Feature.IDLE, Feature.RECLAIM} & cgroups.features()
    cgroups.kill(f"{LOW}/pod{UID}")
    assert kernel.alive.keys() == {3}
    assert kernel.signals == [(1, signal.SIGKILL), (2, signal.SIGKILL)]
    freezes = [text for path, text in kernel.written if path.endswith("cgroup.freeze")]
    assert freezes == ["1", "0"]


@pytest.mark.parametrize(
    ("version", "file", "text"), [(1, "cpu/{}/cpu.shares", "2"), (2, "{}/cpu.weight", "1")]
)
def test_without_idle_a_box_has_the_smallest_weight(version: int, file: str, text: str) -> None:
    kernel = KernelFolder(version, lacks=frozenset({"cpu.idle"}))
    kernel.make(LOW)
    assert not memory_cgroups(kernel).is_idle(LOW)
    memory_cgroups(kernel).set_idle(LOW, True)
    assert memory_cgroups(kernel).is_idle(LOW)
    assert kernel.written == [(f"/sys/fs/cgroup/{file.format(LOW)}", text)]


@pytest.mark.parametrize(
    ("version", "file", "weight", "milli"),
    [
        (1, "cpu/{}/cpu.shares", 1_024, 1_000),
        (1, "cpu/{}/cpu.shares", 2, 0),
        (2, "{}/cpu.weight", 39, 1_000),  # 1,024 shares as before runc 1.3.2
        (2, "{}/cpu.weight", 100, 2_562),  # 1,024 shares as since then, or 2,600 as before
        (2, "{}/cpu.weight", 1, 0),
    ],
)
def test_the_weight_of_a_pod_says_what_it_requests(version: int, file: str, weight: int, milli: int) -> None:
    kernel = KernelFolder(version)
    kernel.make(LOW)
    kernel.files[f"/sys/fs/cgroup/{file.format(LOW)}"] = f"{weight}\n"
    assert memory_cgroups(kernel).requested_milli(LOW) == milli
    assert memory_cgroups(kernel).requested_milli(f"{LOW}/gone") == 0


def test_less_was_reclaimed_than_was_asked_for() -> None:
    kernel = KernelFolder(2)
    kernel.make(LOW)
    kernel.use(LOW, memory_bytes=5 << 20)
    kernel.reclaimable_bytes = 1 << 20
    cgroups = memory_cgroups(kernel)
    assert cgroups.reclaim(LOW, 4 << 20)
    assert cgroups.use(LOW) == (0, 4 << 20)


def test_pages_that_were_not_used_lately_are_no_use() -> None:
    for version, path, line in (
        (1, "memory/{}/memory.stat", "total_inactive_file"), (2, "{}/memory.stat", "inactive_file")
    ):  # fmt: skip
        kernel = KernelFolder(version)
        kernel.make(LOW)
        kernel.use(LOW, memory_bytes=5 << 20)
        kernel.files[f"/sys/fs/cgroup/{path.format(LOW)}"] = f"cache 1\n{line} {2 << 20}\n"
        assert memory_cgroups(kernel).use(LOW) == (0, 3 << 20)


def test_what_the_node_uses_is_all_but_rest() -> None:
    kernel = KernelFolder(2)
    kernel.node(cpu_us=0, memory_bytes=3 << 30, cores=2, memory_total=8 << 30)
    kernel.press(12.5)
    stat = "cpu  1 2 4 1000 1000 8 16 1000 1000 1000\ncpu0 0\ncpu1 0\nctxt 9\n"  # idle, iowait, steal, guests
    kernel.files["/proc/stat"] = stat
    assert memory_cgroups(kernel).node() == NodeUse(
        cpu_us=31 * 10_000,
        memory_bytes=3 << 30,
        capacity=Amounts(2_000, 8 << 30),
        pressure=Pressure(cpu_avg10=12.5, cpu_avg60=12.5),
    )


def test_a_system_without_groups_is_told() -> None:
    kernel = KernelFolder(2)
    kernel.files["/proc/self/mounts"] = "proc /proc proc rw 0 0\ncgroup /x cgroup rw,devices 0 0\n"
    with pytest.raises(NoCgroups, match="nothing to measure"):
        open_cgroups(files=kernel)


def test_controllers_that_share_a_mount_are_found() -> None:
    kernel = KernelFolder(1)
    mounts = kernel.files["/proc/self/mounts"].replace("cpu 0 0", "cpu,cpuacct 0 0", 1)
    kernel.files["/proc/self/mounts"] = mounts
    kernel.make(LOW)
    assert open_cgroups(files=kernel).quota(LOW) is not None
