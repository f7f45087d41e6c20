"""Reads how a pod names its gang: the PodGroup of Kubernetes 1.36, or a group of a Workload of 1.35.

Source of what is allowed: the types and the validation of core/v1 in these versions.
"""

from __future__ import annotations

import msgspec

from domain.model.config import GROUP_MARK
from domain.model.validation import check_dns_label, check_subdomain


class WireSchedulingGroup(msgspec.Struct, rename="camel", omit_defaults=True):
    """``schedulingGroup`` as it is written."""

    pod_group_name: str | None = None


class WireWorkloadRef(msgspec.Struct, rename="camel", omit_defaults=True):
    """``workloadRef`` as it is written."""

    name: str | None = None
    pod_group: str | None = None
    pod_group_replica_key: str | None = None


def gang_name(group: WireSchedulingGroup | None, workload: WireWorkloadRef | None, path: str) -> str:
    """Return the name of the gang in the pod's namespace; "" where the ``spec`` at ``path`` names none.

    It is that of a PodGroup, or ``WORKLOAD:GROUP``, or ``WORKLOAD:GROUP:REPLICA``.
    """
    if group is not None and group.pod_group_name is not None:
        return check_subdomain(group.pod_group_name, f"{path}.schedulingGroup.podGroupName")
    if workload is None:
        return ""
    path = f"{path}.workloadRef"
    names = [check_subdomain(workload.name or "", f"{path}.name")]
    names.append(check_dns_label(workload.pod_group or "", f"{path}.podGroup"))
    if workload.pod_group_replica_key:
        names.append(check_dns_label(workload.pod_group_replica_key, f"{path}.podGroupReplicaKey"))
    return GROUP_MARK.join(names)
