"""Numbers that two threads read and write at once: who takes which share, and what is there to be used."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils, types
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array

from domain.kernels.compiling import helper

_ALIGNED = 8


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    view = make_array(array_type)(context, builder, array)  # type: ignore[no-untyped-call]
    return cgutils.get_item_pointer(  # type: ignore[no-untyped-call]
        context, builder, array_type, view, [index]
    )


@intrinsic
def _next(typing: Any, array: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, arguments[0], ir.Constant(ir.IntType(64), 0))
        return builder.atomic_rmw("add", pointer, ir.Constant(ir.IntType(64), 1), "acq_rel")

    return types.int64(array), generate


@intrinsic
def _read(typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, *arguments)
        return builder.load_atomic(pointer, "acquire", _ALIGNED)

    return types.int64(array, types.int64), generate


@intrinsic
def _write(typing: Any, array: Any, index: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, array, *arguments[:2])
        builder.store_atomic(arguments[2], pointer, "release", _ALIGNED)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@helper
def claim(counter):  # type: ignore[no-untyped-def]
    """Return the counter's value (int64[1]), and one more to whoever asks next, in whatever thread."""
    return _next(counter)  # type: ignore[call-arg]


@helper
def peek(array, index):  # type: ignore[no-untyped-def]
    """Read an element (int64) as of now; what its writer wrote before ``publish`` is there, too."""
    return _read(array, index)  # type: ignore[call-arg]


@helper
def publish(array, index, value):  # type: ignore[no-untyped-def]
    """Write an element (int64) after all that was written before."""
    _write(array, index, value)  # type: ignore[call-arg]
