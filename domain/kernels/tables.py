"""Tables: named arrays that kernels get by one address, so that a call costs the same for one array or sixty.

numba hands a tuple of arrays over as eight numbers for each of them. To compile functions with hundreds of
arguments takes minutes, and each call copies all of them. A table is a record of addresses and lengths
instead, made once by Python, which a kernel reads where it uses an array. The record does not change while a
kernel runs. The compiler is told so, and reads each entry once.
"""

# What is taken of numba here is untyped.
# mypy: disable-error-code="no-untyped-call,untyped-decorator,misc,override"

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import NativeValue, models, register_model, typeof_impl, unbox
from numba.np.numpy_support import from_dtype

_Table = TypeVar("_Table", bound="Table")


class Field:
    """An array of a table: its dtype, and for each axis its length, or what it stands for."""

    def __init__(self, dtype: np.dtype[Any], axes: tuple[int | str, ...]) -> None:
        self.dtype = dtype
        self.axes = axes
        self.fixed = [i for i, axis in enumerate(axes) if not isinstance(axis, str)]

    def allocate(self, make: Callable[..., np.ndarray], lengths: Mapping[str, int]) -> np.ndarray:
        """Return an array by ``np.zeros`` or ``np.empty``, given the lengths of the axes that have names."""
        return make(
            [lengths[axis] if isinstance(axis, str) else axis for axis in self.axes], dtype=self.dtype
        )

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.axes))}]"


def array(dtype: Any, *axes: int | str) -> Any:
    """Declare an array of a table, with a length for each axis, or a name where Python may choose it."""
    return Field(np.dtype(dtype), axes)


def table(kind: type[_Table]) -> _Table:
    """Declare a table in a table."""
    return cast(_Table, kind)


Flags = Annotated[np.ndarray, array(np.uint8, "n")]
Reals = Annotated[np.ndarray, array(np.float64, "n")]
Totals = Annotated[np.ndarray, array(np.int64, "n")]
"""Arrays of a block of rows, for annotations."""

Amounts = Annotated[np.ndarray, array(np.int64, "R", "N")]
Measured = Annotated[np.ndarray, array(np.float64, "K", "N")]
PartColumns = Annotated[np.ndarray, array(np.int32, "P")]
"""What resource terms read."""

Codes = Annotated[np.ndarray, array(np.int16, "n")]
Ints = Annotated[np.ndarray, array(np.int32, "n")]
IntLists = Annotated[np.ndarray, array(np.int32, "n", "m")]
Rows = Annotated[np.ndarray, array(np.int64, "n")]
RowLists = Annotated[np.ndarray, array(np.int64, "n", "m")]
Salt = np.uint64
"""What kernels get from Python besides tables."""


class TableType(types.Type):
    """The numba type of a table: each field's type, place in the record, and axes."""

    def __init__(self, name: str, fields: dict[str, tuple[Any, int, tuple[int | str, ...]]]) -> None:
        digest = hashlib.blake2b(repr(fields).encode(), digest_size=4).hexdigest()
        self.fields = fields
        super().__init__(name=f"{name}_{digest}")


class Table:
    """A base class. Its subclasses declare arrays (``array``) and other tables (``table``), in order.

    Arrays are C-contiguous. Another dtype or other axes than declared raise ``TypeError``.

    Attributes
    ----------
    address : int
        Where the record of addresses stands.
    """

    address: int
    _numba_type_: TableType
    _entries: dict[str, Field | type[Table]]

    def __init_subclass__(cls) -> None:
        fields: dict[str, tuple[Any, int, tuple[int | str, ...]]] = {}
        cls._entries = {}
        at = 0
        for name, value in list(vars(cls).items()):
            if isinstance(value, Field):
                fields[name] = array_type(value), at, value.axes
                at += 1 + len(value.axes)
            elif isinstance(value, type) and issubclass(value, Table):
                fields[name] = value._numba_type_, at, ()
                at += 1
            else:
                continue
            cls._entries[name] = value
        cls._numba_type_ = TableType(cls.__name__, fields)

    def __init__(self, *values: Any, **named: Any) -> None:
        named.update(zip(self._entries, values, strict=False))
        if named.keys() != self._entries.keys() or len(values) > len(self._entries):
            raise TypeError(f"{type(self).__name__}: {sorted(named.keys() ^ self._entries.keys())}")
        record: list[int] = []
        for name, entry in self._entries.items():
            value = named[name]
            if isinstance(entry, Field):
                seen = value.__array_interface__
                shape, axes = seen["shape"], entry.axes
                is_like = value.dtype == entry.dtype and len(shape) == len(axes) and seen["strides"] is None
                if not is_like or any(shape[i] != axes[i] for i in entry.fixed):
                    found = f"{value.dtype}{list(shape)}"
                    raise TypeError(f"{type(self).__name__}.{name} is a contiguous {entry}, not {found}")
                record.append(seen["data"][0])
                record.extend(shape)
            else:
                record.append(value.address)
        kept = np.array(record, dtype=np.int64)  # kernels read it
        self.__dict__.update(named, _record=kept, address=kept.__array_interface__["data"][0])

    def __setattr__(self, name: str, value: Any) -> None:
        raise TypeError(f"{type(self).__name__} is not changed, but replaced: kernels know the old {name}")

    @classmethod
    def allocate(
        cls, make: Callable[..., np.ndarray], lengths: Mapping[str, int], **given: np.ndarray | Table
    ) -> Self:
        """Return a table with new arrays, as ``Field.allocate`` makes them, but for those that are given."""
        entries = ((name, entry) for name, entry in cls._entries.items() if name not in given)
        arrays = {name: entry.allocate(make, lengths) for name, entry in entries if isinstance(entry, Field)}
        return cls(**arrays, **given)

    @classmethod
    def fields_by(cls, axis: str) -> dict[str, Field]:
        """Return the arrays whose first axis has a name."""
        arrays = {name: entry for name, entry in cls._entries.items() if isinstance(entry, Field)}
        return {name: field for name, field in arrays.items() if field.axes[0] == axis}

    def replace(self, **changed: Any) -> Self:
        """Return a table with some other arrays."""
        return type(self)(**{**{name: getattr(self, name) for name in self._entries}, **changed})


def array_type(field: Field) -> Any:
    """Return the numba type of an array."""
    return types.Array(from_dtype(field.dtype), len(field.axes), "C")


@typeof_impl.register(Table)
def _typeof_table(value: Table, _: Any) -> TableType:
    return value._numba_type_


@register_model(TableType)
class _TableModel(models.OpaqueModel):
    """The address of the record."""


@unbox(TableType)
def _unbox_table(_: TableType, value: Any, c: Any) -> Any:
    number = c.pyapi.object_getattr_string(value, "address")
    address = c.pyapi.long_as_voidptr(number)
    c.pyapi.decref(number)
    return NativeValue(address, is_error=c.pyapi.c_api_error())


@infer_getattr
class _TableAttributes(AttributeTemplate):
    key = TableType

    def generic_resolve(self, table: TableType, name: str) -> Any:
        return table.fields[name][0] if name in table.fields else None


@lower_getattr_generic(TableType)
def _read_field(context: Any, builder: Any, table: TableType, address: Any, name: str) -> Any:
    kind, at, axes = table.fields[name]
    word = ir.IntType(64)
    words = builder.bitcast(address, word.as_pointer())

    def read(place: int) -> Any:
        value = builder.load(builder.gep(words, [ir.Constant(word, place)]))
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    data = read(at)
    if isinstance(kind, TableType):
        return builder.inttoptr(data, ir.IntType(8).as_pointer())
    shape = [
        read(place) if isinstance(axis, str) else ir.Constant(word, axis)
        for place, axis in enumerate(axes, at + 1)
    ]
    view = context.make_array(kind)(context, builder)
    item_bytes = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    stride, items = ir.Constant(word, item_bytes), ir.Constant(word, 1)
    strides: list[Any] = []
    for length in reversed(shape):
        strides.insert(0, stride)
        stride = builder.mul(stride, length, flags=("nsw",))
        items = builder.mul(items, length, flags=("nsw",))
    view.data = builder.inttoptr(data, view.data.type)
    view.shape = _pack(builder, shape)
    view.strides = _pack(builder, strides)
    view.itemsize = ir.Constant(word, item_bytes)
    view.nitems = items
    view.meminfo = ir.Constant(view.meminfo.type, None)
    view.parent = ir.Constant(view.parent.type, None)
    return view._getvalue()


def _pack(builder: Any, values: list[Any]) -> Any:
    packed = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        packed = builder.insert_value(packed, value, i)
    return packed
