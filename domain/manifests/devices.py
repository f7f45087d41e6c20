"""Read what a pod says of devices: what it asks for, and which ones it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from domain.model.devices import DEVICE_ONE, DEVICES_KEY, GPU, GPU_MILLI, asked
from domain.model.errors import FieldError
from domain.model.limits import devices_per_node_max
from domain.model.pods import PodTemplate
from domain.model.validation import key_path, shown

_INDICES = re.compile("[0-9]{1,2}(,[0-9]{1,2})*")


def check_asked(requests: Mapping[str, int], path: str) -> None:
    """Raise if a pod asks for something else than whole devices or a share of one."""
    milli, whole = requests.get(GPU_MILLI), requests.get(GPU, 0)
    if milli is None or milli == whole * DEVICE_ONE or (milli < DEVICE_ONE and not whole):
        return
    raise FieldError(
        path,
        f"the sum of the requests of {GPU_MILLI} is {milli}; allowed is a share of one device, below "
        f"{DEVICE_ONE}, and none beside whole devices ({GPU})",
    )


def read_devices(annotations: Mapping[str, Any], template: PodTemplate, path: str) -> tuple[int, ...]:
    """Return the devices that the producer says a bound pod has; none where it says nothing."""
    text = annotations.get(DEVICES_KEY)
    if text is None:
        return ()
    at = key_path(f"{path}.annotations", DEVICES_KEY)
    indices = [int(each) for each in text.split(",")] if _is_indices(text) else [devices_per_node_max]
    if len(set(indices)) < len(indices) or max(indices) >= devices_per_node_max:
        raise FieldError(
            at, f"{shown(text)} names no devices; allowed are indices below {devices_per_node_max}, as 0,3"
        )
    if len(indices) != asked(template.requests).number:
        count = asked(template.requests).number
        raise FieldError(at, f"names {len(indices)} devices; the pod asks for {count or 'none'}")
    return tuple(sorted(indices))


def _is_indices(text: object) -> bool:
    return isinstance(text, str) and _INDICES.fullmatch(text) is not None
