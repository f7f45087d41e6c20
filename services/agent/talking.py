"""What the agent asks the API, and what it sends: it works on by what it knows where the API is away."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

import msgspec

from domain.manifests.colocation_policy import policy_from_spec
from domain.model.config import CO_LOCATION_POLICY, ConfigObject
from domain.model.errors import BerthError
from domain.state.policies import NO_POLICY, Policies, PolicyInForce
from services.agent.learned import NodePod, pods_of
from services.agent.reporting import Actions, Event
from services.log_limit import LogLimit

_PAGE = 1_000
_log = logging.getLogger("berth.agent")
_log.addFilter(LogLimit())


class Api(Protocol):
    """The API, over HTTP."""

    async def request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body of an answer; raise ``BerthError`` where there is none."""


class NotTaken(BerthError):
    """The API does not answer as it should; the message says what it said."""

    code = "agent-not-taken"
    retriable = True


class Learned(NamedTuple):
    """What the API said last. ``pods`` is None before it ever answered."""

    pods: Mapping[str, NodePod] | None = None
    policy: PolicyInForce = NO_POLICY


async def labels_of(api: Api, node: str) -> dict[str, str]:
    """Ask for the labels of a node; one that is not known yet has none.

    Raises
    ------
    BerthError
        The API does not answer, or not with what was asked for.
    """
    status, body = await api.request("GET", f"/v1/nodes/{node}")
    return {} if status == 404 else dict(_answer(status, body)["labels"])


async def learn(api: Api, node: str, labels: Mapping[str, str]) -> Learned:
    """Ask for the pods of a node, and for the policy that holds there, as the labels of the node say.

    Raises
    ------
    BerthError
        The API does not answer, or not with what was asked for.
    """
    pods = pods_of(await _items(api, "/v1/pods", node=node, phase="bound"))
    policies = Policies()
    for each in await _items(api, "/v1/config", kind=CO_LOCATION_POLICY):
        policies.put(
            ConfigObject(
                kind=CO_LOCATION_POLICY,
                namespace="",
                name=each["name"],
                content=policy_from_spec(each["object"], f"{CO_LOCATION_POLICY} {each['name']}"),
                resource_version=each["resource_version"],
            )
        )
    return Learned(pods, policies.of(labels))


async def _items(api: Api, path: str, **asked: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = {**asked, "limit": str(_PAGE), **({"cursor": cursor} if cursor else {})}
        status, body = await api.request("GET", f"{path}?{urlencode(page)}")
        answer = _answer(status, body)
        found += answer["items"]
        cursor = answer["next"]
        if cursor is None:
            return found


def _answer(status: int, body: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer = None
    if isinstance(answer, dict) and status < 300:
        return answer
    error = answer.get("error", {}) if isinstance(answer, dict) else {}
    raise NotTaken(f"the API answered {status}: {error.get('message', 'no JSON')}")


class Outbox:
    """What is to be sent: the latest usage, what was done, and which pods were ended.

    Usage that could not be sent is replaced by newer one. That a pod was ended is kept until it was taken.
    """

    def __init__(self, actions: Actions) -> None:
        self.actions = actions
        self._usage: Event | None = None
        self._evictions: dict[str, Event] = {}
        self._unsent: Sequence[Event] = ()

    def report(self, usage: Event) -> None:
        """Send what was used, in the place of what was not sent yet."""
        self._usage = usage

    def evict(self, uid: str, event: Event) -> None:
        """Send that a pod was ended."""
        self._evictions[uid] = event

    @property
    def is_urgent(self) -> bool:
        """Whether there is more than what was done to boxes, which waits for the next report."""
        return bool(self._usage or self._evictions or self._unsent)

    async def send(self, api: Api) -> None:
        """Send all there is. What is refused is told and dropped; where the API is away, it is sent later.

        Raises
        ------
        BerthError
            The API does not answer, or takes none of it now.
        """
        usage, evictions = self._usage, dict(self._evictions)
        self._unsent = (*self._unsent, *self.actions.take_events())
        events = [*evictions.values(), *self._unsent, *([usage] if usage else [])]
        if not events:
            return
        status, body = await api.request("POST", "/v1/events?partial=true", msgspec.json.encode(events))
        answer = _answer(status, body)
        for error in answer.get("errors", ()):
            _log.warning("the API refuses what was sent: %s: %s", error.get("path"), error.get("message"))
        self._unsent = ()
        self._usage = None if self._usage is usage else self._usage
        for uid, event in evictions.items():
            if self._evictions.get(uid) is event:
                del self._evictions[uid]
