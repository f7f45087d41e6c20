"""The volumes of a pod as they are written, as far as they could matter for placing it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class WirePresent(msgspec.Struct):
    """An object of which only matters that it is there."""


class WireImageSource(msgspec.Struct, gc=False, omit_defaults=True):
    """An image that is mounted as a volume."""

    reference: str | None = None


class WireVolume(msgspec.Struct, gc=False, rename="camel", omit_defaults=True):
    """A volume as it is written: the sources that kube-scheduler looks at."""

    image: WireImageSource | None = None
    persistent_volume_claim: WirePresent | None = None
    ephemeral: WirePresent | None = None
    aws_elastic_block_store: WirePresent | None = None
    azure_disk: WirePresent | None = None
    cinder: WirePresent | None = None
    gce_persistent_disk: WirePresent | None = None
    iscsi: WirePresent | None = None
    portworx_volume: WirePresent | None = None
    rbd: WirePresent | None = None
    vsphere_volume: WirePresent | None = None


_PLAIN = WireVolume()


def without_plain(volumes: list[WireVolume]) -> list[WireVolume] | None:
    """Return the volumes that could matter for placing, None where there is none."""
    return [volume for volume in volumes if volume != _PLAIN] or None


def claims_volumes(volumes: list[WireVolume]) -> bool:
    """Say whether any volume is one that must be bound, and so decides where the pod may go."""
    return any(volume.persistent_volume_claim or volume.ephemeral for volume in volumes)


def attaches_disks(volumes: list[WireVolume]) -> bool:
    """Say whether any volume is a disk of which a node takes only so many, or only one pod at a time."""
    return any(disk is not None for volume in volumes for disk in _disks(volume))


def _disks(volume: WireVolume) -> Iterator[WirePresent | None]:
    yield volume.aws_elastic_block_store
    yield volume.azure_disk
    yield volume.cinder
    yield volume.gce_persistent_disk
    yield volume.iscsi
    yield volume.portworx_volume
    yield volume.rbd
    yield volume.vsphere_volume
