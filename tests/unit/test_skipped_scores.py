"""Do scores that are the same on all nodes cost nothing, and count again as soon as a node differs?"""

from __future__ import annotations

import msgspec

from domain.cycle.schedule import Scheduler
from domain.engine.verdicts import Placement
from domain.model.events import NodeUpserted, PodUpserted
from domain.model.nodes import NodeImage, NodeSpec, Taint
from domain.model.pods import PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from tests.values import node, pod, template

SOFT = Taint("k", "v", "PreferNoSchedule")


def scheduler_of(*nodes: NodeSpec) -> Scheduler:
    scheduler = Scheduler(BUILT_IN_PROFILES, seed=1)
    for each in nodes:
        scheduler.fold(NodeUpserted(each))
    return scheduler


def place(scheduler: Scheduler, *shapes: PodTemplate) -> list[Placement]:
    """Place a pod of each template."""
    first = len(scheduler.state.pods)
    for i, shape in enumerate(shapes):
        scheduler.fold(PodUpserted(pod(f"p{first + i}", shape)))
    return [verdict for verdict in scheduler.cycle().verdicts if isinstance(verdict, Placement)]


def varying(scheduler: Scheduler) -> list[int]:
    """Return how many normalised scores each static part computes."""
    parts = [static.index for static in scheduler._slots._statics.values()]
    return sorted(scheduler._slots.groups.raws_varying[parts].tolist())


def test_a_score_is_computed_only_while_nodes_differ_in_it() -> None:
    plain = [node(name) for name in ("a", "b", "c")]
    scheduler = scheduler_of(*plain)
    (placed,) = place(scheduler, template(100))
    assert varying(scheduler) == [0]
    assert placed.score > 3 * 100.0, "what a skipped score adds to all nodes is told, too"
    tainted = [msgspec.structs.replace(each, taints=(SOFT,), resource_version=2) for each in plain[:2]]
    for each in tainted:
        scheduler.fold(NodeUpserted(each))
    assert {each.node for each in place(scheduler, *[template(100)] * 5)} == {"c"}
    assert varying(scheduler) == [1]
    for each in plain[:2]:
        scheduler.fold(NodeUpserted(msgspec.structs.replace(each, resource_version=3)))
    assert {each.node for each in place(scheduler, *[template(100)] * 4)} <= {"a", "b"}
    assert varying(scheduler) == [0]


def test_images_that_no_node_has_tell_no_groups_apart() -> None:
    nodes = [node(name) for name in ("a", "b", "c")]
    scheduler = scheduler_of(*nodes)
    shapes = [template(100, images=(f"image-{i}",)) for i in range(20)]
    assert len(place(scheduler, *shapes)) == 20
    assert len(scheduler._slots._statics) == 1
    image = (NodeImage(("image-7:latest",), 900 << 20),)
    scheduler.fold(NodeUpserted(msgspec.structs.replace(nodes[1], images=image, resource_version=2)))
    found = {each.pod.template.images: each.node for each in place(scheduler, *shapes)}
    assert found[("image-7",)] == "b"
    assert len(scheduler._slots._statics) == 2
