"""Who asks: the holder of a key, and what the key allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request

from domain.model.config import CO_LOCATION_POLICY
from services.codec.seal import ANONYMOUS, of_key
from services.ports.store import Grant

AGENT = "agent"
"""The role of the process on a node that measures it: it is of one node, and a key has no other beside it."""

MAY: Mapping[str, frozenset[str]] = {
    "write": frozenset({"producer", "operator", "admin", "agent"}),
    "read": frozenset({"auditor", "operator", "admin", "agent"}),
    "export": frozenset({"auditor", "operator", "admin"}),
    "audit": frozenset({"auditor", "admin"}),
    "manage": frozenset({"admin"}),
}
"""The roles that may write events, read, export, see who asked for what, and manage keys.

What an agent may write and read is of its own node alone: see ``asks_of_own_node``.
"""


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
    node: str | None = None  # of an agent, which asks and sends of this node alone

    @staticmethod
    def of(grant: Grant) -> Caller:
        """Return the caller who showed a key with this grant."""
        namespaces = None if grant.namespaces is None else frozenset(grant.namespaces)
        kinds = None if grant.kinds is None else frozenset(grant.kinds)
        roles = frozenset(grant.roles)
        node = (grant.node or "") if AGENT in roles else None  # "": a key from elsewhere, good for nothing
        return Caller(grant.name, roles, namespaces, kinds, grant, of_key(grant.name), node)

    @staticmethod
    def unnamed(sent_by: str = ANONYMOUS) -> Caller:
        """Return the caller of an API that asks for no key: he may do everything."""
        return Caller(None, frozenset({"admin"}), None, None, None, sent_by)


def asks_of_own_node(request: Request, node: str) -> bool:
    """Return whether a request is one of those that the agent of a node has to make."""
    asked = dict(request.query_params)
    match request.url.path:
        case "/v1/events":
            return request.method == "POST"  # what is in it is checked event by event
        case "/v1/pods":
            return asked.get("node") == node
        case "/v1/config":
            return asked.get("kind") == CO_LOCATION_POLICY
        case path:
            return path == f"/v1/nodes/{node}"


def caller_of(request: Request) -> Caller:
    """Return who asks; the gate has let him in."""
    caller = request.state.caller
    assert isinstance(caller, Caller)
    return caller
