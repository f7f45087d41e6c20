"""How kernels are compiled: once per installation, kept on disk, and anew when any part of a kernel changes.

A *unit* is compiled and kept by itself. Other units call it by its address, which stands in a cell of memory
that is found by name. So none of them holds a copy of it, none is compiled again when it changes, and several
processes can compile several units at once. A unit that is called before it is there is compiled by the call,
or read from disk. All other functions are compiled into the units that call them.

What is kept is found by the bytecode and the constants of a unit and of all that is compiled into it. It is
loaded only where no other account can change it (``model/ownership.py``).
"""

# What is taken of numba here is untyped.
# mypy: disable-error-code="no-untyped-call,untyped-decorator,misc,no-untyped-def"

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any, ClassVar, get_args, get_type_hints

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

from domain.kernels import tables
from domain.kernels.tables import Field, Table, array_type
from domain.model.ownership import close_to_others, fault_of, fault_of_file

# No kernel allocates an array, so none counts references: for dozens of arrays that is most of the work.
_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}


def helper(written: Callable[..., Any]) -> Any:
    """Compile a function into the units that call it: once, whichever integers they hand over."""
    dispatcher: Any = numba.njit(**_OPTIONS)(written)
    typed = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: typed([_widened(each) for each in args], kws)
    return dispatcher


def _widened(kind: Any) -> Any:
    """Return int64 for a literal number and for int32: else each would be compiled by itself."""
    kind = types.unliteral(kind)
    return types.int64 if kind == types.int32 else kind


# Sums may be added in any order, so that several numbers are added at once.
reordered = numba.njit(**_OPTIONS, fastmath={"reassoc", "nsz", "contract"})


def entry(written: Callable[..., Any]) -> Any:
    """Compile a function that is called from Python, by the types of its arguments, and keep it."""
    dispatcher: Any = numba.njit(**_OPTIONS)(written)
    try:
        dispatcher._cache = _Cache(written)
    except _Unsafe as error:
        dispatcher._cache = _NoCache(str(error))
    except RuntimeError:  # no directory to write in
        dispatcher._cache = _NoCache("")
    return dispatcher


class Unit:
    """A function that is compiled and kept by itself, by the types that its annotations name.

    Attributes
    ----------
    py_func : callable
        What was written.
    dispatcher : Dispatcher
        What numba makes of it; tests call it, with what any kernel would give it.
    """

    by_cell: ClassVar[dict[int, Unit]] = {}

    def __init__(self, written: Callable[..., Any]) -> None:
        self.py_func = written
        self.dispatcher: Any = entry(written)
        self.name = f"berth.{written.__module__}.{written.__qualname__}"
        self.__doc__ = written.__doc__
        self._cell = ctypes.c_void_p()  # the address of the compiled function
        llvm.add_symbol(self.name, ctypes.addressof(self._cell))
        self.by_cell[ctypes.addressof(self._cell)] = self
        _register(self)

    @functools.cached_property
    def signature(self) -> Any:
        """The numba signature that the annotations name."""
        hints = get_type_hints(self.py_func, include_extras=True)
        returned = _type_of(hints.pop("return"))
        return returned(*(_type_of(hint) for hint in hints.values()))

    @property
    def is_kept(self) -> bool:
        """Whether the unit is on disk, or in memory: ``prepare`` compiles nothing."""
        if self._cell.value:
            return True
        cache = self.dispatcher._cache
        return isinstance(cache, _Cache) and cache.holds(self.signature, self.dispatcher.targetctx)

    @property
    def kept_in(self) -> str | None:
        """The folder where it is kept, None: nowhere."""
        path: str | None = self.dispatcher._cache.cache_path
        return path

    @property
    def fault(self) -> str:
        """Why nothing is kept, or what is kept is not loaded: another account may change it; "": neither."""
        cache = self.dispatcher._cache
        if isinstance(cache, _Cache):
            return cache.fault(self.signature, self.dispatcher.targetctx)
        return str(cache.fault)

    def prepare(self) -> None:
        """Compile the unit, or read it from disk, so that calls find it."""
        if self._cell.value:
            return
        with global_compiler_lock:
            if self._cell.value:  # by another thread, meanwhile
                return
            signature = self.signature
            self.dispatcher.compile(signature)
            self.dispatcher.disable_compile()  # a call with other types raises
            compiled = self.dispatcher.overloads[signature.args]
            name = compiled.fndesc.llvm_func_name
            self._cell.value = compiled.library.get_pointer_to_function(name)

    def __call__(self, *args: Any) -> Any:
        self.prepare()
        return self.dispatcher(*args)


def unit(written: Callable[..., Any]) -> Any:
    """Make a ``Unit`` of a function. Its annotations name tables, ``int``, ``float``, ``bool`` and arrays."""
    return Unit(written)


def _type_of(hint: Any) -> Any:
    """Return the numba type of an annotation."""
    for extra in get_args(hint):
        if isinstance(extra, Field):
            return array_type(extra)
    if isinstance(hint, type) and issubclass(hint, Table):
        return hint._numba_type_
    known = {
        int: types.int64,
        float: types.float64,
        bool: types.boolean,
        np.uint64: types.uint64,
        type(None): types.none,
    }
    return known[hint]


def _register(called: Unit) -> None:
    """Tell numba the type of a unit's calls, and how they are compiled."""

    class Template(AbstractTemplate):
        key = called

        def generic(self, args: Any, kws: Any) -> Any:
            return called.signature if len(args) == len(called.signature.args) and not kws else None

    infer_global(called, types.Function(Template))

    @lower_builtin(called, types.VarArg(types.Any))
    def call_by_address(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        module, pointer = builder.module, ir.IntType(8).as_pointer()
        cell = module.globals.get(called.name) or ir.GlobalVariable(module, pointer, called.name)
        is_missing = builder.icmp_unsigned("==", builder.load(cell), ir.Constant(pointer, None))
        with builder.if_then(is_missing, likely=False):
            kind = ir.FunctionType(ir.VoidType(), [pointer])
            prepare = module.globals.get(_PREPARE) or ir.Function(module, kind, _PREPARE)
            builder.call(prepare, [builder.bitcast(cell, pointer)])
        kind = context.call_conv.get_function_type(signature.return_type, signature.args)
        address = builder.bitcast(builder.load(cell), kind.as_pointer())
        _, result = context.call_conv.call_function(
            builder, address, signature.return_type, signature.args, args
        )
        return result


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _prepare(cell: int) -> None:
    """Compile the unit that a kernel is about to call: there is no way back into the kernel without it."""
    called, interrupted = Unit.by_cell[cell], False
    while not called._cell.value:
        try:
            called.prepare()
        except KeyboardInterrupt:
            interrupted = True
        except BaseException as error:
            ctypes.pythonapi.Py_FatalError(f"{called.name} does not compile: {error}".encode())
    if interrupted:  # told again, once the kernel has come back
        ctypes.pythonapi.PyErr_SetInterrupt()


_PREPARE = "berth.prepare"
llvm.add_symbol(_PREPARE, ctypes.cast(_prepare, ctypes.c_void_p).value)


# ---------------------------------------------------------------------------------------------- what is kept


class _Unsafe(Exception):
    """Another account can change the folder; the message says how to mend that."""


class _NoCache(NullCache):
    """Keeps nothing; ``fault`` says why, where that can be mended."""

    def __init__(self, fault: str) -> None:
        self.fault = fault


class _Files(IndexDataCacheFile):
    """What is kept of one function for one signature. One that another account may change is as missing."""

    @property
    def fault(self) -> str:
        """What is wrong with the files, "" if nothing is."""
        if found := fault_of_file(Path(self._index_path)):
            return found
        for name in super()._load_index().values():
            if found := fault_of_file(Path(self._cache_path, name)):
                return found
        return ""

    def _load_index(self) -> Any:
        return {} if fault_of_file(Path(self._index_path)) else super()._load_index()

    def _load_data(self, name: str) -> Any:
        if found := fault_of_file(Path(self._cache_path, name)):
            raise OSError(found)
        return super()._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        with super()._open_for_write(filepath) as file:
            close_to_others(file.fileno())
            yield file


class _Cache(FunctionCache):
    """What is kept of a function, in files whose name tells all that was compiled, for what and by what.

    So no build, no processor and no process that ends early leaves under a name what another one compiled.
    """

    def __init__(self, written: Callable[..., Any]) -> None:
        super().__init__(written)
        self._written = written
        folder = Path(self._cache_path)
        if not any(folder.iterdir()):  # just made: with what the process's umask leaves to others
            with contextlib.suppress(OSError):
                close_to_others(folder)
        if found := fault_of(folder):
            raise _Unsafe(found)

    @functools.cached_property
    def _digest(self) -> str:
        return digest_of(self._written)

    def holds(self, signature: Any, target_context: Any) -> bool:
        """Return whether files hold what was compiled for a signature."""
        target_context.refresh()
        files = self._files(signature, target_context.codegen())
        try:
            name = files._load_index().get(self._index_key(signature, target_context.codegen()))
        except Exception:  # it was cut off, as by a loss of power
            return False
        kept = None if name is None else Path(self._cache_path, name)
        return kept is not None and kept.exists() and not fault_of_file(kept)

    def fault(self, signature: Any, target_context: Any) -> str:
        """Return why files that are kept for a signature are not loaded, "" if they are, or are not there."""
        target_context.refresh()
        try:
            return self._files(signature, target_context.codegen()).fault
        except Exception:  # it was cut off
            return ""

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        self._cache_file = self._files(sig, target_context.codegen())
        try:
            return super()._load_overload(sig, target_context)
        except Exception:  # it was cut off: compiled again, it is whole
            with contextlib.suppress(OSError):
                self._cache_file.flush()
            return None

    def _save_overload(self, sig: Any, data: Any) -> None:
        self._cache_file = self._files(sig, data.codegen)
        try:
            super()._save_overload(sig, data)
        except OSError as error:
            warnings.warn(f"a compiled kernel cannot be kept in {self._cache_path}: {error}", stacklevel=2)

    def _files(self, signature: Any, codegen: Any) -> _Files:
        what = repr((self._digest, str(signature), codegen.magic_tuple(), numba.__version__))
        stamp = hashlib.blake2b(what.encode(), digest_size=8).hexdigest()
        name = f"{self._written.__module__}.{self._written.__qualname__}-{stamp}"
        return _Files(self._cache_path, name, stamp)


def digest_of(written: Callable[..., Any]) -> str:
    """Return a hash of what is compiled into a function: bytecode, constants, and calls of other units."""
    found: list[object] = [_options(_OPTIONS), _HOW]
    seen: set[object] = set()
    todo: list[Any] = [written]
    while todo:
        each = todo.pop()
        if each in seen:
            continue
        seen.add(each)
        found.append((each.__module__, each.__qualname__, each.__defaults__, *_parts(each.__code__)))
        for name in sorted(_names(each.__code__)):
            value = each.__globals__.get(name)
            if isinstance(value, Unit):
                found.append((value.name, str(value.signature)))
            elif isinstance(value, Dispatcher):
                found.append((name, _options(value.targetoptions)))
                todo.append(value.py_func)
            elif isinstance(value, FunctionType):
                todo.append(value)
            elif isinstance(value, int | float | str | tuple | np.generic):
                found.append((name, repr(value)))
            elif isinstance(value, type):
                found.append((name, getattr(value, "_fields", None)))
            elif value is not None and not isinstance(value, ModuleType):
                raise TypeError(f"{each.__qualname__} reads {name}: kernels read numbers, not {type(value)}")
    return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()


def _options(options: dict[str, Any]) -> str:
    return repr(sorted((name, sorted(v) if isinstance(v, set) else v) for name, v in options.items()))


def _names(code: CodeType) -> set[str]:
    inner = [_names(each) for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*inner)


def _parts(code: CodeType) -> tuple[object, ...]:
    constants = code.co_consts
    if constants and isinstance(constants[0], str):  # what is documented does not matter
        constants = constants[1:]
    inner = [_parts(each) if isinstance(each, CodeType) else each for each in constants]
    return (code.co_code, code.co_names, code.co_varnames, inner)


def _written_in(module: ModuleType) -> list[object]:
    """Return the bytecode of all functions of a module, and of its classes."""
    found: list[object] = []
    for owner in (module, *(each for each in vars(module).values() if isinstance(each, type))):
        for name, value in sorted(vars(owner).items()):
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                found.append((name, _parts(value.__code__)))
    return found


_HOW = repr([_written_in(tables), _written_in(sys.modules[__name__])])
"""How kernels are made: a mend of that must not load what was made before."""


# ------------------------------------------------------------------------------------------------ progress


class Compilations(event.Listener):
    """Tells, while this is entered, which kernel this process begins to compile, as it is not on disk."""

    def __init__(self, begun: Callable[[str], None]) -> None:
        self._begun = begun
        self._depth = 0

    def __enter__(self) -> Compilations:
        event.register("numba:compile", self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        event.unregister("numba:compile", self)

    def on_start(self, event: Any) -> None:
        """See ``numba.core.event.Listener``."""
        if self._depth == 0:
            self._begun(event.data["dispatcher"].py_func.__name__)
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """See ``numba.core.event.Listener``."""
        self._depth -= 1
