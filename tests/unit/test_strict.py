"""Is it known of each pod whether a node that changed may be wrong for it, although it has room?"""

from __future__ import annotations

from typing import Any

import pytest

from domain.cycle.schedule import Scheduler
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.pods import PodTemplate, Toleration
from domain.model.profiles import BUILT_IN_PROFILES, PluginUse, Profile
from domain.model.selectors import (
    AffinityTerm,
    LabelRequirement,
    LabelSelector,
    PodAffinity,
    SpreadConstraint,
    WeightedAffinityTerm,
)
from tests.values import GIB, node, pod, template

WEB = LabelSelector((LabelRequirement("app", "In", ("web",)),))
TERM = AffinityTerm(topology_key="zone", selector=WEB, namespaces=("default",))
FIT = PluginUse(name="NodeResourcesFit")
PROFILES = {
    **BUILT_IN_PROFILES,
    **{
        use.name: Profile(name=use.name, revision=1, filters=(FIT, use), scores=())
        for use in (
            PluginUse(name="MasterShare"),
            PluginUse(name="MaxMemorySum"),
            PluginUse(
                name="ResourceThreshold",
                args={"resources": [{"name": "cpu", "of": "measured", "threshold": 80}]},
            ),
        )
    },
}


def is_strict(shape: PodTemplate, *others: tuple[str, PodTemplate], app: str = "web") -> bool:
    """Say whether a pod is strict beside placed pods of an app and a template."""
    scheduler = Scheduler(PROFILES, seed=1)
    labels = {"zone": "a", "kubernetes.io/hostname": "n1"}
    scheduler.fold(NodeUpserted(node("n1", labels=labels)))
    for i, (label, other) in enumerate(others):
        scheduler.fold(PodUpserted(pod(f"other-{i}", other, on="n1", labels={"app": label})))
    scheduler.fold(PodUpserted(pod("p", shape, labels={"app": app})))
    result = scheduler.cycle()
    assert len(result.attempts) == 1
    return result.strict == {0}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"node_selector": {"zone": "a"}},
        {"tolerations": (Toleration(operator="Exists"),)},
        {"spread": (SpreadConstraint(topology_key="zone", selector=WEB, hard=False),)},
        {"pod_anti_affinity": PodAffinity(preferred=(WeightedAffinityTerm(weight=1, term=TERM),))},
    ],
)
def test_who_asks_for_room_and_for_what_the_spec_says_is_not_strict(fields: dict[str, Any]) -> None:
    assert not is_strict(template(100, GIB, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"host_ports": template(0, 0, 80).host_ports},
        {"spread": (SpreadConstraint(topology_key="zone", selector=WEB),)},
        {"pod_affinity": PodAffinity(required=(TERM,))},
        {"pod_anti_affinity": PodAffinity(required=(TERM,))},
        {"profile": "MasterShare", "cluster": "x", "role": "master"},
        {"profile": "MaxMemorySum", "limits": {"memory": GIB}},
        {"profile": "ResourceThreshold"},
    ],
)
def test_who_asks_about_pods_or_usage_is_strict(fields: dict[str, Any]) -> None:
    assert is_strict(template(100, GIB, **fields))


def test_who_is_shunned_by_a_placed_pod_is_strict() -> None:
    shy = template(100, pod_anti_affinity=PodAffinity(required=(TERM,)))
    assert is_strict(template(100), ("db", shy))
    assert not is_strict(template(100), ("db", shy), app="db")
