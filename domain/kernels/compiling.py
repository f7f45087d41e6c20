"""How kernels are compiled: once per installation, kept on disk, and anew when any part of a kernel changes.

numba keeps machine code beside the file of the outermost function and looks at that file alone, so an entry
names the modules whose helpers are compiled into it; their bytecode and constants become part of the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
from numba.core.caching import FunctionCache

# No kernel makes an array, so none counts references to one: with dozens at hand, that is most of the work.
_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}

# Helpers are inlined: handed over as an argument, a tuple of two dozen arrays costs more than the work.
helper = numba.njit(inline="always", **_OPTIONS)
function = numba.njit(**_OPTIONS)

# What takes all groups is called by kernels alone: a wrapper that unpacks them would cost as much to compile.
_BARE: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = numba.njit(**_BARE)


def entry(*modules: ModuleType) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that is called from Python; ``modules`` are those whose helpers it uses."""
    key = (_digest(modules), repr(_OPTIONS))

    class Cache(FunctionCache):
        def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
            return (*super()._index_key(sig, codegen), *key)  # type: ignore[no-untyped-call]

    def compiled(written: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(**_OPTIONS)(written)
        dispatcher._cache = Cache(written)  # type: ignore[no-untyped-call]
        return dispatcher

    return compiled


def _digest(modules: tuple[ModuleType, ...]) -> str:
    """Return a hash of all functions and plain constants of some modules."""
    found = []
    for module in modules:
        for name, value in sorted(vars(module).items()):
            written = getattr(value, "py_func", value)
            if isinstance(written, FunctionType):
                found.append((module.__name__, name, *_parts(written.__code__)))
            elif isinstance(value, int | float | str) and not name.startswith("__"):
                found.append((module.__name__, name, value))
    return hashlib.blake2b(repr(found).encode(), digest_size=16).hexdigest()


def _parts(code: CodeType) -> tuple[object, ...]:
    inner = [_parts(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    return (code.co_code, code.co_names, code.co_varnames, inner)
