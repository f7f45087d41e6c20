"""The contract of a plugin class, which is checked before it enters the registry."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

from domain.model.pods import PodTemplate
from domain.plugins.base import Plugin

P = TypeVar("P", bound=Plugin)

_FIELDS = tuple(field.name for field in msgspec.structs.fields(PodTemplate))


def declared(plugin: type[P]) -> type[P]:
    """Return a plugin class that keeps the contract: a name, what it reads, and every method implemented.

    Raises
    ------
    TypeError
        A class breaks the contract. The message names the class, what is missing and what is allowed.
    """
    where = f"{plugin.__module__}.{plugin.__qualname__}"
    if inspect.isabstract(plugin):
        raise TypeError(f"{where} does not implement {', '.join(sorted(plugin.__abstractmethods__))}")
    if not isinstance(getattr(plugin, "name", None), str):
        raise TypeError(f"{where} does not declare `name`: what profiles call it")
    if not isinstance(getattr(plugin, "reads", None), frozenset):
        raise TypeError(
            f"{where} does not declare `reads`: a frozenset of the fields of PodTemplate on which its answer "
            "depends, empty where it depends on none"
        )
    unknown = sorted(plugin.reads - set(_FIELDS))
    if unknown:
        raise TypeError(f"{where} reads {unknown[0]!r}; allowed are {', '.join(_FIELDS)}")
    return plugin


def registered(*plugins: type[Plugin]) -> Mapping[str, type[Plugin]]:
    """Return plugins by name, in order.

    Raises
    ------
    TypeError
        A class breaks the contract, or has the name of another one.
    """
    found: dict[str, type[Plugin]] = {}
    for plugin in map(declared, plugins):
        if plugin.name in found:
            raise TypeError(f"{plugin.__module__}.{plugin.__qualname__}: the name {plugin.name} is taken")
        found[plugin.name] = plugin
    return MappingProxyType(found)
