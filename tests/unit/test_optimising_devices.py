"""Is what `berth optimise` says of devices what the plain definition says, and can every move be made?"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from domain.model.devices import DEVICE_NAMES, GPU, GPU_MILLI, asked
from domain.search.mix import Shape, typical
from domain.state.cluster import ClusterState
from services.cli.main import app
from services.plan.optimising import Search
from tests.builders import Json, node_manifest, pod_manifest
from tests.oracle.device_scores import Seen, unusable
from tests.unit.moving import make, planned

MODEL = "nvidia.com/gpu.product"
MODELS = ("A100", "T4")


def objects(seed: int) -> list[Json]:
    """Return nodes with and without GPUs, shares and whole devices that run, and others that wait."""
    random = Random(seed)
    made: list[Json] = []
    asks: dict[str, Any]
    for i in range(8):
        gpus: dict[str, Any] = {GPU: 0 if i == 7 else random.choice((2, 4, 8))}
        labels = {MODEL: random.choice(MODELS)} if gpus[GPU] else {}
        made.append(node_manifest(f"n{i}", cpu=random.randint(20, 40), labels=labels, **gpus))
    for i in range(50):
        if i < 14:
            asks, on, only = {GPU_MILLI: 300} if i < 6 or i > 11 else {GPU: 1}, f"n{i % 7}", None
        else:
            asks, on = random.choice(({GPU: 1}, {GPU: 1}, {GPU: 2}, {GPU: 4}, {})), None
            only = {MODEL: random.choice(MODELS)} if random.random() < 0.2 else None
        cpu = random.choice((1, 2, 4))
        made.append(pod_manifest(f"p{i}", cpu=cpu, memory="1Mi", node_name=on, node_selector=only, **asks))
    return made


def expected(state: ClusterState) -> float:
    """Return how many devices the mean pod cannot use, by the plain definition."""
    shapes = []
    for each in state.pods.values():
        requests = each.spec.template.requests
        ask, only = asked(requests), each.spec.template.node_selector.get(MODEL)
        models = 0b11 if only is None or not ask.number else 1 << MODELS.index(only)
        shapes.append(Shape(requests["cpu"], requests["memory"], *ask, models))
    mix, table = typical(shapes), state.table
    total = 0
    for row, spec in enumerate(table.specs[: table.count]):
        free = table.allocatable[:, row] - table.requested[:, row]
        columns = [state.resources.column(name) for name in DEVICE_NAMES]
        devices = [int(free[c]) for c in columns if table.allocatable[c, row] > 0]
        model = MODELS.index(spec.labels[MODEL]) if devices else 0
        total += unusable(Seen(int(free[0]), int(free[1]), devices, model), mix)
    return total / sum(mix.values()) / 1000


@pytest.mark.parametrize("objective", ["placed", "fragmentation"])
@pytest.mark.parametrize("seed", range(6))
def test_whole_devices_move_and_shares_stay(objective: str, seed: int) -> None:
    plan, running = planned(objects(seed))
    before, placed_count = expected(plan.state), sum(bool(e.node) for e in plan.state.pods.values())
    search = Search(plan, running, objective=objective, moves_max=None, seed=seed)
    search.improve(3_000)
    search.improve(1_000, homing=True)
    found = search.found()
    make(plan, running, found.moves)
    pods = plan.state.pods
    assert not any(GPU_MILLI in pods[move.pod].spec.template.requests for move in found.moves)
    assert sum(bool(each.node) for each in pods.values()) >= placed_count
    if objective == "fragmentation":
        assert found.before.cost == pytest.approx(before)
        assert found.after.cost == pytest.approx(expected(plan.state))
        assert found.after[:2] < found.before[:2]


def test_the_command_brings_free_gpus_together(tmp_path: Path) -> None:
    """Two nodes have one of two GPUs free; the pod that waits for two can have them once a pod has moved."""
    one: dict[str, Any] = {GPU: 1}
    two: dict[str, Any] = {GPU: 2}
    made = [node_manifest(name, **two) for name in ("a", "b")]
    made += [pod_manifest(f"on-{name}", cpu=1, node_name=name, **one) for name in ("a", "b")]
    made += [pod_manifest(f"more-{i}", cpu=4, **two) for i in range(3)]  # no node has cpu for one now
    asked = ["--bare", "--steps", "500", "--objective", "fragmentation"]
    done = CliRunner().invoke(app, ["optimise", "-f", written(tmp_path, made), *asked])
    assert done.exit_code == 0, done.output
    rows = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    assert rows["pods that wait"] == "3\t2"
    assert "GPUs that pods cannot use" in rows


def test_without_gpus_the_objective_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, [node_manifest("n"), pod_manifest("p", cpu=1)])
    done = CliRunner().invoke(app, ["optimise", "-f", file, "--objective", "fragmentation"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "fragmentation needs nodes with devices" in done.stderr


def written(directory: Path, manifests: list[Json]) -> str:
    file = directory / "all.yaml"
    file.write_text(yaml.safe_dump_all(manifests))
    return str(file)
