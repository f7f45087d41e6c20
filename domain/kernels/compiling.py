"""How kernels are compiled: once per installation, kept on disk, and anew when any part of a kernel changes.

numba keeps machine code beside the file of the outermost function and looks at that file alone. So an entry
names the modules whose helpers are compiled into it, and their bytecode and constants become part of the key.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any

import numba
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.dispatcher import Dispatcher

# No kernel allocates an array, so none counts references: for dozens of arrays that is most of the work.
_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": False, "error_model": "numpy", "_nrt": False}

# Helpers are inlined: to hand over a tuple of two dozen arrays costs more than the work itself.
helper = numba.njit(inline="always", **_OPTIONS)
function = numba.njit(**_OPTIONS)

# Sums may be added in any order, so that several numbers are added at once.
reordered = numba.njit(**_OPTIONS, fastmath={"reassoc", "nsz", "contract"})

# Only kernels call these. A wrapper that unpacks all groups from Python would take as long to compile.
_BARE: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = numba.njit(**_BARE)


def entry(*modules: ModuleType) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that is called from Python. ``modules`` are those whose helpers it uses."""
    key = (_digest(modules), repr(_OPTIONS))

    class Cache(FunctionCache):
        def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
            return (*super()._index_key(sig, codegen), *key)  # type: ignore[no-untyped-call]

    def compiled(written: Callable[..., Any]) -> Any:
        dispatcher: Any = numba.njit(**_OPTIONS)(written)
        with contextlib.suppress(RuntimeError):  # no directory to write in; ``Compilations.kept_in`` tells
            dispatcher._cache = Cache(written)  # type: ignore[no-untyped-call]
        return dispatcher

    return compiled


class Compilations(event.Listener):
    """What numba compiles while this is entered; what it finds on disk is not compiled.

    ``expected`` is how many kernels there are, most of which one call needs; ``done`` how many of them are
    compiled, ``current`` which one is being compiled, and ``kept_in`` where, if anywhere.
    """

    def __init__(self) -> None:
        self.kept_in: str | None = None
        self._kernels = {
            each.py_func.__name__
            for name, module in tuple(sys.modules.items())
            if name.startswith(f"{__package__}.")
            for each in vars(module).values()
            if isinstance(each, Dispatcher) and each.targetoptions.get("inline") != "always"
        }
        self._begun: list[str] = []
        self._done: set[str] = set()

    def __enter__(self) -> Compilations:
        event.register("numba:compile", self)  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        event.unregister("numba:compile", self)  # type: ignore[no-untyped-call]

    @property
    def expected(self) -> int:
        return len(self._kernels)

    @property
    def done(self) -> int:
        return len(self._done)

    @property
    def current(self) -> str:
        return self._begun[-1] if self._begun else ""

    def on_start(self, event: Any) -> None:
        """See ``numba.core.event.Listener``."""
        dispatcher = event.data["dispatcher"]
        self._begun.append(dispatcher.py_func.__name__)
        self.kept_in = dispatcher._cache.cache_path or self.kept_in

    def on_end(self, event: Any) -> None:
        """See ``numba.core.event.Listener``."""
        name = self._begun.pop()
        if name in self._kernels:
            self._done.add(name)


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
