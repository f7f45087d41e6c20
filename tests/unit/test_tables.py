"""Do the tables fit a terminal of 80 columns without a broken word, and a pipe without a lost letter?"""

from __future__ import annotations

import datetime
import re

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from domain.manifests.colocation_policy import policy_from_spec, policy_to_spec
from domain.model.colocation import DEFAULT_POLICY
from domain.model.config import CONTENTS
from domain.model.decisions import Outcome
from domain.model.hosting import HostedReplicas
from services.cli import accesses, bill, describe, explain, output
from services.cli.get import CONFIG_NAMES, OTHER_NAMES, Kind, Listed, _print, config_kind_of, kind_of
from services.cli.labels import labels_filter
from services.cli.main import app
from services.cli.output import STYLES, Column, Format, short_time, shortened
from services.cli.shapes import Shape
from services.cli.tables import TABLES, node_status, short_amount
from tests.unit.items import GPUS, NOW, THEN, Item, config_object, decision, node, pod

LACKING = "insufficient:cpu,insufficient:memory,insufficient:berth.dev/gpu-milli,insufficient:nvidia.com/gpu"
REASONS = {LACKING: 1293, "insufficient:cpu": 24, "node-unschedulable": 3, "untolerated-taint": 2}
TEMPLATE = "6c5b9f8d7d-x2x4q"
WAITS = decision(outcome="unschedulable", node=None, reason="0/1523 nodes: ...", reasons=REASONS, score=None)
GROUP = {
    "signature": "990b79da8752b63a4b7db107b2a519e3",
    "shard": 0,
    "count": 15,
    "reasons": REASONS,
    "unresolvable": False,
    "since": THEN,
    "tried_at": NOW,
    "requests": GPUS,
    "profile": "default-scheduler",
    "priority": 0,
    "examples": ["openb/openb-pod-2250", f"team-of-a-long-name/web-frontend-{TEMPLATE}"],
}
LONG = f"analytics-of-a-very-long-name-{TEMPLATE}"
ACCESS = {
    "at": THEN,
    "last_at": NOW,
    "times": 3,
    "caller": None,
    "roles": [],
    "address": "10.0.0.7",
    "method": "GET",
    "route": "/v1/pods/{namespace}/{name}",
    "target": "",
    "status": 401,
    "code": "wrong-key",
    "duration_ms": 2,
    "events": None,
    "positions": [],
}
SELECTS = {
    "requirements": [
        {"key": "app", "operator": "In", "values": ["web"]},
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
    ]
}
SHOWN = {**TABLES, "accesses": accesses.COLUMNS, "bill": bill.columns("namespace")}


def nomination(victims: list[str], **fields: object) -> Item:
    made: Item = {"namespace": "default", "name": "high", "priority": 1_000, "node": "n", "victims": victims}
    return made | {"since": THEN, "expires": THEN, "shard": 0, "uid": "u", **fields}


DATA: dict[str, list[Item]] = {
    "nodes": [
        node(),
        node("ip-10-31-7-104.eu-central-1.compute.internal", unschedulable=True, ready=False),
        node("n", requested={**GPUS, "cpu": "100"}, overcommitted=["cpu"]),
    ],
    "pods": [
        pod(),
        pod(LONG, phase="pending", node=None, since=THEN),
        pod(LONG, namespace="a-namespace-that-is-long-as-well", node="ip-10-31-7-104.eu.compute.internal"),
    ],
    "gangs": [
        {
            "namespace": "team-of-the-models",
            "name": "training-of-the-large-one",
            "min_member": 10_000,
            "placed": 0,
            "waiting": 10_000,
            "why": "1,213 lack cpu; 310 are cordoned; 12 have the taint dedicated-to-the-team",
            "since": "2026-11-22T06:08:34.000Z",
        }
    ],
    "nominations": [
        nomination([]),
        nomination(
            [f"default/{LONG}", "default/small"], name=LONG, node="ip-10-31-7-104.eu.compute.internal"
        ),
    ],
    "config": [
        config_object(),
        config_object("Namespace", {"labels": {"team": LONG, "zone": LONG}}, namespace=None, name=LONG),
    ],
    "decisions": [
        decision(),
        WAITS,
        decision(id="12-1000000", pod={"namespace": "default", "name": LONG}, outcome="unresolvable"),
        decision(outcome="released", node=None, recorded_at=None),
    ],
    "pending": [GROUP, {**GROUP, "reasons": {}, "requests": {}}],
    "bill": [
        {
            "name": "a-namespace-that-is-quite-long",
            "cpu_core_hours": 1_234_567.0,
            "memory_gib_hours": 9_876_543.21,
            "lent_cpu_core_hours": 0.0004,
            "lent_memory_gib_hours": 0.0,
            "billed": 1_049_382.1,
            "saved": 185_184.9,
        }
    ],
    "accesses": [
        ACCESS,
        ACCESS
        | {
            "caller": "key:a-team-with-a-name-that-is-quite-long",
            "target": f"/v1/pods/a-namespace-that-is-long-as-well/{LONG}?limit=100",
            "address": "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
            "times": 123_456,
            "code": "",
            "status": 202,
            "events": 5_000,
            "positions": [{"topic": "berth.pods", "partition": 1, "first": 17, "last": 5_016}],
        },
    ],
    "profiles": [
        {
            "name": "usage-aware-for-batch",
            "revision": 12,
            "built_in": False,
            "since": THEN,
            "resource_version": 5,
            "spec": {
                "filters": [{"name": "NodeResourcesFit"}],
                "scores": [
                    {
                        "name": "NodeResourcesFit",
                        "weight": 10,
                        "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio"}},
                    },
                    {"name": "LoadVariationRiskBalancing", "weight": 1},
                ],
            },
        }
    ],
    "shards": [
        {
            "shard": 12,
            "owner": "berth-worker-6c5b9f8d7d-x2x4q-1",
            "epoch": 3,
            "owned_since": NOW,
            "lease_until": NOW,
            "decisions": 1_000_000,
            "published": 999_000,
            "deadletters": 17,
            "relay": "berth-relay-1",
            "log_time": NOW,
            "lag_records": 12_000,
            "lag_seconds": 3.5,
            "offsets": [{"topic": "berth.pods", "partition": 0, "next_offset": 8152}],
        }
    ],
    "workers": [
        {
            "name": "scheduling-worker-7f9c6d5b8-xk2p4-8341",
            "state": "starting",
            "shards": [0, 1, 2, 3, 7, 9, 10, 11],
            "started": "2026-11-22T06:08:37.402817Z",
            "seen": "2026-11-22T06:08:57.402817Z",
            "stopped": None,
            "build": "0.1.0",
            "decisions_per_second": 1234.5,
            "moved": 17,
            "conflicts": 3,
            "journal_lag_seconds": 0.25,
            "incarnation": "2f3b8f6e-86cf-4d8e-9d7a-1a2b3c4d5e6f",
        }
    ],
    "owners": [
        {
            "shard": 1023,
            "owner": "scheduling-worker-7f9c6d5b8-xk2p4-8341",
            "epoch": 12345,
            "from": "2026-11-22T06:08:37.402817Z",
            "to": None,
        }
    ],
    "actions": [
        {
            "id": 7,
            "node": "openb-node-1329",
            "at": THEN,
            "action": "evict",
            "quality": "low",
            "amount": None,
            "times": 1,
            "reason": "low pods are starved: 1.30 of the cores that they ask for must go",
            "policy": "lend@7",
            "pod": "openb/openb-pod-2250",
            "uid": "u1",
            "sent_by": "key:agent",
        }
    ],
    "totals": [
        {
            "at": "2026-01-31T14:00:00.000Z",
            "nodes": 20_000,
            "bound": 1_500_000,
            "orphaned": 18,
            "pending": 100_000,
            "groups": 1_000,
            "requested": {"cpu": "81765792m", "memory": "287408675Mi"},
            "allocatable": {"cpu": "125514", "memory": "597684Gi"},
        }
    ],
    "replicas": [
        {
            "namespace": "openb",
            "name": "crawler",
            "workload": {"kind": "ReplicaSet", "name": "crawler-7f9c6d5b8"},
            "min": 1,
            "max": 1_000,
            "wanted": 182,
            "running": 180,
            "waiting_since": THEN,
            "load_percent": 43.5,
            "reason": "the load is 43.5 %: 2 more fit",
            "at": NOW,
            "seq": 17,
        }
    ],
    "deadletters": [
        {
            "id": "0-1",
            "topic": "berth.config",
            "partition": 0,
            "offset": 7,
            "key": "SchedulingProfile/mine",
            "code": "invalid-field",
            "path": "object.spec.scores[0].args.scoringStrategy.type",
            "message": "'Most' is not allowed; allowed are LeastAllocated, MostAllocated",
            "at": NOW,
            "raw_base64": "",
            "raw_text": '{"type": "MODIFIED", "object": {}}' + "x" * 1000,
        }
    ],
}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (Listed(Kind.PODS, None, [], {}), "no pods"),
        (Listed(Kind.CONFIG, "CoLocationPolicy", [], {}), "no CoLocationPolicy"),
        (Listed(Kind.REPLICAS, None, [], {}), "no replicas; a new HostedReplicas is counted within 30 s"),
    ],
)
def test_a_list_of_nothing_says_of_what_there_is_nothing(
    listed: Listed, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _print([listed], [[]], Shape("table"))
    (line,) = shown(capsys)
    assert line.startswith(said)
    assert len(line) <= 80


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("kind", SHOWN)
def test_every_table_fits_80_columns_and_breaks_no_word(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    output.print_items(kind, SHOWN[kind], DATA[kind], Format.TABLE)
    lines = shown(capsys)
    assert max(map(len, lines)) <= 80, lines
    assert len(lines) > len(DATA[kind])
    assert [line for line in lines if line != line.rstrip()] == []
    monkeypatch.setenv("COLUMNS", "1000")
    output.print_items(kind, SHOWN[kind], DATA[kind], Format.TABLE)
    whole = set(" ".join(shown(capsys)).split())
    assert [word for word in " ".join(lines).split() if word not in whole and "…" not in word] == []


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize("kind", SHOWN)
def test_a_wide_table_has_everything_in_full_and_a_line_for_each(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_items(kind, SHOWN[kind], DATA[kind], Format.WIDE)
    header, *lines = shown(capsys)
    assert len(lines) == len(DATA[kind])
    assert "…" not in "".join(lines)
    assert header.split("  ")[0] == SHOWN[kind][0].title
    for item, line in zip(DATA[kind], lines, strict=True):
        for column in SHOWN[kind]:
            assert output.cell(column.read(item)) in line


@pytest.mark.parametrize("kind", SHOWN)
def test_in_a_pipe_a_row_is_a_line_with_tabs_in_full(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_items(kind, SHOWN[kind], DATA[kind], Format.TABLE)
    header, *lines = shown(capsys)
    columns = [column for column in SHOWN[kind] if not column.wide]
    assert header.split("\t") == [column.title for column in columns]
    for item, line in zip(DATA[kind], lines, strict=True):
        assert line.split("\t") == [output.cell(column.read(item)) for column in columns]


def test_what_is_no_line_does_not_break_one(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table("things", [Column("TEXT", lambda item: item["text"])], [{"text": "two\nlines\ta tab"}])
    assert shown(capsys) == ["TEXT", r"two\nlines\ta tab"]


@pytest.mark.usefixtures("terminal")
def test_the_field_that_is_wrong_can_be_read_whole(capsys: pytest.CaptureFixture[str]) -> None:
    path = (
        "object.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
        ".labelSelector.matchExpressions[0].values[0]"
    )
    letter = DATA["deadletters"][0] | {"path": path}
    output.print_items("deadletters", TABLES["deadletters"], [letter], Format.TABLE)
    lines = shown(capsys)
    assert max(map(len, lines)) <= 80, lines
    assert path in "".join(line[20:].strip() for line in lines), lines
    parts = " ".join(lines[1:]).split(": ")[0].split()[3:]
    assert [part for part in parts[:-1] if not part.endswith(".")] == [], "it breaks behind a dot"


@pytest.mark.usefixtures("terminal")
def test_reasons_are_words_a_line_each_and_the_most_frequent_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    output.print_items("pending", TABLES["pending"], [GROUP], Format.TABLE)
    lines = [re.split(r" {2,}", line.strip())[0:2] for line in shown(capsys)[1:]]
    assert lines[0] == ["15", "1,293 lack cpu, memory, gpu-milli and gpu"]
    assert [line[0] for line in lines[1:]] == ["24 lack cpu", "3 are cordoned", "and 1 more reason"]


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    ("taken", "summary"),
    [
        ([1000, 300, 0, 0], "2 of 4 wholly free; up to 700 free on a shared one"),
        ([1000, 0], "1 of 2 wholly free"),
        ([1200, 1000], "0 of 2 wholly free"),
    ],
)
def test_a_node_tells_what_is_free_of_each_device(
    taken: list[int], summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    describe._node(node(devices=taken, usage=None, pods=[], pods_next=None, others={}))
    lines = shown(capsys)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80, text
    assert f"Devices (thousandths): {summary}" in " ".join(text.split())
    rows = re.findall(r"^ +(\d+) +([\d,]+) +([\d,]+)$", text, re.MULTILINE)
    numbers = [[int(cell.replace(",", "")) for cell in row] for row in rows]
    assert numbers == [[i, each, max(0, 1000 - each)] for i, each in enumerate(taken)]


@pytest.mark.usefixtures("terminal")
def test_describe_says_how_many_replicas_there_should_be_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    (said,) = DATA["replicas"]
    describe._replicas(said | {"waiting_since": None, "load_percent": None})
    lines = shown(capsys)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80
    assert re.search(r"Workload: +ReplicaSet crawler-7f9c6d5b8", text)
    assert re.search(r"Wanted: +182, of 1 to 1,000", text)
    assert re.search(r"Because: +the load is 43.5 %: 2 more fit", text)
    assert re.search(r"Waits since: +none waits", text)
    assert re.search(r"Load: +not known", text)


@pytest.mark.usefixtures("terminal")
def test_describe_fits_80_columns_and_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    measured = {"avg": 51.25, "std": None, "latest": 60.0, "peak_yesterday": 99.5, "samples": 3}
    over: Item = {"requested": {**GPUS, "cpu": "100"}, "overcommitted": ["cpu"]}
    full = node(**over, usage={"at": NOW, "resources": {"cpu": measured}})
    describe._node(full | {"pods": [pod(LONG), pod("a")], "pods_next": None, "others": {}})
    assert "What its agent did" not in "\n".join(shown(capsys)), "nothing"
    moves = [{"namespace": "openb", "name": LONG, "uid": "u", "to": "b", "since": NOW, "expires": NOW}]
    full |= {"actions": DATA["actions"], "policy": "batch@12", "moves": moves}
    describe._node(full | {"pods": [pod(LONG), pod("a")], "pods_next": None, "others": {}})
    lines = shown(capsys)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80, text
    assert "Ready,overcommitted (cpu)" in text
    assert "What its agent did, the latest first" in text
    assert "node-role.kubernetes.io/control-plane:NoSchedule" in text
    assert re.search(r"cpu +96 +100 +104% +21816m", text)
    assert re.search(r"cpu +51\.2% +- +60\.0% +99\.5% +3", text)
    assert re.search(r"Policy: +batch@12", text)
    assert re.search(r"ROOM ON +SINCE +MAY STAY FROM", text)
    pods = text[text.index("Pods (2)") :]
    assert pods.index("openb/a ") < pods.index("openb/ana"), "sorted by name"

    placement = {"node": "n", "from": THEN, "to": None, "decision": "0-1", "adopted": True}
    waiting = pod(phase="pending", node=None, group=GROUP, decisions=[WAITS], placements=[placement])
    describe._pod(waiting)
    lines = shown(capsys)
    text = "\n".join(lines)
    assert max(map(len, lines)) <= 80, text
    assert "Waits with 14 equal pods" in text
    assert re.search(r"QoS class: +Burstable \(mid\)", text)
    assert "1,293 lack cpu, memory, gpu-milli and gpu" in text
    assert re.search(r"0-2251 +unschedulable", text)
    assert re.search(r"n +2023-05-06 +- +0-1 +yes", text)
    describe._pod(waiting | {"group": GROUP | {"count": 1}})
    assert "\nWaits, last tried at" in "\n".join(shown(capsys))


@pytest.mark.usefixtures("terminal")
def test_the_history_of_a_pod_cuts_no_time_and_no_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """At 80 columns it showed `2026-11…3T18:55:03.000Z`, and `insuffi…fficient:memory`."""
    reason = "node-b is kept free for it; 0/16 nodes: 2 insufficient:cpu,insufficient:memory"
    promised = decision(id="0-1180", outcome="nominated", node="node-b", reason=reason)
    output.print_table("decisions", explain.HISTORY, [promised])
    lines = shown(capsys)
    assert max(map(len, lines)) <= 80, lines
    assert str(promised["decided_at"]) in lines[1]
    assert "…" not in "".join(lines)
    at = lines[0].index("REASON")
    assert "2 insufficient:cpu, insufficient:memory" in " ".join(line[at:] for line in lines[1:])
    placement = {"node": LONG, "from": NOW, "to": NOW, "decision": "0-1", "adopted": True}
    output.print_table("placements", explain.PLACEMENTS, [placement])
    assert shown(capsys)[1].count(NOW) == 2


# ------------------------------------------------------------------------------------------------- colours


@pytest.mark.usefixtures("terminal")
def test_outcomes_are_coloured_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def printed() -> str:
        output.print_table("decisions", TABLES["decisions"], [decision(), WAITS])
        return capsys.readouterr().out

    assert "\x1b[" not in printed(), "standard output is no terminal here"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    coloured = printed()
    assert "\x1b[32mbound" in coloured
    assert "\x1b[33munschedulable" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in printed()


def test_a_sentence_breaks_between_words_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "default/web-2 waits: of 12 nodes 7 lack cpu and memory; 5 are cordoned; one-long-name more\nend"
    monkeypatch.setenv("COLUMNS", "40")
    output.say(said)
    assert capsys.readouterr().out == said + "\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    output.say(said)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert (" ".join(lines), lines[-1]) == (said.replace("\n", " "), "end")


def test_every_outcome_and_phase_has_a_colour() -> None:
    assert {*map(str, Outcome), "pending", "bound"} <= STYLES.keys()


# ------------------------------------------------------------------------------------------- short writing


def test_times_are_short_where_they_can_be() -> None:
    today = datetime.datetime.now(datetime.UTC)
    other = today.replace(month=1 if today.month > 1 else 2, day=3, hour=14, minute=3)
    assert short_time(f"{today:%Y-%m-%d}T14:03:07.123Z") == "14:03:07Z"
    assert short_time(f"{other:%Y-%m-%dT%H:%M:%S}Z") == f"{other:%m}-03 14:03Z"
    assert short_time(THEN) == "2023-05-06"
    assert short_time(None) == "-"


def test_a_long_name_keeps_its_end_which_tells_it_apart() -> None:
    assert shortened("openb/openb-pod-0042", 17) == "openb…nb-pod-0042"
    assert len(shortened("x" * 100, 8)) == 8
    assert shortened("name", 4) == "name"


@pytest.mark.parametrize(
    ("name", "value", "short"),
    [
        ("cpu", "12500m", "12.5"),
        ("cpu", "1500", "1500"),
        ("memory", "30517Mi", "29.8Gi"),
        ("memory", "512Mi", "512Mi"),
        ("memory", "0", "0"),
        ("nvidia.com/gpu", "8", "8"),
        ("berth.dev/gpu-milli", "7940", "7.94k"),
    ],
)
def test_amounts_are_short(name: str, value: str, short: str) -> None:
    assert short_amount(name, value) == short


def test_a_node_says_all_that_is_true_of_it() -> None:
    assert node_status(node()) == "Ready"
    assert node_status(node(ready=False, unschedulable=True)) == "NotReady,cordoned"
    assert node_status(node(overcommitted=["cpu"])) == "Ready,overcommitted"
    assert node_status(node(deleted=True)) == "deleted"


# ------------------------------------------------------------------------------------- names and selectors


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"selector": SELECTS}, "app=web,tier in (a,b)"),
        ({"selector": {"requirements": []}}, "all"),
        ({"selector": None}, "nothing"),
        ({"selector": SELECTS, "min_available": 2}, "at least 2 of app=web,tier in (a,b)"),
        ({"selector": SELECTS, "min_available": 0}, "at least 0 of app=web,tier in (a,b)"),
        ({"selector": None, "max_unavailable": "50%"}, "all but 50% of nothing"),
        ({"name": "high", "value": 7}, "value 7"),
        ({"name": "high", "value": 0, "global_default": True}, "value 0, for pods that name none"),
        ({"labels": {"b": "2", "a": "1"}}, "a=1,b=2"),
        ({}, ""),
    ],
)
def test_a_configuration_object_in_words(said: Item, expected: str) -> None:
    (column,) = [each for each in TABLES["config"] if each.title == "WHAT IT SAYS"]
    assert column.read(config_object() | {"object": said}) == expected
    assert column.read(config_object() | {"object": None}) == "deleted"


def test_a_hosted_workload_in_words_says_how_many_of_what() -> None:
    (column,) = [each for each in TABLES["config"] if each.title == "WHAT IT SAYS"]
    said = msgspec.to_builtins(HostedReplicas(kind="ReplicaSet", workload="crawler", least=1, most=500))
    item = config_object() | {"kind": "HostedReplicas", "object": said}
    assert column.read(item) == "1 to 500 of ReplicaSet crawler"


def test_a_policy_in_words_says_in_what_it_differs(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"nodeSelector": {"b": "2", "a": "1"}, "view": {"cap": "60%", "settle": "2m"}, "eviction": {}}
    item = config_object("CoLocationPolicy", name="batch") | {
        "object": policy_to_spec(policy_from_spec(spec, "spec"))
    }
    (column,) = [each for each in TABLES["config"] if each.title == "WHAT IT SAYS"]
    assert column.read(item) == "nodes with a=1 b=2,view.cap 60%,view.settle 120s"
    plain = item | {"object": policy_to_spec(DEFAULT_POLICY)}
    assert column.read(plain) == "all nodes"
    describe._policy(item)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["view.settle", "120s", "60s"] in lines
    assert ["view.cap", "60%", "-"] in lines
    assert ["eviction.node", "-", "-"] in lines
    assert not any(line[:1] == ["prices.low"] for line in lines), "it says nothing of prices"
    describe._policy(plain)
    assert ["prices.low", "0.1", "0.1"] in [line.split() for line in capsys.readouterr().out.splitlines()]


def test_names_of_configuration_objects_are_those_of_kubectl() -> None:
    assert CONFIG_NAMES.keys() == CONTENTS.keys()
    names = [name for others in OTHER_NAMES.values() for name in others] + [kind.value for kind in Kind]
    assert len(names) == len(set(names))
    assert (kind_of("policy"), config_kind_of("policies")) == (Kind.CONFIG, "CoLocationPolicy")
    assert (kind_of("svc"), config_kind_of("SVC")) == (Kind.CONFIG, "Service")
    assert (kind_of("config"), config_kind_of("config")) == (Kind.CONFIG, None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [("pod", "pods"), ("po", "pods"), ("no", "nodes"), ("Node", "nodes"), ("dl", "deadletters")],
)
def test_a_kind_has_several_names(text: str, kind: str) -> None:
    assert kind_of(text) is Kind(kind)


def test_a_kind_that_is_none_is_answered_with_the_nearest() -> None:
    with pytest.raises(typer.BadParameter, match=r"nods.*nodes, pods.*did you mean nodes\?"):
        kind_of("nods")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=web", [True, False, False]),
        ("app==web", [True, False, False]),
        ("app!=web", [False, True, True]),
        ("app", [True, True, False]),
        ("!app", [False, False, True]),
        ("app=web, tier!=back", [True, False, False]),
        ("app,tier=back", [False, True, False]),
        ("empty=", [False, False, True]),
    ],
)
def test_a_selector_keeps_what_has_its_labels(selector: str, expected: list[bool]) -> None:
    keep = labels_filter(selector)
    assert keep is not None
    items = [{"app": "web"}, {"app": "db", "tier": "back"}, {"empty": ""}]
    assert [keep({"labels": labels}) for labels in items] == expected
    assert labels_filter(None) is None


@pytest.mark.parametrize("selector", ["", "a=b,", "=b", "!a=b", "a in (b)", "a=b=c"])
def test_a_selector_that_is_none_is_refused(selector: str) -> None:
    with pytest.raises(typer.BadParameter, match="--selector"):
        labels_filter(selector)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("get", "pods", "a", "--node", "n"), "--node does not apply to pods a; it takes --at, --namespace"),
        (("get", "pending", "-l", "a=b"), "--selector does not apply to pending; it takes --at, --shard"),
        (("get", "pod", "a/b", "-n", "c", "--api", "http://127.0.0.1:9"), "is not in the namespace c"),
        (("get", "decisions", "--watch", "--newest"), "leave the id and --newest out"),
        (("describe", "shard", "0"), "'shard' cannot be described; node, pod, gang, policy and replicas can"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 2
    assert said in done.stderr
