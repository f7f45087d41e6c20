"""The client that awaits: what is written and asked, in the words of the command line."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Literal, overload

import httpx

from berth.client import models
from berth.client._async.connection import AsyncConnection
from berth.client._async.export import AsyncExport
from berth.client._async.resources import AsyncResources
from berth.client._async.waiting import wait_for
from berth.client._async.watch import AsyncWatch
from berth.client.errors import BerthError, InvalidRequest, NotFound, decoded, error_of
from berth.client.fates import Fate, Until, Waiting
from berth.client.objects import Applied, Objects, Written, batches, events_of, manifests_text, moved, named
from berth.client.requests import Moment, Request, fixed, pod_names, target
from berth.client.retrying import Retry, Told
from berth.client.settings import find_address

_DECISION = re.compile(r"\d+-\d+")
_WAIT_SECONDS_MAX = 100.0
"""As long as the API lets a request wait."""


class AsyncView(AsyncResources):
    """The cluster as it was at a moment, or is: what is asked is answered as of then."""

    @property
    def moment(self) -> str | None:
        """The moment, as the API reads it; None: now."""
        return self._moment

    async def plan(
        self,
        objects: str | Objects,
        *,
        profile: str | None = None,
        replicas: int | None = None,
        how_many: bool = False,
        cures: bool = False,
    ) -> models.PlanAnswer:
        """Say where pods would go against the nodes that there are, or were then; nothing is written.

        Parameters
        ----------
        objects : str, mapping or iterable of mappings
            Pods, workloads and what they need: a text in YAML or JSON, or manifests as ``apply`` takes them.
        profile : str, optional
            A profile in force that places all pods; without it each its own.
        replicas : int, optional
            So many copies of each pod, and pods of each workload; without it as they say.
        how_many : bool
            Count how many more of each pod fit.
        cures : bool
            Search what would cure the pods that find no node.

        Raises
        ------
        InvalidRequest
            An object makes no sense, or there is no such profile.
        """
        wanted = models.PlanToMake(
            manifests=manifests_text(objects),
            at=self._moment,
            profile=profile,
            replicas=replicas,
            how_many=how_many,
            cures=cures,
        )
        may_wait = self._moment is None
        return await self._answer(
            Request("POST", "/v1/plan", models.PlanAnswer, body=wanted, may_wait=may_wait, only_asks=True)
        )


class AsyncClient(AsyncView):
    """A client of the API that awaits. Close it, or use it as a context.

    Parameters
    ----------
    url : str, optional
        Address of the API; without it BERTH_API_URL, else the instance that runs on this machine.
    key : str, optional
        Key that is shown; without it that of ``key_file``, BERTH_API_KEY or BERTH_API_KEY_FILE.
    key_file : path, optional
        A file whose one line is the key.
    ca : path, optional
        Certificates that are trusted (PEM); without it BERTH_API_CA, else the usual ones.
    timeout_seconds : float
        How long an answer may take.
    retry : Retry, optional
        When a request is sent again.
    transport : httpx.AsyncBaseTransport, optional
        Another way to the API, as an application in this process.
    told : callable, optional
        Is told before each wait how many seconds it is, and why.

    Raises
    ------
    NotConfigured
        No API is named and none runs here, or a key cannot be read.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        timeout_seconds: float = 120.0,
        retry: Retry | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        told: Told | None = None,
    ) -> None:
        address = find_address(url, key=key, key_file=key_file, ca=ca)
        super().__init__(
            AsyncConnection(
                address, retry=retry, timeout_seconds=timeout_seconds, transport=transport, told=told
            ),
            Written({}),
        )

    # ------------------------------------------------------------------------------------------ writing

    async def apply(
        self,
        objects: Objects,
        *,
        wait: Literal["folded", "decided"] | None = None,
        timeout: float = 30.0,
        partial: bool = False,
        idempotency_key: str | None = None,
        at: Moment | None = None,
    ) -> Applied:
        """Send nodes, pods, profiles and other objects, as manifests or watch events, into the log.

        What this client asks afterwards is answered once they took effect.

        Parameters
        ----------
        objects : mapping or iterable of mappings
            Manifests, watch events or lists of kubectl. An iterable is read as it is sent, 1,000 at a time.
        wait : {"folded", "decided"}, optional
            Return when all took effect; with `decided`, with the last decision of each pod.
        timeout : float
            Seconds to wait for each request, up to 100. That it is over is no error: see ``folded``.
        partial : bool
            Send what is valid even where other objects of the same request are not.
        idempotency_key : str, optional
            Names this call: objects that were sent under the same key before, in the same order, are not
            sent again. Without it a key is drawn, so that what this call sends again has effect once.
        at : Moment, optional
            When it happened, as the sender claims.

        Raises
        ------
        InvalidRequest
            An object makes no sense; nothing of its request was sent. Those before it were (`sent_count`).
        NotAllowed
            The key may not send this.
        """
        asked = {"partial": partial or None, **_waits(wait, timeout)}
        return await self._send(events_of(objects, "ADDED", idempotency_key, at), asked)

    @overload
    async def delete(
        self,
        what: str,
        name: str,
        *,
        wait: Literal["folded"] | None = None,
        timeout: float = 30.0,
        idempotency_key: str | None = None,
    ) -> Applied: ...

    @overload
    async def delete(
        self,
        what: Objects,
        name: None = None,
        *,
        wait: Literal["folded"] | None = None,
        timeout: float = 30.0,
        idempotency_key: str | None = None,
    ) -> Applied: ...

    async def delete(
        self,
        what: str | Objects,
        name: str | None = None,
        *,
        wait: Literal["folded"] | None = None,
        timeout: float = 30.0,
        idempotency_key: str | None = None,
    ) -> Applied:
        """Delete an object by kind and name, or all objects of some manifests.

        ``delete("pod", "shop/web-0")``; kinds are pod, node, profile, policy, or as manifests write them.
        """
        if isinstance(what, str):
            if name is None:
                raise ValueError(f"delete({what!r}) names no object; give its name, too")
            what = named(what, name)
        return await self._send(events_of(what, "DELETED", idempotency_key), _waits(wait, timeout))

    async def _send(self, events: Iterable[dict[str, object]], params: Mapping[str, object]) -> Applied:
        """Send events in requests that the API takes; what is sent again has effect once, by its ids."""
        applied, before = Applied(), 0
        for batch in batches(events):
            answer = await self._connection.exchange("POST", target("/v1/events", params), batch.body)
            if answer.is_error:
                raise _counted(error_of(answer.status, answer.content), before)
            found: models.Ingested = decoded(answer.content, models.Ingested)
            applied.add(found, before)
            applied.pods += batch.pods
            before += batch.length
            if not found.folded:
                self._written.add(found.positions)
        return applied

    def read_after(self, applied: Applied) -> None:
        """Let what this client asks be answered once what another one wrote took effect.

        Parameters
        ----------
        applied : Applied
            What ``apply`` or ``delete`` of another client returned, or of a producer of `berth.client.kafka`.
        """
        self._written.add(applied.positions)

    # ------------------------------------------------------------------------------------------ waiting

    async def wait(
        self, pods: str | Iterable[str] | Applied, until: Until = "bound", *, timeout: float = 60.0
    ) -> dict[str, Fate]:
        """Wait until pods are decided, bound or gone; return what became of each.

        Parameters
        ----------
        pods : str, iterable of str, or Applied
            `namespace/name`, several, or what ``apply`` returned.
        until : {"decided", "bound", "gone"}
            What has to become of all of them.
        timeout : float
            Seconds in all.

        Raises
        ------
        Timeout
            It did not happen in time; ``missing`` names the pods.
        """
        waiting = Waiting(pods, until, timeout)
        if waiting.is_done:
            return {}
        await wait_for(self._connection, self._written, waiting)
        return waiting.fates()

    def watch(
        self,
        *,
        kinds: Iterable[str] | None = None,
        namespace: str | None = None,
        node: str | None = None,
        pod: str | None = None,
        since: Moment | None = None,
        after: str | None = None,
        marks: bool = False,
    ) -> AsyncWatch:
        """Return what happens, as it happens, without a gap or a double however often the API goes away.

        Parameters
        ----------
        kinds : iterable of str, optional
            Of decisions, releases, pending, nodes and shards; all without it.
        namespace, node, pod : str, optional
            Only what is of it; a pod as `namespace/name`.
        since : Moment, optional
            Begin at this log time; without it and ``after``, now.
        after : str, optional
            Begin behind the event with this id.
        marks : bool
            Give marks, too: how far the stream is where nothing happens; the first says where it begins.
        """
        asked = {
            "kinds": None if kinds is None else ",".join([kinds] if isinstance(kinds, str) else kinds),
            "namespace": namespace,
            "node": node,
            "pod": pod,
            "since": since,
            "after": after,
        }
        return AsyncWatch(self._connection, asked, marks=marks)

    # ------------------------------------------------------------------------------------------- asking

    def at(self, moment: Moment) -> AsyncView:
        """Return a view of the past: its questions are answered as of then.

        An age (`1h`, a timedelta) is taken from now on, so that all questions are about one moment.
        """
        return AsyncView(self._connection, Written({}), fixed(moment))

    async def explain(self, of: str) -> models.Explanation:
        """Say why a decision came out as it did: its id, or a pod as `namespace/name` for the latest one."""
        if _DECISION.fullmatch(of):
            return await self.decisions.explain(of)
        pod = "/".join(pod_names(of))
        async for each in self.decisions.list(pod=pod, order="newest", limit=1):
            return await self.decisions.explain(each.id)
        raise NotFound(f"pod {pod} has no decision here; its event may be on the way", code="not-found")

    async def why(self, pod: str) -> models.Why:
        """Say why a pod waits, and which small changes would cure it."""
        return await self.pods.why(*pod_names(pod))

    def history(self, pod: str, *, limit: int | None = None) -> AsyncIterator[models.HistoryEntry]:
        """Tell what happened to a pod, the oldest first; ``nodes.history`` does it of a node."""
        return self.pods.history(*pod_names(pod), limit=limit)

    def export(
        self,
        what: str,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        namespace: str | None = None,
    ) -> AsyncExport:
        """Return a whole table: decisions, attempts, placements, nodes or configuration."""
        return AsyncExport(self._connection, what, {"since": since, "until": until, "namespace": namespace})

    # ------------------------------------------------------------------------------------------ closing

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _waits(wait: str | None, timeout: float) -> dict[str, object]:
    return {} if wait is None else {"wait": f"{min(timeout, _WAIT_SECONDS_MAX):.3f}s", "until": wait}


def _counted(error: BerthError, before: int) -> BerthError:
    """Return an error that counts from the first object that was given, and names the first wrong field."""
    first = next((each for each in error.details if each.index is not None), None)
    error.details = tuple(moved(error.details, before))
    if first is not None and first.index is not None:
        there, here = f"events[{first.index}]", f"events[{first.index + before}]"
        error.message = error.message.replace(there, here, 1)
        error.path = f"{here}.{first.path}".rstrip(".")
    if isinstance(error, InvalidRequest):
        error.sent_count = before
    return error
