"""FGD: prefer nodes where the pod leaves least of the devices unusable for the pods that are expected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from domain.kernels.arrays import DEVICES
from domain.kernels.device_arrays import LEAST_FRAGMENTATION
from domain.model.devices import DEVICE_ONE
from domain.model.errors import FieldError
from domain.model.pods import PodTemplate
from domain.model.quantities import to_milli, to_units
from domain.plugins.arguments import Arguments
from domain.plugins.base import ResourceScore, Term
from domain.plugins.device_terms import (
    ANY_MODEL,
    DEVICES_LARGEST,
    OTHER_MODEL,
    OWN_NUMBERS,
    PARTS_COUNT,
    SHAPES_MAX,
    device_numbers,
    device_parts,
    mix_numbers,
)
from domain.plugins.view import NodeView
from domain.state.resources import ResourceIndex

MODEL_LABEL = "nvidia.com/gpu.product"
_WEIGHT_MAX = 1_000_000
_DEFAULT = (
    {"cpu": "3", "gpuMilli": 810, "weight": 3},
    {"cpu": "11300m", "gpus": 1, "weight": 5},
    {"cpu": "12", "gpuMilli": 470, "weight": 2},
    {"cpu": "12500m", "weight": 1},
)


class FGD(ResourceScore):
    """Rate a node by how much less of its devices the pods that are expected cannot use, with the pod on it.

    Formula: *unusable* are, on average over the mix, the free thousandths of the node's devices that a pod of
    a shape cannot use: all of them where the node has no room for its cpu, memory or devices, or the shape
    asks for none or for another model; else those of devices with too little free. With ``gain`` the decrease
    of unusable devices by the pod, the score is the floor of ``100 / (1 + exp(-gain))``, 50 for none; with
    ``arithmetic: real`` it is ``50 + 50 * gain / largest``, not cut.

    Arguments: ``mix`` (a list of up to 128 shapes, each with ``cpu``, ``memory``, ``gpus`` or ``gpuMilli``,
    ``models`` (values of the label nvidia.com/gpu.product; default any) and ``weight`` (default 1); default
    four shapes of a GPU-sharing cluster), ``arithmetic`` (``integer``, the default, or ``real``), ``largest``
    (how many devices; default 8).
    Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
    Gradient Descent", USENIX ATC 2023.
    """

    name: ClassVar[str] = "FGD"
    reads: ClassVar[frozenset[str]] = frozenset({"requests"})
    measured_count = 1
    parts_max = PARTS_COUNT

    def __init__(self, args: Mapping[str, Any], path: str) -> None:
        given = Arguments(args, path, ("mix", "arithmetic", "largest"))
        self._whole = given.choice("arithmetic", ("integer", "real")) == "integer"
        self._largest = given.number("largest", DEVICES_LARGEST, 1.0, 1024.0)
        shapes = given.items("mix") or [(f"{path}.mix[{i}]", each) for i, each in enumerate(_DEFAULT)]
        if len(shapes) > SHAPES_MAX:
            raise FieldError(given.at("mix"), f"has {len(shapes)} shapes; allowed are {SHAPES_MAX}")
        self._models: dict[str, int] = {}
        self._mix = mix_numbers([self._shape(item, at) for at, item in shapes])
        self.numbers_max = OWN_NUMBERS + len(self._mix)

    def _shape(self, item: Any, path: str) -> tuple[int, ...]:
        fields = Arguments(item, path, ("cpu", "memory", "gpus", "gpuMilli", "models", "weight"))
        if "gpus" in fields and "gpuMilli" in fields:
            raise FieldError(fields.at("gpuMilli"), "gpus are there, too; a shape asks for one of both")
        milli = _whole(fields, "gpuMilli", DEVICE_ONE, 1, DEVICE_ONE - 1)
        number = 1 if "gpuMilli" in fields else _whole(fields, "gpus", 0, 0, 1024)
        cpu, memory = _amount(fields, "cpu", to_milli), _amount(fields, "memory", to_units)
        names = sorted(fields.names("models"))
        models = sum(1 << self._bit(name, fields.at("models")) for name in names) if names else ANY_MODEL
        return cpu, memory, number, milli, models, _whole(fields, "weight", 1, 1, _WEIGHT_MAX)

    def _bit(self, name: str, path: str) -> int:
        bit = self._models.setdefault(name, len(self._models))
        if bit >= OTHER_MODEL:
            raise FieldError(path, f"the mix names more than {OTHER_MODEL} models")
        return bit

    def term(self, template: PodTemplate, resources: ResourceIndex) -> Term:
        """See ``ResourceScore``."""
        numbers = device_numbers(template, whole=self._whole, devices_max=self._largest)
        return Term(DEVICES + LEAST_FRAGMENTATION, device_parts(template, resources), (*numbers, *self._mix))

    def measured(self, view: NodeView, rows: np.ndarray) -> np.ndarray:
        """See ``Plugin``: the bit of the node's model."""
        specs = view.table.specs
        found = [self._models.get(specs[row].labels.get(MODEL_LABEL, ""), OTHER_MODEL) for row in rows]
        return np.array([found], dtype=np.float64)


def _amount(fields: Arguments, key: str, read: Callable[[str], int]) -> int:
    value = fields.raw(key)
    try:
        amount = 0 if value is None else read(str(value))
    except FieldError as error:
        raise FieldError(fields.at(key), error.message) from None
    if amount < 0:
        raise FieldError(fields.at(key), f"{value} is negative; allowed is 0 or more")
    return amount


def _whole(fields: Arguments, key: str, default: int, low: int, high: int) -> int:
    value = fields.number(key, default, low, high)
    if value != int(value):
        raise FieldError(fields.at(key), f"expected a whole number, got {value:g}")
    return int(value)
