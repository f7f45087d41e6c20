"""What can whoever writes the log, or shares the machine, do to the worker?"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from domain.model.limits import batch_decisions_max, pods_per_node_max
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Record
from tests.builders import Json, event_bytes, node_manifest, pod_manifest, record
from tests.property.site import Site, audit

ROOT = Path(__file__).parents[2]


def arrivals(topic: str, things: Iterator[Json]) -> list[Record]:
    return [record(topic, event_bytes("ADDED", thing), offset=i) for i, thing in enumerate(things)]


def test_no_file_of_the_current_directory_says_where_machine_code_is_loaded_from(tmp_path: Path) -> None:
    """Such a file made the worker unpickle what lay in a directory of the attacker's choice."""
    planted = tmp_path / "planted"
    (tmp_path / ".numba_config.yaml").write_text(f"cache_dir: {planted}\n")
    program = (
        "import domain.kernels.compiling; from numba.core import config; config.reload_config();"
        "import yaml; print(yaml.safe_load('1'), config.CACHE_DIR)"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.split() == ["1"], done.stdout + done.stderr


def test_machine_code_is_loaded_from_no_directory_that_others_can_write_to(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "services.cli.main", "compile"],
        env=os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(shared)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"{shared} is not safe" in done.stderr
    assert not list(shared.iterdir())


def test_a_node_that_comes_and_goes_under_its_pods_makes_no_batch_without_end() -> None:
    """20 KB of such records were 400,000 decisions of 200 MB in one batch: a full one ended the worker, again
    and again, since none of it was ever committed."""
    pods_count, flips = 3_000, 9
    site = Site()
    node = node_manifest("n", cpu=64, pods=pods_per_node_max)
    site.take(arrivals(NODES_TOPIC, iter([node])))
    site.take(
        arrivals(PODS_TOPIC, (pod_manifest(f"p{i}", cpu="1m", node_name="n") for i in range(pods_count)))
    )
    records = [
        record(NODES_TOPIC, event_bytes(kind, node), offset=i)
        for i, kind in zip(range(1, flips + 1), itertools.cycle(("DELETED", "ADDED")), strict=False)
    ]
    decided = 0
    while records or site.planner.has_work:
        batch = site.planner.plan(records)
        records = []
        assert len(batch.decisions) < batch_decisions_max + pods_per_node_max
        decided += len(batch.decisions)
        site.database.apply(batch)
    assert decided == pods_count * flips, "and none is left out"
    audit(site)


def test_reasons_with_the_longest_names_stay_small_in_every_decision() -> None:
    """Each decision of a pod of 3 KB had 120 KB of reasons: 250 MB in a batch."""
    names = [f"r{i}{'a' * 50}.{'b' * 63}.{'c' * 63}.{'d' * 60}/{'e' * 63}" for i in range(7)]
    site = Site()
    offered = []
    for bits in range(2 ** len(names) - 1):
        some: Any = {name: 1 for i, name in enumerate(names) if bits >> i & 1}
        offered.append(node_manifest(f"n{bits}", **some))
    site.take(arrivals(NODES_TOPIC, iter(offered)))
    pod = pod_manifest("p", cpu=1)
    pod["spec"]["containers"][0]["resources"]["requests"] |= dict.fromkeys(names, "1")
    site.take(arrivals(PODS_TOPIC, iter([pod])))
    assert not any(site.database.dead_letters.values())
    ((_, payload),) = (row for rows in site.database.decisions.values() for row in rows)
    assert len(payload) < 30 << 10
    reasons = orjson.loads(payload)["reasons"]
    assert sum(reasons.values()) == len(offered), "each node is counted"
    assert reasons["others"] > 0
    assert len(reasons) > 1
