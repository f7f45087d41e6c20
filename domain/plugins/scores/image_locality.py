"""ImageLocality: prefer nodes that have the pod's images already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.arguments import Arguments
from domain.plugins.base import StaticScore
from domain.plugins.view import NodeView

IMAGE_FIELDS = frozenset({"images", "volume_images"})
_MIB = 1 << 20
_LOW_BYTES = 23 * _MIB
_HIGH_BYTES_PER_CONTAINER = 1000 * _MIB


class ImageLocality(StaticScore):
    """Rate how much of the pod's images a node has. An image counts less the fewer nodes have it.

    Formula: ``sum = sum(size * nodes that have it / all nodes)`` over the pod's containers, init containers
    and image volumes whose image the node has; ``100 * (clip(sum, low, high) - low) / (high - low)`` with low
    23 MiB and high 1000 MiB per container. An image without a tag is ``:latest``. The spread keeps a popular
    node from being preferred for ever.

    Arguments: ``arithmetic`` (``real``, the default, or ``integer``: each image's bytes and the score are cut
    to whole numbers, as upstream does).
    Source: kube-scheduler plugin ImageLocality.
    """

    name: ClassVar[str] = "ImageLocality"
    reads: ClassVar[frozenset[str]] = IMAGE_FIELDS
    reads_images: ClassVar[bool] = True

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        self._cuts = Arguments(args, path, ("arithmetic",)).whole_numbers()

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        specs, nodes_having = view.table.specs, view.table.image_nodes
        wanted = Counter(_images_of(template))
        total = np.zeros(len(rows))
        if wanted.keys().isdisjoint(nodes_having):
            return total
        for i, row in enumerate(rows.tolist()):
            sizes = {
                name: image.size_bytes
                for image in specs[row].images
                for name in image.names
                if name in wanted
            }
            counted = [
                (wanted[name], size * (nodes_having[name] / len(specs))) for name, size in sizes.items()
            ]
            total[i] = sum(times * (int(size) if self._cuts else size) for times, size in counted)
        high = _HIGH_BYTES_PER_CONTAINER * max(1, len(template.images))
        score: np.ndarray = (np.clip(total, _LOW_BYTES, high) - _LOW_BYTES) * 100.0 / (high - _LOW_BYTES)
        return np.floor(score) if self._cuts else score


def known_images(template: PodTemplate, view: NodeView) -> tuple[int, tuple[str, ...]] | None:
    """Return all that counts of a template's images; None where no node has any of them."""
    nodes_having = view.table.image_nodes
    if not nodes_having:
        return None
    images = _images_of(template)
    return None if nodes_having.keys().isdisjoint(images) else (len(template.images), images)


def _images_of(template: PodTemplate) -> tuple[str, ...]:
    return tuple(_tagged(image) for image in (*template.images, *template.volume_images))


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
