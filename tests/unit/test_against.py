"""The table of two builds that were measured in turns."""

from __future__ import annotations

from benchmarks.against import Run, table


def _run(rate: float, worker: float) -> Run:
    return Run(
        workload="groups-1000",
        nodes=5_000,
        pods=100_000,
        groups=1_000,
        shards=1,
        decisions=100_000,
        decisions_per_second=rate,
        cpu_seconds={"worker": worker, "relay": 0.5, "broker": None, "polling": 0.2},
        machine={"load_1m_before": 0.5},
    )


def test_each_figure_has_the_medians_all_runs_and_the_ratio_of_both_builds() -> None:
    found = {
        "85ee777": [_run(16_000, 5.0), _run(15_000, 5.5), _run(17_000, 4.5)],
        "this build": [_run(18_000, 4.0)],
    }
    lines = table(found, "groups-1000")
    assert "| decisions/s | 16,000 (16,000, 15,000, 17,000) | 18,000 (18,000) | 1.12 |" in lines
    assert "| CPU µs a decision: worker | 50.0 (50.0, 55.0, 45.0) | 40.0 (40.0) | 0.80 |" in lines
    assert not any("broker" in line for line in lines), "it was not ours to see"
    assert (
        "| CPU µs a decision: all but polling and bench | 55.0 (55.0, 60.0, 50.0) | 45.0 (45.0) | 0.82 |"
        in lines
    )
