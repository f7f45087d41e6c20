"""Does a worker whose pods of one rule lose each time, to one that has many of them, waste little on them?"""

from __future__ import annotations

from tests.builders import Json, node_manifest, pod_manifest
from tests.property.team import Team, audit, keys_of, node_of

WAITING, ROUNDS = 200, 10


def spread(name: str) -> Json:
    """Return a pod that is kept even over zones, which leaves it any node here."""
    rule = {"maxSkew": 1000, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    rule["labelSelector"] = {"matchLabels": {"app": "web"}}
    return pod_manifest(name, cpu="10m", labels={"app": "web"}, spec={"topologySpreadConstraints": [rule]})


def conflicts(team: Team) -> int:
    return sum(each["outcome"] == "conflict" for each in team.decided())


def test_pods_of_one_rule_that_lose_each_time_are_tried_a_few_at_a_time() -> None:
    team = Team([0], [1])
    for i in range(4):
        team.tell("ADDED", node_manifest(node_of(team, i % 2, f"n{i}-"), cpu=8, labels={"zone": f"z{i}"}))
    for shard in range(2):  # each knows the rule from now on
        team.tell("ADDED", spread(keys_of(team, shard, 1, "first")[0]))
    before = conflicts(team)
    records = [team.record("ADDED", spread(name)) for name in keys_of(team, 1, WAITING)]
    for name in keys_of(team, 0, ROUNDS, "fast"):
        team.step(0, [team.record("ADDED", spread(name))])
        team.step(1, records, follows=False)
        records = []
    assert WAITING <= conflicts(team) - before <= WAITING * 5 // 4
    batches = team.batches_count
    team.rest()
    assert len(team.database.open_placements) == WAITING + ROUNDS + 2
    assert team.batches_count - batches <= 20, "more of them each time that they are placed"
    audit(team)
