"""Is every field of a manifest honoured, held, named in a warning, or known to be of no matter?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from docs.build.manifest_pages import main
from domain.engine.program import warnings_of
from domain.manifests.codes import IGNORED, UNSUPPORTED
from domain.manifests.fields import BY_PROFILE, SHAPES, Shape, Treatment, codes
from domain.manifests.objects import pod_from_manifest
from domain.manifests.profile import profile_from_manifest
from domain.model.pods import PodTemplate
from domain.model.profiles import BUILT_IN_PROFILES
from domain.model.signature import signature, template_to_json
from domain.plugins.registry import ProfilePlan
from tests.builders import Json, pod_manifest, profile_manifest

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
TERM = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
ZONE = {"topologyKey": "zone"}
NEAR = {"podAffinityTerm": ZONE, "weight": 1}
DISKS = [
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "gcePersistentDisk",
    "iscsi",
    "portworxVolume",
    "rbd",
    "vsphereVolume",
]

ASKS: dict[str, list[Json]] = {
    "ignored:pod-affinity": [{"affinity": {"podAffinity": {REQUIRED: [ZONE]}}}],
    "ignored:pod-anti-affinity": [{"affinity": {"podAntiAffinity": {REQUIRED: [ZONE]}}}],
    "ignored:topology-spread": [
        {"topologySpreadConstraints": [ZONE | {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}
    ],
    "unsupported:volume-claims": [
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]},
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
    ],
    "unsupported:resource-claims": [
        {"resourceClaims": [{"name": "gpu"}]},
        {"resources": {"claims": [{"name": "gpu"}]}},
        {"containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]},
        {"initContainers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}]},
    ],
    "unsupported:anti-affinity-keys": [
        {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": f"k{i}"} for i in range(9)]}}}
    ],
    "ignored:preferred-pod-affinity": [{"affinity": {"podAffinity": {PREFERRED: [NEAR]}}}],
    "ignored:preferred-pod-anti-affinity": [{"affinity": {"podAntiAffinity": {PREFERRED: [NEAR]}}}],
    "ignored:preferred-topology-spread": [
        {"topologySpreadConstraints": [ZONE | {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]}
    ],
    "ignored:disks": [{"volumes": [{"name": "v", disk: {}}]} for disk in DISKS],
    "ignored:runtime-class": [{"runtimeClassName": "kata"}],
    "ignored:comparing-tolerations": [{"tolerations": [{"key": "k", "operator": "Gt", "value": "5"}]}],
    "ignored:node-selector": [{"nodeSelector": {"a": "b"}}],
    "ignored:required-node-affinity": [
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}}
    ],
    "ignored:preferred-node-affinity": [
        {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": TERM}]}}}
    ],
    "ignored:host-ports": [{"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}],
}
"""For every code, specs that are to get it."""


def profile_plan(manifest: Json) -> ProfilePlan:
    return ProfilePlan(profile_from_manifest(manifest))


BARE = profile_plan(profile_manifest("bare"))


def template_of(spec: Json, **metadata: Any) -> PodTemplate:
    return pod_from_manifest(pod_manifest("p", spec=spec, **metadata)).template


def told(template: PodTemplate, plan: ProfilePlan) -> list[str]:
    """Return what a pod is held or warned by."""
    warnings = warnings_of(plan, template)
    held = [f"unsupported:{what}" for what in template.unsupported]
    return held + ([] if warnings is msgspec.UNSET else list(warnings))


def test_every_code_has_a_field_and_a_pod_and_words() -> None:
    said = {f"unsupported:{what}" for what in UNSUPPORTED} | {f"ignored:{what}" for what in IGNORED}
    assert codes() == said == set(ASKS)


@pytest.mark.parametrize(
    ("code", "spec"), [(code, spec) for code, specs in ASKS.items() for spec in specs], ids=str
)
def test_a_pod_that_asks_for_it_is_told_so_and_nothing_else(code: str, spec: Json) -> None:
    assert told(template_of(spec), BARE) == [code]


def test_what_the_profile_looks_at_is_no_warning() -> None:
    filters = ["NodeAffinity", "NodePorts", "PodTopologySpread", "InterPodAffinity"]
    scores = ["NodeAffinity", "PodTopologySpread", "InterPodAffinity"]
    looking = profile_plan(profile_manifest("looking", filters=filters, scores=scores))
    filtering = profile_plan(profile_manifest("filtering", filters=filters, scores=[]))
    for code, *_ in BY_PROFILE:
        template = template_of(ASKS[code][0])
        assert told(template, looking) == []
        assert told(template, filtering) == ([code] if code.startswith("ignored:preferred-") else [])
    overhead = {"runtimeClassName": "kata", "overhead": {"cpu": "100m"}}
    assert told(template_of(overhead), looking) == []


def test_a_built_in_profile_honours_what_a_pod_demands() -> None:
    for profile in BUILT_IN_PROFILES.values():
        for code, *_ in BY_PROFILE:
            if not code.startswith("ignored:preferred-"):
                assert told(template_of(ASKS[code][0]), ProfilePlan(profile)) == []


@pytest.mark.parametrize(
    "source",
    ["configMap", "secret", "emptyDir", "projected", "downwardAPI", "hostPath", "image", "nfs", "csi"],
)
def test_volumes_that_need_no_binding_are_of_no_matter(source: str) -> None:
    plain, with_volume = template_of({}), template_of({"volumes": [{"name": "v", source: {"x": "y"}}]})
    assert with_volume == plain


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.path)
def test_the_table_says_of_each_shape_what_is_read(shape: Shape) -> None:
    names = shape.names()
    assert len(names) == len(set(names))
    read = {field.encode_name for field in msgspec.structs.fields(shape.wire)}
    assert read == {field.name for field in shape.fields if field.treatment is not Treatment.NONE}
    for field in shape.fields:
        assert bool(field.codes) == (field.treatment in (Treatment.HELD, Treatment.IGNORED)), field.name


def test_the_page_is_as_the_table_is() -> None:
    assert main(["--check"]) == 0


def test_templates_keep_the_signatures_that_ledgers_have_them_by() -> None:
    assert signature(PodTemplate()).hex() == "89f97697b0d518c8d39664c46ce80496"
    named = template_of({"nodeSelector": {"a": "b"}, "priority": 7})
    assert signature(named).hex() == "474100c0cce3e8ffcef5a8b2b3a4146b"
    warned = template_of(ASKS["ignored:disks"][0])
    assert signature(warned) != signature(template_of({}))
    classed = msgspec.structs.replace(named, priority_class="high", missing=("unknown-priority-class:high",))
    assert len({signature(each) for each in (named, classed, warned)}) == 3
    for template in (named, warned, classed):
        assert msgspec.json.decode(template_to_json(template), type=PodTemplate) == template
