"""`berth up` and `berth demo` as a user runs them: processes of their own, on the embedded default."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from services.address import Instance
from tests.builders import Json, event, node_manifest, pod_manifest
from tests.integration.commands import BERTH, berth, environment, eventually, listed, up, url_of
from tests.servers import with_database

MANIFESTS = """\
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}
---
kind: List
items:
- {kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}
- {kind: Pod, metadata: {name: huge}, spec: {containers: [{name: c, resources: {requests: {cpu: 50}}}]}}
"""


def test_from_manifests_to_answers_and_back(server_dir: Path) -> None:
    with up(server_dir):
        sent = berth(server_dir, "apply", "-f", "-", stdin=MANIFESTS)
        assert (sent.returncode, sent.stderr) == (0, "3 events sent\n")
        eventually(lambda: len(listed(server_dir, "decisions")) == 2)
        pods = {pod["name"]: pod for pod in listed(server_dir, "pods")}
        assert (pods["web"]["node"], pods["huge"]["node"]) == ("n1", None)
        assert pods["web"]["uid"] == "default/web"
        (group,) = listed(server_dir, "pending")
        assert (group["count"], group["reasons"]) == (1, {"insufficient:cpu": 1})
        table = berth(server_dir, "get", "nodes").stdout.splitlines()
        assert table[1].split("\t")[:4] == ["n1", "Ready", "500m/4", "0/8Gi"]
        assert yaml.safe_load(berth(server_dir, "get", "nodes", "-o", "yaml").stdout)[0]["name"] == "n1"
        assert "default/web was placed on n1" in berth(server_dir, "explain", "pod", "web").stdout
        explained = json.loads(berth(server_dir, "explain", "pod", "default/huge", "-o", "json").stdout)
        assert "lacks cpu" in explained["explanation"]["summary"]
        assert berth(server_dir, "delete", "pod", "default/web").returncode == 0
        eventually(lambda: [pod["name"] for pod in listed(server_dir, "pods")] == ["huge"])
        missing = berth(server_dir, "explain", "pod", "default/none")
        assert (missing.returncode, missing.stdout) == (1, "")
        assert missing.stderr.startswith("error: pod default/none is not known")
    assert not (server_dir / "api.json").exists()
    # Nothing runs any more: the same question is answered from the ledger itself, with the same shape.
    assert [pod["name"] for pod in listed(server_dir, "pods")] == ["huge"]
    with up(server_dir):
        eventually(lambda: listed(server_dir, "shards")[0]["epoch"] == 2)
        assert len(listed(server_dir, "decisions")) == 3
        replayed = berth(server_dir, "replay")  # beside it, on its server
        assert replayed.returncode == 0, replayed.stderr
        assert "batches are the same, with 3 decisions, 2 restarts" in replayed.stdout


@pytest.mark.deep
def test_a_pod_that_backs_off_is_tried_again_though_nothing_is_produced(server_dir: Path) -> None:
    """Room comes within a second of the attempt; then the log is quiet, and only ticks move its time."""
    with up(server_dir):
        url = url_of(server_dir)

        def post(kind: str, *things: Json) -> None:
            body = json.dumps([event(kind, thing) for thing in things]).encode()
            headers = {"Content-Type": "application/json"}
            asked = urllib.request.Request(f"{url}/v1/events?wait=60", body, headers)
            with urllib.request.urlopen(asked, timeout=90) as answer:
                assert answer.status == 202

        def decided(name: str, outcome: str) -> float:
            found = [each for each in listed(server_dir, "decisions") if each["pod"]["name"] == name]
            (moment,) = [each["decided_at"] for each in found if each["outcome"] == outcome]
            return datetime.datetime.fromisoformat(moment).timestamp()

        post("ADDED", node_manifest("n", cpu=1))
        for turn in range(5):  # a busy machine may take too long to say that there is room
            holder, waits = pod_manifest(f"holder-{turn}", cpu=1), pod_manifest(f"waits-{turn}", cpu=1)
            post("ADDED", holder)
            post("ADDED", waits)
            post("DELETED", holder)
            freed = decided(holder["metadata"]["name"], "released")
            failed = decided(waits["metadata"]["name"], "unschedulable")
            eventually(lambda: listed(server_dir, "pending") == [])
            bound = decided(waits["metadata"]["name"], "bound")
            post("DELETED", waits)
            if freed - failed < 1.0:
                assert bound - failed >= 1.0
                return
        pytest.fail("room never came while the pod backed off")


def test_records_that_are_refused_can_be_looked_at(server_dir: Path) -> None:
    with up(server_dir):
        url = url_of(server_dir)
        event = {"type": "ADDED", "object": {"kind": "Pod", "metadata": {"name": "x"}, "spec": None}}
        body = json.dumps([event]).encode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(
                urllib.request.Request(f"{url}/v1/events", body, {"Content-Type": "application/json"})
            )
        assert refused.value.code == 422
        assert json.load(refused.value)["error"]["details"][0]["path"] == "object.spec"
        assert listed(server_dir, "deadletters") == []


@pytest.mark.deep
def test_a_port_that_is_taken_by_another_is_an_error_in_one_line(server_dir: Path) -> None:
    with up(server_dir):
        port = url_of(server_dir).rsplit(":", 1)[1]
        second = server_dir / "second"
        done = berth(second, "up", "--port", port)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: cannot listen on 127.0.0.1:{port} (Address already in use); "
        "choose another --port or --host\n"
    )


@pytest.mark.parametrize("command", [("init",), ("worker",), ("relay",), ("get", "nodes")])
def test_a_database_that_lets_nobody_in_is_an_error_in_one_line(
    embedded_dsn: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    done = berth(tmp_path, *command, "--postgres-dsn", with_database(embedded_dsn, "nowhere"))
    assert done.returncode == 1
    assert done.stderr == (
        'error: the database refuses the connection: database "nowhere" does not exist; '
        "check BERTH_POSTGRES_DSN\n"
    )


@pytest.mark.deep
def test_init_says_what_it_did_and_does_nothing_twice(server_dir: Path) -> None:
    first = berth(server_dir, "init", "--shards", "3")
    assert first.returncode == 0, first.stderr
    assert "3 shards laid down" in first.stdout
    assert "topic berth.pods created, partitions: 3" in first.stdout
    again = berth(server_dir, "init", "--shards", "3")
    assert again.stdout == "nothing to do: everything is there\n"
    assert berth(server_dir, "init").stdout == again.stdout
    more = berth(server_dir, "init", "--shards", "4")
    assert (more.returncode, more.stderr) == (0, "")
    assert "4 shards laid down" in more.stdout
    assert len(listed(server_dir, "shards")) == 4


@pytest.mark.deep
def test_keys_are_shown_once(server_dir: Path) -> None:
    scope = ("--role", "producer", "--role", "auditor", "--namespace", "team-a", "--events-per-second", "50")
    made = berth(server_dir, "api-key", "create", "ci", *scope)
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    assert key.startswith("berth_")
    shown = json.loads(berth(server_dir, "api-key", "list", "-o", "json").stdout)
    (told,) = shown
    assert (told["name"], told["roles"], told["revoked_at"]) == ("ci", ["producer", "auditor"], None)
    assert (told["namespaces"], told["kinds"], told["events_per_second"]) == (["team-a"], None, 50)
    second = berth(server_dir, "api-key", "create", "ci", "--role", "auditor")
    assert (second.returncode, second.stderr) == (0, ""), "it is not the first"
    refused = berth(server_dir, "api-key", "create", "ops", "--role", "boss")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert (
        "--role: 'boss' is not allowed; allowed are producer, operator, auditor, agent, admin"
        in refused.stderr
    )
    assert key not in json.dumps(shown)
    assert berth(server_dir, "api-key", "revoke", "ci").returncode == 0
    assert berth(server_dir, "api-key", "revoke", "ci").returncode == 1


@pytest.mark.deep
def test_keys_are_made_beside_a_running_instance(server_dir: Path) -> None:
    """The command told to ask the API, and the API to run the command."""

    def asked(key: str, method: str = "GET", path: str = "/v1/nodes") -> int:
        wanted = urllib.request.Request(
            url_of(server_dir) + path, method=method, headers={"Authorization": f"Bearer {key}"}
        )
        try:
            with urllib.request.urlopen(wanted) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with up(server_dir):
        made = berth(server_dir, "api-key", "create", "ops", "--role", "admin", "--requests-at-once", "3")
        assert made.returncode == 0
        assert "first key: from now on every question to the API needs one" in made.stderr
        key = made.stdout.strip()
        assert key.startswith("berth_")
        eventually(lambda: asked("berth_wrong") == 401)
        assert asked(key) == 200
        owner = Instance(**json.loads((server_dir / "api.json").read_text())).owner_key
        assert asked(owner) == 401, "it is for the keys alone"
        assert asked(owner, path="/v1/keys") == 200
        listed_keys = json.loads(berth(server_dir, "api-key", "list", "-o", "json").stdout)
        (told,) = [each for each in listed_keys if each["name"] == "ops"]
        assert (told["roles"], told["requests_at_once"], told["revoked_at"]) == (["admin"], 3, None)
        assert berth(server_dir, "api-key", "revoke", "ops").returncode == 0
        assert asked(key) == 401
        assert berth(server_dir, "api-key", "revoke", "ops").returncode == 1
    stopped = json.loads(berth(server_dir, "api-key", "list", "-o", "json").stdout)
    assert next(each for each in stopped if each["name"] == "ops").keys() == told.keys()
    with up(server_dir):
        assert asked(owner, path="/v1/keys") == 401, "it ended with its instance"


@pytest.mark.deep
def test_whoever_stops_reading_early_sees_no_complaint(server_dir: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(BERTH)} trace openb | head -1 | wc -l; exit ${{PIPESTATUS[0]}}"],
        env=environment(server_dir),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout.strip(), done.stderr) == ("1", "")


def test_the_demo_places_the_trace_and_goes_on_from_its_state(server_dir: Path) -> None:
    first = berth(server_dir, "demo", "--exit", "--port", "0")
    assert first.returncode == 0, first.stderr
    rows = dict(line.split("\t")[:2] for line in first.stdout.splitlines()[:7])
    placed = int(rows["pods placed"].replace(",", ""))
    pending = int(rows["pods pending"].replace(",", ""))
    assert placed + pending == 8152
    assert placed > 7000
    assert int(rows["decisions"].replace(",", "")) >= 8152
    assert "was placed on" in first.stdout
    assert rows["GPUs"].startswith("6,212: ")
    assert "thousandths taken of each device: 0: " in first.stdout
    again = berth(server_dir, "demo", "--exit", "--port", "0")
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("9,675 of the trace's events were here already")
    assert f"pods placed\t{placed:,}" in again.stdout


@pytest.mark.deep
def test_ctrl_c_stops_the_demo_cleanly(server_dir: Path) -> None:
    process = subprocess.Popen(
        [*BERTH, "demo", "--port", "0"], env=environment(server_dir), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Serving on http://127.0.0.1:"):
                break
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.deep
def test_what_others_can_reach_has_a_key_from_the_first_start(server_dir: Path) -> None:
    command = [*BERTH, "up", "--host", "0.0.0.0", "--port", "0"]
    said = []
    for _ in range(2):
        process = subprocess.Popen(command, env=environment(server_dir), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        try:
            lines = [process.stderr.readline()]
            while not lines[-1].startswith("berth is up: "):
                lines.append(process.stderr.readline())
            said.append([line for line in lines if "API key" in line])
            url = lines[-1].split()[3]
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"{url}/v1/nodes")
            assert berth(server_dir, "get", "nodes").returncode == 0, "the commands find the key that is kept"
        finally:
            process.terminate()
            assert process.wait(timeout=20) == 0
            process.stderr.close()
    ((line,), none) = said
    assert none == []
    file = server_dir / "admin.key"
    assert line.split()[-1] == str(file)
    assert file.read_text().strip() not in "".join(lines), "a log shows no key"
    assert file.stat().st_mode & 0o077 == 0


CONTENDERS = """\
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 2, memory: 8Gi, pods: 10}}
---
kind: Pod
metadata: {name: low, uid: 1111-aaaa}
spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}
"""
HIGH = """\
kind: Pod
metadata: {name: high, uid: 2222-bbbb}
spec: {priority: 9, containers: [{name: c, resources: {requests: {cpu: 2}}}]}
"""


@pytest.mark.deep
def test_each_object_has_a_line_and_a_preemption_names_both_pods(server_dir: Path) -> None:
    def explained(pod: str) -> str:
        return berth(server_dir, "explain", "pod", pod, "-n", "shop").stdout

    with up(server_dir):
        sent = berth(server_dir, "apply", "-n", "shop", "-f", "-", stdin=CONTENDERS)
        assert sent.stdout.splitlines() == ["node/n1 created", "pod/shop/low created"]
        again = berth(server_dir, "apply", "-n", "shop", "-f", "-", stdin=CONTENDERS)
        assert again.stdout.splitlines() == ["node/n1 configured", "pod/shop/low configured"]
        high = berth(server_dir, "apply", "-n", "shop", "-f", "-", stdin=HIGH).stdout.splitlines()
        assert high[0] == "pod/shop/high created"
        assert high[1].startswith("pod/shop/high waits: n1 is promised, 1 pod to leave")
        assert "It has to leave for shop/high of priority 9 (decision 0-" in explained("low")
        assert "For it shop/low has to leave n1 (decision 0-" in explained("high")
        gone = berth(server_dir, "delete", "pod", "low", "-n", "shop")
        assert gone.returncode == 0, gone.stderr
        eventually(lambda: "shop/high was placed on n1" in explained("high"))
        assert "For it shop/low had to leave n1 (decision 0-" in explained("high")
        assert "It had to leave for shop/high of priority 9 (decision 0-" in explained("low")
        (worker,) = listed(server_dir, "workers")
        assert (worker["state"], worker["shards"]) == ("ready", [0])
        (owner,) = listed(server_dir, "shards", "--history", "--since", "1h")
        assert (owner["owner"], owner["shard"], owner["to"]) == (worker["name"], 0, None)
        names = berth(server_dir, "get", "po,no", "-o", "name").stdout.split()
        assert names == ["pod/shop/high", "node/n1"]
        assert berth(server_dir, "get", names[0], "-o", "jsonpath={.node}").stdout == "n1\n"
    assert listed(server_dir, "workers")[0]["state"] == "stopped"
