"""API keys: their text, the hash that the ledger keeps, and what a key may be granted."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence

from domain.model.config import PRIORITY_CLASS
from domain.model.errors import FieldError
from domain.model.priorities import SYSTEM_PREFIX, USER_PRIORITY_MAX
from domain.model.validation import (
    check_choice,
    check_count,
    check_dns_label,
    check_range,
    check_subdomain,
    shown,
)
from services.api.caller import AGENT
from services.api.scope import (
    ANTI_AFFINITY,
    BINDING,
    GRANTS,
    OF_CLUSTER,
    PRIORITY,
    SENT_BY,
    priority_max,
    sent_by,
)
from services.ports.store import Grant

KEY_NAME_LENGTH_MAX = 63
NAMESPACES_PER_KEY_MAX = 100
PRIORITY_CLASSES_PER_KEY_MAX = 100
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._@:+-]{{0,{KEY_NAME_LENGTH_MAX - 1}}}")
_SESSION = "berth_session_"
_INT32_MAX = 2**31 - 1
_RATES = {"events_per_second": _INT32_MAX, "bytes_per_second": 2**62, "requests_at_once": _INT32_MAX}


def new_key() -> str:
    """Return a fresh key; it is shown once and only its hash is kept."""
    return f"berth_{secrets.token_urlsafe(32)}"


def new_session() -> str:
    """Return the token of a fresh session, shown as a key is; only its hash is kept."""
    return f"{_SESSION}{secrets.token_urlsafe(32)}"


def is_session(key: str) -> bool:
    """Return whether what is shown as a key is the token of a session."""
    return key.startswith(_SESSION)


def key_hash(key: str) -> bytes:
    """Return the hash of a key, which is all that the ledger keeps."""
    return hashlib.sha256(key.encode()).digest()


def checked_grant(grant: Grant) -> Grant:
    """Return a grant whose parts are valid and do not contradict each other.

    Raises
    ------
    FieldError
        A part is not allowed, or would have no effect; with the name of the part.
    """
    if not _NAME.fullmatch(grant.name):
        allowed = f"1 to {KEY_NAME_LENGTH_MAX} letters, digits and any of ._@:+- after the first"
        raise FieldError("name", f"{shown(grant.name)} is not allowed; allowed are {allowed}")
    if not grant.roles:
        raise FieldError("roles", f"is missing; allowed are {', '.join(SENT_BY)}")
    for role in grant.roles:
        check_choice(role, tuple(SENT_BY), "roles")
    for field in ("namespaces", "kinds", "priority_classes"):
        if (named := getattr(grant, field)) is not None and not named:
            # Whoever fills a list with nothing hardly means everything.
            raise FieldError(field, "names nothing; leave it out for a key that is not limited by it")
    for namespace in grant.namespaces or ():
        check_dns_label(namespace, "namespaces")
    check_count(len(grant.namespaces or ()), NAMESPACES_PER_KEY_MAX, "namespaces_per_key_max", "namespaces")
    for kind in grant.kinds or ():
        check_choice(kind, GRANTS, "kinds")
    for name, most in _RATES.items():
        value = getattr(grant, name)
        if value is not None:
            check_range(value, 1, most, name)
    if grant.node:
        check_subdomain(grant.node, "node")
    _check_priorities(grant)
    _check_sense(grant, frozenset(grant.roles), frozenset(grant.kinds or ()))
    return grant._replace(
        roles=_once(grant.roles) or (),
        namespaces=_once(grant.namespaces),
        kinds=_once(grant.kinds),
        priority_classes=_once(grant.priority_classes),
    )


def in_force(grant: Grant) -> Grant:
    """Return a grant with the highest priority that holds for its pods, also where it does not say one."""
    return grant._replace(priority_max=priority_max(grant))


def _check_priorities(grant: Grant) -> None:
    for name in grant.priority_classes or ():
        check_subdomain(name, "priority_classes")
        if name.startswith(SYSTEM_PREFIX):
            message = f"{shown(name)} is the system's; a key with the kind {PRIORITY} may name it"
            raise FieldError("priority_classes", message)
    count = len(grant.priority_classes or ())
    check_count(count, PRIORITY_CLASSES_PER_KEY_MAX, "priority_classes_per_key_max", "priority_classes")
    if grant.priority_max is not None:
        check_range(grant.priority_max, -(2**31), USER_PRIORITY_MAX, "priority_max")
    said = "priority_max" if grant.priority_max is not None else "priority_classes"
    if grant.priority_max is None and not grant.priority_classes:
        return
    sends = sent_by(grant.roles, grant.kinds, everywhere=not grant.namespaces)
    if PRIORITY in sends:
        raise FieldError(said, f"limits nothing, since the key may ask for any priority ({PRIORITY})")
    if PRIORITY_CLASS in sends:
        raise FieldError(said, f"limits nothing, since the key sends each {PRIORITY_CLASS} as it likes")
    if "Pod" not in sends:
        raise FieldError(said, "is about pods, and the key sends none; add the role producer or the kind Pod")


def _check_sense(grant: Grant, roles: frozenset[str], kinds: frozenset[str]) -> None:
    """Refuse a grant of which a part has no effect. Its maker meant something else."""
    if AGENT in roles and (len(roles) > 1 or grant.namespaces or kinds):
        raise FieldError(
            "roles", "an agent is of one node, so it has no other role, and no namespaces or kinds"
        )
    if AGENT in roles and not grant.node:
        raise FieldError("node", "is missing; an agent is of one node, which has to be named")
    if grant.node is not None and AGENT not in roles:
        raise FieldError("node", "says of which node an agent is; this key has another role")
    if "admin" in roles and (grant.namespaces or kinds):
        raise FieldError("roles", "an admin makes keys, so it cannot be limited to namespaces or kinds")
    if kinds and roles <= {"auditor"}:
        raise FieldError("kinds", "say what a key sends, and an auditor sends nothing; add the role producer")
    if grant.namespaces and "operator" in roles:
        raise FieldError("roles", "an operator is for the cluster; a key for some namespaces is a producer")
    if grant.namespaces and (of_cluster := kinds & OF_CLUSTER):
        named = ", ".join(sorted(of_cluster))
        raise FieldError("kinds", f"{named} belongs to no namespace; leave the namespaces of the key out")
    if (about_pods := kinds & {BINDING, PRIORITY, ANTI_AFFINITY}) and "Pod" not in kinds:
        named = " and ".join(sorted(about_pods))
        raise FieldError("kinds", f"{named}: this is about pods that the key sends; add Pod")
    if ANTI_AFFINITY in kinds and not grant.namespaces:
        raise FieldError("kinds", f"{ANTI_AFFINITY} is for a key with namespaces; this one has all of them")


def _once(names: Sequence[str] | None) -> list[str] | None:
    return list(dict.fromkeys(names or ())) or None
