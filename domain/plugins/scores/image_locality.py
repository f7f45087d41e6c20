"""ImageLocality: prefer nodes that have the pod's images already."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import numpy as np

from domain.model.pods import PodTemplate
from domain.plugins.base import StaticScore
from domain.plugins.view import NodeView

_MIB = 1 << 20
_LOW_BYTES = 23 * _MIB
_HIGH_BYTES_PER_CONTAINER = 1000 * _MIB


class ImageLocality(StaticScore):
    """Rate how much of the pod's images a node has. An image counts less the fewer nodes have it.

    Formula: ``sum = sum(size * nodes that have it / all nodes)`` over the pod's containers, init containers
    and image volumes whose image the node has; ``100 * (clip(sum, low, high) - low) / (high - low)`` with low
    23 MiB and high 1000 MiB per container. An image without a tag is ``:latest``. The spread keeps a popular
    node from being preferred for ever.
    Source: kube-scheduler plugin ImageLocality.
    """

    name: ClassVar[str] = "ImageLocality"
    reads: ClassVar[frozenset[str]] = frozenset({"images", "volume_images"})
    reads_images: ClassVar[bool] = True

    def raw(self, template: PodTemplate, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Score``."""
        specs, nodes_having = view.table.specs, view.table.image_nodes
        images = [_tagged(image) for image in (*template.images, *template.volume_images)]
        total = np.zeros(len(rows))
        if not any(image in nodes_having for image in images):
            return total
        wanted = Counter(images)
        for i, row in enumerate(rows.tolist()):
            sizes = {
                name: image.size_bytes
                for image in specs[row].images
                for name in image.names
                if name in wanted
            }
            total[i] = sum(
                wanted[name] * size * nodes_having[name] / len(specs) for name, size in sizes.items()
            )
        high = _HIGH_BYTES_PER_CONTAINER * max(1, len(template.images))
        return (np.clip(total, _LOW_BYTES, high) - _LOW_BYTES) * 100.0 / (high - _LOW_BYTES)


def _tagged(image: str) -> str:
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"
