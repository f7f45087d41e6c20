"""Decides who may use the API: on loopback everybody, else those with a key of the right role."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers

from domain.model.errors import Unavailable
from services.api.allowance import Allowance, Logins
from services.api.caller import MAY, Caller, asks_of_own_node
from services.api.failures import ApiError
from services.api.keys import is_session, key_hash
from services.api.origin import is_proxied
from services.codec.seal import ANONYMOUS, of_user
from services.config import REQUESTS_PER_KEY, local_user
from services.ports.store import Grant, Store
from services.rate_limit import Clock, address_of

_CACHE_SECONDS = 2.0
_GUARDED = ("/v1/", "/metrics")
"""The paths that begin so are not open to all."""


class Gate:
    """Lets requests pass: on loopback without keys all of them, else those with a key of the right role.

    Parameters
    ----------
    store : Store
        Where the keys are.
    keys_required : bool
        Whether a key is needed even when none was ever created.
    local_user : str, optional
        Who asks: a user of this machine who already holds the ledger. No key is ever needed then.
    owner_key : str, optional
        With it the owner of the running instance manages keys (``Instance.owner_key``).
    requests_per_key : int
        Requests at once of a key that does not say how many.
    clock : callable
        Monotonic seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        keys_required: bool,
        local_user: str | None = None,
        owner_key: str | None = None,
        requests_per_key: int = REQUESTS_PER_KEY,
        clock: Clock = time.monotonic,
    ) -> None:
        self.allowance = Allowance(requests_per_key, clock)
        self._logins = Logins(clock)
        self._store = store
        self._required = keys_required
        self._local_user = local_user
        self._owner_hash = None if owner_key is None else key_hash(owner_key)
        self._clock = clock
        self._checked_at = float("-inf")
        self._any_key = False

    def is_known(self, scope: Mapping[str, Any]) -> bool:
        """Return whether a request is counted by who asks, and not by its address: nobody is asked for it.

        What is open to all is counted by address, whoever asks. A key counts once it was found good.
        """
        if self._local_user is not None or not scope["path"].startswith(_GUARDED):
            return self._local_user is not None
        if not self._required and not self._any_key:
            return True
        key = key_of(Headers(raw=scope["headers"]))
        return key is not None and self._logins.is_good(key_hash(key))

    async def _needs_key(self, headers: Headers) -> bool:
        """Return whether there are keys: known for a while where none is shown, else looked up."""
        if self._local_user is not None or self._required:
            return self._local_user is None
        now = self._clock()
        known_seconds = _CACHE_SECONDS if key_of(headers) is None else 0.0
        if not self._any_key and now - self._checked_at > known_seconds:
            try:
                self._any_key = bool(await self._store.callers.keys())
            except Unavailable:
                # Whoever could just now go without a key still can: for metrics, mainly, during an outage.
                if self._checked_at == float("-inf"):
                    raise
            else:
                self._checked_at = now
        return self._any_key

    async def check(self, request: Request, action: str) -> Caller:
        """Return who asks if the request may do this (a key of ``MAY``); else raise ``ApiError``.

        Whoever shows a key is the request's caller from then on, also where he may not do this.
        """
        if action == "manage" and self._is_owner(request.headers):
            return Caller.unnamed(of_user(local_user()))
        if not await self._needs_key(request.headers):
            if is_proxied(request.headers) and self._local_user is None:
                raise ApiError(
                    "forbidden",
                    "a proxy stands before this API, which asks nobody for a key: whoever reaches the proxy "
                    "would be let in; make a key with `berth api-key create`",
                )
            if action == "manage" and self._local_user is None:
                # Who merely reaches this port now would keep a key for the time when keys are asked for.
                raise ApiError("forbidden", "`berth api-key create NAME --role admin` makes the first key")
            return Caller.unnamed(ANONYMOUS if self._local_user is None else of_user(self._local_user))
        key = key_of(request.headers)
        if key is None:
            raise ApiError(
                "unauthorized",
                "this API needs a key: send `Authorization: Bearer <key>`, "
                "or name a file with it in BERTH_API_KEY_FILE for the commands; "
                "`berth api-key create NAME --role auditor` makes one",
            )
        caller = request.state.caller = Caller.of(await self._grant(request, key))
        if not caller.roles & MAY[action]:
            have, needed = " and ".join(sorted(caller.roles)), " or ".join(sorted(MAY[action]))
            raise ApiError("forbidden", f"a key with the role {have} may not {action} here; {needed} may")
        if caller.node is not None and not asks_of_own_node(request, caller.node):
            told = f"the key {caller.name} is of the agent of {caller.node}; it may ask for that node's pods "
            raise ApiError("forbidden", f"{told}(?node={caller.node}), the node itself and the policies")
        return caller

    def _is_owner(self, headers: Headers) -> bool:
        key = key_of(headers)
        if key is None or self._owner_hash is None:
            return False
        return compare_digest(key_hash(key), self._owner_hash)

    async def _grant(self, request: Request, key: str) -> Grant:
        """Look a key or a session up, each time: it may have been revoked just now. That takes 1 ms."""
        address, hashed = address_of(request.client and request.client.host), key_hash(key)
        self._logins.check(address, hashed)
        if is_session(key):
            session = await self._store.callers.session(hashed)
            grant, lost = session and session.grant, "this session has ended, or its key was revoked: sign in"
            request.state.session = session
        else:
            grant, lost = await self._store.callers.grant(hashed), "this key is unknown or was revoked"
        self._logins.note(address, hashed, good=grant is not None)
        if grant is None:
            raise ApiError("unauthorized", lost)
        return grant


def key_of(headers: Headers) -> str | None:
    """Return the key that a request shows."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
