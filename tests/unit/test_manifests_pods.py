"""Is a v1 Pod read as it is meant, and every wrong field named?"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from domain.manifests.objects import pod_from_manifest
from domain.model.errors import FieldError
from domain.model.pods import (
    CpuClaim,
    HostPort,
    NodeAffinity,
    NodeSelectorTerm,
    PodSpec,
    PodTemplate,
    PreferredTerm,
    Requirement,
    Toleration,
)
from domain.model.signature import signature, template_to_json
from tests.builders import pod_manifest

FULL = yaml.safe_load("""
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  namespace: shop
  uid: 3f1c
  resourceVersion: "42"
  labels: {app: web}
  creationTimestamp: null
spec:
  nodeName: n-1
  schedulerName: most-allocated
  priority: 100
  preemptionPolicy: Never
  nodeSelector: {disk: ssd}
  hostNetwork: false
  containers:
  - name: a
    image: web:2
    resources: {requests: {cpu: 0.1, memory: 1Gi, nvidia.com/gpu: 1}}
    ports:
    - {containerPort: 80, hostPort: 8080, protocol: UDP, hostIP: 127.0.0.1}
    - {containerPort: 81}
  initContainers:
  - {name: b, image: init:1, ports: [{containerPort: 1, hostPort: 1}]}
  - {name: c, restartPolicy: Always, ports: [{containerPort: 9, hostPort: 9}]}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: gpu, operator: In, values: [A, B]}
          - {key: size, operator: Gt, values: ["-3"]}
          matchFields: [{key: metadata.name, operator: NotIn, values: [n-9]}]
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 7
        preference: {matchExpressions: [{key: x, operator: Exists}]}
  tolerations:
  - {key: b, operator: Equal, value: v, effect: NoSchedule}
  - {operator: Exists}
  - {key: b, value: v, effect: NoSchedule, tolerationSeconds: 3}
  - {key: sla, operator: Gt, value: "5"}
  schedulingGates: [{name: example.com/gate}]
  volumes: [{name: ignored}]
status:
  phase: Running
  qosClass: Burstable
  startTime: 2024-05-01T12:00:00+02:00
""")

TEMPLATE = PodTemplate(
    requests={"cpu": 100, "memory": 1 << 30, "nvidia.com/gpu": 1},
    scoring_cpu_milli=200,
    scoring_memory_bytes=(1 << 30) + (200 << 20),
    node_selector={"disk": "ssd"},
    node_affinity=NodeAffinity(
        required=(
            NodeSelectorTerm(
                match_expressions=(Requirement("gpu", "In", ("A", "B")), Requirement("size", "Gt", ("-3",))),
                match_fields=(Requirement("metadata.name", "NotIn", ("n-9",)),),
            ),
        ),
        preferred=(PreferredTerm(7, NodeSelectorTerm((Requirement("x", "Exists"),))),),
    ),
    tolerations=(
        Toleration("", "Exists"),
        Toleration("b", "Equal", "v", "NoSchedule"),
    ),
    host_ports=(HostPort(9), HostPort(8080, "UDP", "127.0.0.1")),
    priority=100,
    preemption_policy="Never",
    qos_class="Burstable",
    profile="most-allocated",
    images=("init:1", "web:2"),
    cpu_claim=CpuClaim(requested_milli=100),
    gates=("example.com/gate",),
    ignored=("comparing-tolerations",),
)


def test_a_pod_is_read_whole() -> None:
    assert pod_from_manifest(FULL) == PodSpec(
        uid="3f1c",
        key="shop/web-1",
        resource_version=42,
        template=TEMPLATE,
        signature=signature(TEMPLATE),
        labels={"app": "web"},
        node_name="n-1",
        finished=False,
        start_time="2024-05-01T10:00:00.000Z",
    )


@pytest.mark.parametrize(
    ("labels", "cluster", "role"),
    [
        ({"berth.io/cluster": "c", "berth.io/role": "master", "app": "web"}, "default/c", "master"),
        ({"berth.io/cluster": "c", "berth.io/role": "replica"}, "default/c", "replica"),
        ({"berth.io/cluster": "c"}, "", ""),
        ({"berth.io/role": "master"}, "", ""),
        ({"berth.io/cluster": "", "berth.io/role": "master"}, "", ""),
        ({"app": "web"}, "", ""),
    ],
)
def test_what_a_pod_is_part_of_matters_for_placing_it(
    labels: dict[str, str], cluster: str, role: str
) -> None:
    pod = pod_from_manifest(pod_manifest("p", labels=labels))
    assert (pod.template.cluster, pod.template.role) == (cluster, role)
    assert pod.signature == signature(pod.template)
    assert (pod.signature == pod_from_manifest(pod_manifest("p")).signature) == (cluster == "")


def test_a_small_pod_has_defaults() -> None:
    pod = pod_from_manifest({"metadata": {"name": "p"}, "spec": {"containers": [{}]}})
    assert (pod.key, pod.uid, pod.resource_version, pod.finished) == ("default/p", "default/p", None, False)
    assert pod.template == PodTemplate(
        scoring_cpu_milli=100, scoring_memory_bytes=200 << 20, cpu_claim=CpuClaim(silent_count=1)
    )


@pytest.mark.parametrize(
    ("phase", "finished"), {"Pending": False, "Running": False, "Failed": True, "Succeeded": True}.items()
)
def test_a_finished_pod_is_known_by_its_phase(phase: str, finished: bool) -> None:
    assert pod_from_manifest(pod_manifest("p", phase=phase)).finished is finished


def test_a_pod_deleted_before_it_is_bound_needs_no_node_any_more() -> None:
    waiting, running = pod_manifest("p"), pod_manifest("p", node_name="n")
    for manifest in (waiting, running):
        manifest["metadata"]["deletionTimestamp"] = "2024-05-01T12:00:00Z"
    assert pod_from_manifest(waiting).finished
    assert not pod_from_manifest(running).finished


def test_host_network_turns_container_ports_into_host_ports() -> None:
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}, {"containerPort": 80}]
    spec = {"hostNetwork": True, "containers": [{"ports": ports}]}
    assert pod_from_manifest(pod_manifest("p", spec=spec)).template.host_ports == (HostPort(80), HostPort(82))


def requirement(
    key: str | None = "k", operator: str | None = "In", values: Any = ("v",), where: str = "matchExpressions"
) -> Any:
    values = None if values is None else list(values)
    term = {where: [{"key": key, "operator": operator, "values": values}]}
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        }
    }


def requests(**values: Any) -> Any:
    return {"containers": [{}, {"resources": {"requests": values}}]}


def preferred(weight: Any) -> Any:
    terms = [{"weight": weight, "preference": {}}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}


def port(**fields: Any) -> Any:
    return {"containers": [{"ports": [{}, fields]}]}


REQUIRED = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
PREFERRED = "affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
ASKED = "containers[1].resources.requests"
WRONG: dict[str, tuple[Any, str, str]] = {
    "no container": ({"containers": []}, "containers", "at least one"),
    "too many containers": ({"containers": [{}] * 257}, "containers", "containers_per_pod_max"),
    "containers object": ({"containers": {}}, "containers", "expected a list, got an object"),
    "container number": ({"containers": [{}, 5]}, "containers[1]", "expected an object, got an integer"),
    "image number": (
        {"containers": [{"image": 5}]},
        "containers[0].image",
        "expected a string, got an integer",
    ),
    "image blank": ({"containers": [{"image": "a b"}]}, "containers[0].image", "printable"),
    "cpu unreadable": (requests(cpu="fast"), f"{ASKED}.cpu", "allowed is a decimal number"),
    "cpu negative": (requests(cpu="-1m"), f"{ASKED}.cpu", "negative"),
    "cpu 10^12": (requests(cpu="1e12"), f"{ASKED}.cpu", "cpu_milli_max"),
    "cpu huge number": (requests(cpu=10**40), f"{ASKED}.cpu", "cpu_milli_max"),
    "memory huge": (requests(memory="1Ei"), f"{ASKED}.memory", "resource_value_max"),
    "half a device": (requests(**{"nvidia.com/gpu": "0.5"}), f"{ASKED}[nvidia.com/gpu]", "whole"),
    "pods": (requests(pods="1"), f"{ASKED}.pods", "cannot be requested"),
    "null": (requests(cpu=None), f"{ASKED}.cpu", "expected a quantity"),
    "limits": (
        {"containers": [{"resources": {"limits": {"cpu": "x"}}}]},
        "containers[0].resources.limits.cpu",
        "allowed",
    ),
    "init": (
        {"initContainers": [{"resources": {"requests": {"cpu": "x"}}}]},
        "initContainers[0].resources.requests.cpu",
        "allowed",
    ),
    "overhead": ({"overhead": {"cpu": "x"}}, "overhead.cpu", "allowed"),
    "pod level": ({"resources": {"requests": {"cpu": "x"}}}, "resources.requests.cpu", "allowed"),
    "sum too large": (
        {"containers": [{"resources": {"requests": {"memory": "1Pi"}}}] * 2},
        "containers",
        "resource_value_max",
    ),
    "too many kinds": (
        {"containers": [{"resources": {"requests": {f"r{i}": 1 for i in range(11)}}}]},
        "containers",
        "requested_resources_max",
    ),
    "node name": ({"nodeName": "A_B"}, "nodeName", "DNS-1123"),
    "selector": ({"nodeSelector": {"a": "b c"}}, "nodeSelector.a", "label value"),
    "priority": ({"priority": 2**31}, "priority", "out of range"),
    "priority text": ({"priority": "high"}, "priority", "expected an integer, got a string"),
    "preemption": ({"preemptionPolicy": "Maybe"}, "preemptionPolicy", "Never"),
    "scheduler": ({"schedulerName": "a b"}, "schedulerName", "printable"),
    "gate": ({"schedulingGates": [{}]}, "schedulingGates[0].name", "printable"),
    "spread": (
        {"topologySpreadConstraints": [{}]},
        "topologySpreadConstraints[0].whenUnsatisfiable",
        "DoNotSchedule",
    ),
    "operator": (requirement(operator="Is"), f"{REQUIRED}.matchExpressions[0].operator", "NotIn"),
    "operator missing": (requirement(operator=None), f"{REQUIRED}.matchExpressions[0].operator", "NotIn"),
    "key": (requirement(key="a b"), f"{REQUIRED}.matchExpressions[0].key", "label key"),
    "In of nothing": (requirement(values=()), f"{REQUIRED}.matchExpressions[0].values", "at least one"),
    "In of a bad value": (
        requirement(values=("a b",)),
        f"{REQUIRED}.matchExpressions[0].values[0]",
        "label value",
    ),
    "Exists with values": (
        requirement(operator="Exists"),
        f"{REQUIRED}.matchExpressions[0].values",
        "must be empty",
    ),
    "Gt of two": (
        requirement(operator="Gt", values=("1", "2")),
        f"{REQUIRED}.matchExpressions[0].values",
        "exactly one",
    ),
    "Lt of text": (
        requirement(operator="Lt", values=("x",)),
        f"{REQUIRED}.matchExpressions[0].values[0]",
        "integer",
    ),
    "Gt of a huge": (
        requirement(operator="Gt", values=(str(2**64),)),
        f"{REQUIRED}.matchExpressions[0].values[0]",
        "64-bit",
    ),
    "field": (
        requirement(key="metadata.uid", where="matchFields"),
        f"{REQUIRED}.matchFields[0].key",
        "metadata.name",
    ),
    "field operator": (
        requirement(key="metadata.name", operator="Exists", where="matchFields"),
        f"{REQUIRED}.matchFields[0].operator",
        "In, NotIn",
    ),
    "weight": (preferred(0), f"{PREFERRED}.weight", "1 to 100"),
    "weight large": (preferred(101), f"{PREFERRED}.weight", "1 to 100"),
    "toleration operator": (
        {"tolerations": [{"key": "a", "operator": "Is"}]},
        "tolerations[0].operator",
        "Exists",
    ),
    "toleration effect": (
        {"tolerations": [{"key": "a", "effect": "x"}]},
        "tolerations[0].effect",
        "NoExecute",
    ),
    "toleration of all": ({"tolerations": [{"value": "x"}]}, "tolerations[0].operator", "Exists"),
    "toleration value": (
        {"tolerations": [{"operator": "Exists", "value": "x"}]},
        "tolerations[0].value",
        "empty",
    ),
    "toleration Lt": (
        {"tolerations": [{"key": "a", "operator": "Lt", "value": "x"}]},
        "tolerations[0].value",
        "integer",
    ),
    "toleration key": ({"tolerations": [{"key": "a b"}]}, "tolerations[0].key", "label key"),
    "host port": (port(hostPort=65536), "containers[0].ports[1].hostPort", "65535"),
    "host port negative": (port(hostPort=-1), "containers[0].ports[1].hostPort", "65535"),
    "protocol": (port(hostPort=1, protocol="ICMP"), "containers[0].ports[1].protocol", "SCTP"),
    "host ip": (port(hostPort=1, hostIP="localhost"), "containers[0].ports[1].hostIP", "IP address"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_field_of_the_spec_is_named(case: str) -> None:
    spec, path, message = WRONG[case]
    with pytest.raises(FieldError) as caught:
        pod_from_manifest(pod_manifest("p", spec=spec))
    assert caught.value.path == f"object.spec.{path}"
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"metadata": {"name": "p", "namespace": "a.b"}}, "object.metadata.namespace"),
        ({"metadata": {"name": "-p"}}, "object.metadata.name"),
        ({"metadata": {"name": "p", "uid": "a\x00b"}}, "object.metadata.uid"),
        ({"metadata": {"name": "p", "uid": "u" * 254}}, "object.metadata.uid"),
        ({"metadata": {"name": "p", "deletionTimestamp": "now"}}, "object.metadata.deletionTimestamp"),
        ({"status": {"phase": "Sleeping"}}, "object.status.phase"),
        ({"status": {"qosClass": "Best"}}, "object.status.qosClass"),
        ({"status": {"startTime": "2024-05-01T12:00:00"}}, "object.status.startTime"),
    ],
)
def test_a_wrong_field_around_the_spec_is_named(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(FieldError) as caught:
        pod_from_manifest({**pod_manifest("p"), **fields})
    assert caught.value.path == path


def test_the_message_never_repeats_a_long_or_odd_value() -> None:
    with pytest.raises(FieldError) as caught:
        pod_from_manifest(pod_manifest("\ud800\x00" * 10_000))
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 400


def test_planning_takes_names_and_empty_pods_as_they_are() -> None:
    pod = pod_from_manifest({"metadata": {"name": "P_1"}, "spec": {"nodeName": "N1"}}, strict=False)
    assert (pod.name, pod.node_name, pod.template) == ("P_1", "N1", PodTemplate())


def test_images_of_volumes_are_read_beside_those_of_containers() -> None:
    volumes = [{"name": "a", "image": {"reference": "model:2"}}, {"name": "b", "emptyDir": {}}]
    template = pod_from_manifest(pod_manifest("p", spec={"volumes": volumes})).template
    assert (template.images, template.volume_images) == (("pause",), ("model:2",))


def test_a_pod_needs_the_features_that_its_spec_makes_use_of() -> None:
    def needed(container: dict[str, Any], **spec: Any) -> tuple[str, ...]:
        containers = [{"name": "c", **container}]
        return pod_from_manifest(pod_manifest("p", spec={"containers": containers, **spec})).template.features

    rules = [{"action": "Restart"}, {"action": "RestartAllContainers"}]
    assert needed({"restartPolicyRules": rules[:1]}) == ()
    assert needed({"restartPolicyRules": rules}) == ("RestartAllContainersOnContainerExits",)
    assert needed({}, initContainers=[{"restartPolicyRules": rules}]) == needed({"restartPolicyRules": rules})
    assert needed({}, hostNetwork=True, hostUsers=False) == ("UserNamespacesHostNetworkSupport",)
    assert needed({}, hostNetwork=True) == needed({}, hostUsers=False) == ()


def test_signature_is_equal_exactly_when_templates_are() -> None:
    one, other = (pod_from_manifest(pod_manifest("p", cpu=1, memory=memory)) for memory in ("1Gi", "1025Mi"))
    same = pod_from_manifest(
        pod_manifest("q", memory="1024Mi", cpu="1000m", labels={"a": "b"}, node_name="n")
    )
    assert one.template == same.template
    assert one.signature == same.signature != other.signature
    assert len(one.signature) == 16


def test_signature_does_not_depend_on_the_order_of_keys() -> None:
    one = PodTemplate(requests={"cpu": 1, "memory": 2}, node_selector={"a": "1", "b": "2"})
    other = PodTemplate(requests={"memory": 2, "cpu": 1}, node_selector={"b": "2", "a": "1"})
    assert signature(one) == signature(other)


def test_a_template_survives_the_ledger() -> None:
    assert msgspec.json.decode(template_to_json(TEMPLATE), type=PodTemplate) == TEMPLATE
    assert msgspec.json.decode(template_to_json(PodTemplate()), type=PodTemplate) == PodTemplate()
