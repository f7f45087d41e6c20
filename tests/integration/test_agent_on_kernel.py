"""Does an agent hold real processes back, and end them, in scratch groups of the kernel of this machine?"""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from domain.manifests.colocation_policy import policy_from_spec
from domain.model.colocation import Quality
from domain.state.policies import PolicyInForce
from services.agent.acting import AgentSettings
from services.agent.learned import pods_of
from services.agent.run import Agent
from services.agent.talking import Learned
from services.ports.cgroups import Feature
from tests.contract.machines import BOXES, BURN, Machine, alive, eventually, on_the_kernel, pod
from tests.unit.agents import pod as listed

UIDS = {"high": "Guaranteed", "low": "BestEffort"}


class _Wall:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Return this machine, with a burning high pod and a burning low one."""
    with on_the_kernel(1) as found:
        for box in BOXES:
            found.make(box)
        found.needs(Feature.QUOTA, Feature.MEMORY)
        for quality, uid in ((Quality.HIGH, "high"), (Quality.LOW, "low")):
            found.make(pod(quality, uid))
            found.spawn(pod(quality, uid), BURN)
        yield found


def agent_of(machine: Machine, spec: dict[str, object]) -> Agent:
    """Return the agent, which knows the pods and a policy."""
    elapsed = time.monotonic_ns
    settings = AgentSettings("n1", "r1", grace_seconds=1)
    agent = Agent(machine.cgroups, settings, _Wall(), lambda: elapsed() // 1_000_000, lambda line: None)
    pods = pods_of([listed(uid, qos) for uid, qos in UIDS.items()])
    agent.learned = Learned(pods, PolicyInForce("lend", 1, policy_from_spec(spec, "spec")))
    return agent


def ticks(agent: Agent, count: int) -> None:
    """Let the agent look a few times, a fifth of a second apart."""
    for _ in range(count):
        agent.tick()
        time.sleep(0.2)


def test_low_pods_are_held_to_what_is_left(machine: Machine) -> None:
    agent = agent_of(machine, {"eviction": {"after": "1h", "lower": "0%"}})
    ticks(agent, 4)
    quota = machine.cgroups.quota(BOXES.low)
    assert machine.cgroups.is_idle(BOXES.low)
    assert quota is not None
    assert quota.quota_us is not None
    cores_us = machine.cgroups.node().capacity.cpu_milli * quota.period_us // 1_000
    assert 2_000 <= quota.quota_us < cores_us
    assert alive(machine, pod(Quality.LOW, "low"))
    taken = [each["object"] for each in agent.outbox.actions.take_events()]
    kinds = [(each["action"], each["quality"]) for each in taken]
    assert ("quota", "low") in kinds


def test_low_pods_end_where_nothing_is_left_for_them(machine: Machine) -> None:
    agent = agent_of(machine, {"eviction": {"after": "0s"}, "view": {"margin": {"cpu": "100%"}}})
    ticks(agent, 3)
    assert eventually(lambda: not alive(machine, pod(Quality.LOW, "low")))
    assert alive(machine, pod(Quality.HIGH, "high"))
    assert msgspec.json.encode(agent.outbox.actions.take_events()).count(b'"evict"') == 1
