"""Who asks: the holder of a key, and what the key allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request

from services.codec.seal import ANONYMOUS, of_key
from services.ports.store import Grant

MAY: Mapping[str, frozenset[str]] = {
    "write": frozenset({"producer", "operator", "admin"}),
    "read": frozenset({"auditor", "operator", "admin"}),
    "audit": frozenset({"auditor", "admin"}),
    "manage": frozenset({"admin"}),
}
"""The roles that may write events, read, see who asked for what, and manage keys."""


class Caller(NamedTuple):
    """The holder of a key, or (without a name) somebody whom this API asks for none.

    ``sent_by`` goes beside the events that he sends (``services/codec/seal.py``).
    """

    name: str | None
    roles: frozenset[str]
    namespaces: frozenset[str] | None  # None: all
    kinds: frozenset[str] | None  # None: those of the roles
    grant: Grant | None
    sent_by: str

    @staticmethod
    def of(grant: Grant) -> Caller:
        """Return the caller who showed a key with this grant."""
        namespaces = None if grant.namespaces is None else frozenset(grant.namespaces)
        kinds = None if grant.kinds is None else frozenset(grant.kinds)
        return Caller(grant.name, frozenset(grant.roles), namespaces, kinds, grant, of_key(grant.name))

    @staticmethod
    def unnamed(sent_by: str = ANONYMOUS) -> Caller:
        """Return the caller of an API that asks for no key: he may do everything."""
        return Caller(None, frozenset({"admin"}), None, None, None, sent_by)


def caller_of(request: Request) -> Caller:
    """Return who asks; the gate has let him in."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller
