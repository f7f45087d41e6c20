"""What can be asked of the API: a class for each kind of thing, a method for each question.

Made by `python -m docs.build.client` from the contract; edit that script and `services/api`, not this file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from berth.client import models
from berth.client._async.asking import AsyncAsker, AsyncResource
from berth.client.requests import Moment, Request, page_size, path


class AsyncPods(AsyncResource):
    """What can be asked about pods."""

    async def get(self, namespace: str, name: str, *, at: Moment | None = None) -> models.PodDetail:
        """Show a pod and its history."""
        request = Request(
            "GET",
            path("/v1/pods", namespace, name),
            models.PodDetail,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def attempts(self, namespace: str, name: str, *, at: Moment | None = None) -> models.PodAttempts:
        """Say why a pod was refused, over time or at one moment."""
        request = Request(
            "GET",
            path("/v1/pods", namespace, name, "attempts"),
            models.PodAttempts,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def why(self, namespace: str, name: str) -> models.Why:
        """Why a pod waits, and the smallest changes found that would cure it."""
        request = Request(
            "GET",
            path("/v1/pods", namespace, name, "why"),
            models.Why,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def history(
        self,
        namespace: str,
        name: str,
        *,
        order: str | None = None,
        until: Moment | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.HistoryEntry]:
        """Tell what happened to a pod, and what made room for it.

        ``order``: oldest or newest first.
        ``until``: only what happened until then (log time): 1h is an hour ago; 03:17, a day, RFC
            3339; 0:1234 is right after batch 1234 of shard 0. Without it, `why_now` is told, too.
        """
        request = Request(
            "GET",
            path("/v1/history/pods", namespace, name),
            models.HistoryPage,
            params={"order": order, "until": until, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)

    def list(
        self,
        *,
        namespace: str | None = None,
        node: str | None = None,
        phase: str | None = None,
        gang: str | None = None,
        quality: str | None = None,
        at: Moment | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.Pod]:
        """List live pods.

        ``namespace``: only this namespace.
        ``node``: only this node.
        ``phase``: only bound and orphaned, only orphaned, or only pending pods.
        ``gang``: only pods of this gang: namespace/name.
        ``quality``: only pods of this quality: Guaranteed, Burstable or BestEffort ones.
        """
        request = Request(
            "GET",
            path("/v1/pods"),
            models.PodPage,
            params={
                "namespace": namespace,
                "node": node,
                "phase": phase,
                "gang": gang,
                "quality": quality,
                "at": at,
                "limit": page_size(limit),
            },
            has_past=True,
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncNodes(AsyncResource):
    """What can be asked about nodes."""

    async def get(self, name: str, *, at: Moment | None = None) -> models.NodeDetail:
        """Show a node and its pods."""
        request = Request(
            "GET",
            path("/v1/nodes", name),
            models.NodeDetail,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def history(
        self, name: str, *, order: str | None = None, until: Moment | None = None, limit: int | None = None
    ) -> AsyncIterator[models.HistoryEntry]:
        """Tell what happened to a node and on it.

        ``order``: oldest or newest first.
        ``until``: only what happened until then (log time): 1h is an hour ago; 03:17, a day, RFC
            3339; 0:1234 is right after batch 1234 of shard 0. Without it, `why_now` is told, too.
        """
        request = Request(
            "GET",
            path("/v1/history/nodes", name),
            models.HistoryPage,
            params={"order": order, "until": until, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)

    def list(
        self, *, name: str | None = None, at: Moment | None = None, limit: int | None = None
    ) -> AsyncIterator[models.Node]:
        """List nodes.

        ``name``: only names that contain this.
        """
        request = Request(
            "GET",
            path("/v1/nodes"),
            models.NodePage,
            params={"name": name, "at": at, "limit": page_size(limit)},
            has_past=True,
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncDecisions(AsyncResource):
    """What can be asked about decisions."""

    async def get(self, id: str) -> models.Decision:
        """Show a decision."""
        request = Request(
            "GET",
            path("/v1/decisions", id),
            models.Decision,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def explain(self, id: str) -> models.Explanation:
        """Explain a decision."""
        request = Request(
            "GET",
            path("/v1/decisions", id, "explanation"),
            models.Explanation,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def list(
        self,
        *,
        pod: str | None = None,
        namespace: str | None = None,
        node: str | None = None,
        outcome: str | None = None,
        shard: int | None = None,
        signature: str | None = None,
        profile: str | None = None,
        revision: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        order: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.Decision]:
        """List decisions.

        ``pod``: only this pod: namespace/name, or a name.
        ``namespace``: only this namespace.
        ``node``: only this node.
        ``outcome``: only this outcome.
        ``shard``: only this shard.
        ``signature``: only this equivalence group, hex.
        ``profile``: only pods that name this profile.
        ``revision``: only by this revision of `profile`.
        ``since``: decided at or after (log time): 1h is an hour ago; 03:17, a day, RFC 3339.
        ``until``: decided before (log time): 1h is an hour ago; 03:17, a day, RFC 3339.
        ``order``: oldest or newest first.
        """
        request = Request(
            "GET",
            path("/v1/decisions"),
            models.DecisionPage,
            params={
                "pod": pod,
                "namespace": namespace,
                "node": node,
                "outcome": outcome,
                "shard": shard,
                "signature": signature,
                "profile": profile,
                "revision": revision,
                "since": since,
                "until": until,
                "order": order,
                "limit": page_size(limit),
            },
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncPending(AsyncResource):
    """What can be asked about pending."""

    async def get(self, shard: int, signature: str) -> models.PendingGroup:
        """Show a group of pods that wait, and why."""
        request = Request(
            "GET",
            path("/v1/pending", shard, signature),
            models.PendingGroup,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def why(self, shard: int, signature: str) -> models.Why:
        """The same for a group of pods that wait."""
        request = Request(
            "GET",
            path("/v1/pending", shard, signature, "why"),
            models.Why,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def list(
        self,
        *,
        shard: int | None = None,
        order: str | None = None,
        at: Moment | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.PendingGroup]:
        """List what waits, and why.

        ``shard``: only this shard.
        ``order``: largest: the group with most pods first; oldest: the one that waits longest.
        """
        request = Request(
            "GET",
            path("/v1/pending"),
            models.PendingPage,
            params={"shard": shard, "order": order, "at": at, "limit": page_size(limit)},
            has_past=True,
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncNominations(AsyncResource):
    """What can be asked about nominations."""

    def list(self, *, limit: int | None = None) -> AsyncIterator[models.Nomination]:
        """List pods that are nominated."""
        request = Request(
            "GET",
            path("/v1/nominations"),
            models.NominationPage,
            params={"limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncGangs(AsyncResource):
    """What can be asked about gangs."""

    async def get(self, namespace: str, name: str, *, at: Moment | None = None) -> models.GangDetail:
        """Show a gang and its pods."""
        request = Request(
            "GET",
            path("/v1/gangs", namespace, name),
            models.GangDetail,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def list(
        self, *, namespace: str | None = None, at: Moment | None = None, limit: int | None = None
    ) -> AsyncIterator[models.Gang]:
        """List gangs, and what they wait for.

        ``namespace``: only this namespace.
        """
        request = Request(
            "GET",
            path("/v1/gangs"),
            models.GangPage,
            params={"namespace": namespace, "at": at, "limit": page_size(limit)},
            has_past=True,
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncProfiles(AsyncResource):
    """What can be asked about profiles."""

    async def get(self, name: str, *, revision: int | None = None) -> models.ProfileDetail:
        """Show a profile or a revision of it.

        ``revision``: as this revision had it; without it, the last one.
        """
        request = Request(
            "GET",
            path("/v1/profiles", name),
            models.ProfileDetail,
            params={"revision": revision},
            may_wait=True,
        )
        return await self._asker.ask(request)

    def history(
        self, name: str, *, order: str | None = None, until: Moment | None = None, limit: int | None = None
    ) -> AsyncIterator[models.HistoryEntry]:
        """Tell how a profile changed.

        ``order``: oldest or newest first.
        ``until``: only what happened until then (log time): 1h is an hour ago; 03:17, a day, RFC
            3339; 0:1234 is right after batch 1234 of shard 0. Without it, `why_now` is told, too.
        """
        request = Request(
            "GET",
            path("/v1/history/profiles", name),
            models.HistoryPage,
            params={"order": order, "until": until, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)

    def shadow(self, *, profile: str | None = None) -> AsyncIterator[models.ShadowAnswer]:
        """Compare shadow profiles with the live ones.

        ``profile``: only this one.
        """
        request = Request(
            "GET",
            path("/v1/shadow"),
            models.ShadowPage,
            params={"profile": profile},
            may_wait=True,
        )
        return self._asker.pages(request)

    def list(self, *, at: Moment | None = None, limit: int | None = None) -> AsyncIterator[models.Profile]:
        """List the profiles in force."""
        request = Request(
            "GET",
            path("/v1/profiles"),
            models.ProfilePage,
            params={"at": at, "limit": page_size(limit)},
            has_past=True,
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncConfig(AsyncResource):
    """What can be asked about config."""

    async def get(
        self, kind: str, namespace: str, name: str, *, at: Moment | None = None
    ) -> models.ConfigObject:
        """Show a configuration object of a namespace."""
        request = Request(
            "GET",
            path("/v1/config", kind, namespace, name),
            models.ConfigObject,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def get_of_cluster(self, kind: str, name: str, *, at: Moment | None = None) -> models.ConfigObject:
        """Show a configuration object of a kind that has no namespaces."""
        request = Request(
            "GET",
            path("/v1/config", kind, name),
            models.ConfigObject,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def list(
        self,
        *,
        kind: str | None = None,
        namespace: str | None = None,
        at: Moment | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.ConfigObject]:
        """List configuration objects.

        ``kind``: only this kind.
        ``namespace``: only this namespace.
        """
        request = Request(
            "GET",
            path("/v1/config"),
            models.ConfigPage,
            params={"kind": kind, "namespace": namespace, "at": at, "limit": page_size(limit)},
            has_past=True,
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncReplicas(AsyncResource):
    """What can be asked about replicas."""

    async def get(self, namespace: str, name: str) -> models.Replicas:
        """Show how many replicas of a hosted workload there should be."""
        request = Request(
            "GET",
            path("/v1/replicas", namespace, name),
            models.Replicas,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def list(
        self, *, namespace: str | None = None, limit: int | None = None
    ) -> AsyncIterator[models.Replicas]:
        """List how many replicas of hosted workloads there should be.

        ``namespace``: only this namespace.
        """
        request = Request(
            "GET",
            path("/v1/replicas"),
            models.ReplicasPage,
            params={"namespace": namespace, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncShards(AsyncResource):
    """What can be asked about shards."""

    def owners(
        self,
        *,
        shard: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.Owner]:
        """List which worker owned which shard when.

        ``shard``: only this shard.
        ``since``: owned it at or after: 1h (ago), 03:17, 2026-01-31, '2026-01-31 08:00',
            2026-01-31T08:00:00Z or now.
        ``until``: owned it before.
        """
        request = Request(
            "GET",
            path("/v1/owners"),
            models.OwnerPage,
            params={"shard": shard, "since": since, "until": until, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)

    def history(
        self, shard: int, *, order: str | None = None, until: Moment | None = None, limit: int | None = None
    ) -> AsyncIterator[models.HistoryEntry]:
        """Tell which workers owned a shard, and what its log had lost.

        ``order``: oldest or newest first.
        ``until``: only what happened until then (log time): 1h is an hour ago; 03:17, a day, RFC
            3339; 0:1234 is right after batch 1234 of shard 0. Without it, `why_now` is told, too.
        """
        request = Request(
            "GET",
            path("/v1/history/shards", shard),
            models.HistoryPage,
            params={"order": order, "until": until, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)

    def list(self) -> AsyncIterator[models.Shard]:
        """List shards."""
        request = Request(
            "GET",
            path("/v1/shards"),
            models.ShardPage,
            may_wait=True,
        )
        return self._asker.pages(request)


class AsyncWorkers(AsyncResource):
    """What can be asked about workers."""

    def list(self, *, since: Moment | None = None) -> AsyncIterator[models.WorkerAnswer]:
        """List workers, and what each owns.

        ``since``: heard of at or after: 1h (ago), 03:17, 2026-01-31, '2026-01-31 08:00',
            2026-01-31T08:00:00Z or now.
        """
        request = Request(
            "GET",
            path("/v1/workers"),
            models.WorkerPage,
            params={"since": since},
            may_wait=True,
        )
        return self._asker.pages(request)


class AsyncActions(AsyncResource):
    """What can be asked about actions."""

    def list(self, *, node: str | None = None, limit: int | None = None) -> AsyncIterator[models.NodeAction]:
        """List what agents of nodes did.

        ``node``: only this node.
        """
        request = Request(
            "GET",
            path("/v1/actions"),
            models.ActionPage,
            params={"node": node, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncDeadletters(AsyncResource):
    """What can be asked about deadletters."""

    async def get(self, id: str) -> models.DeadLetter:
        """Show a dead letter whole."""
        request = Request(
            "GET",
            path("/v1/deadletters", id),
            models.DeadLetter,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def resend(self, id: str) -> models.Ingested:
        """Send the event of a dead letter again, as the log has it."""
        request = Request(
            "POST",
            path("/v1/deadletters", id, "resend"),
            models.Ingested,
        )
        return await self._asker.ask(request)

    def list(self, *, limit: int | None = None) -> AsyncIterator[models.DeadLetter]:
        """List dead letters."""
        request = Request(
            "GET",
            path("/v1/deadletters"),
            models.DeadLetterPage,
            params={"limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncUsage(AsyncResource):
    """What can be asked about usage."""

    def list(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        step: str | None = None,
        by: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.UsageItem]:
        """Show usage and decisions over time.

        ``since``: from the step of this moment on (log time): 1h is an hour ago; 03:17, RFC 3339.
        ``until``: only steps that begin before this moment.
        ``step``: how long a step is: 5m or a multiple, as 1h; without it there is one.
        ``by``: an item for each of these in each step.
        """
        request = Request(
            "GET",
            path("/v1/usage"),
            models.UsagePage,
            params={"since": since, "until": until, "step": step, "by": by, "limit": page_size(limit)},
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncBill(AsyncResource):
    """What can be asked about bill."""

    def list(
        self,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        namespace: str | None = None,
        by: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.BillItem]:
        """Bill what pods used.

        ``since``: from the hour of this moment on: 1d is a day ago; 03:17, a day, RFC 3339.
        ``until``: only hours that begin before this moment.
        ``namespace``: only this namespace.
        ``by``: a line for each of these.
        """
        request = Request(
            "GET",
            path("/v1/bill"),
            models.BillPage,
            params={
                "since": since,
                "until": until,
                "namespace": namespace,
                "by": by,
                "limit": page_size(limit),
            },
            may_wait=True,
        )
        return self._asker.pages(request, limit)


class AsyncKeys(AsyncResource):
    """What can be asked about keys."""

    async def create(self, wanted: models.KeyToMake) -> models.NewKey:
        """Make a key, which is shown this once."""
        request = Request(
            "POST",
            path("/v1/keys"),
            models.NewKey,
            body=wanted,
        )
        return await self._asker.ask(request)

    async def revoke(self, name: str) -> models.KeyRevoked:
        """Revoke all keys of a name, at once."""
        request = Request(
            "DELETE",
            path("/v1/keys", name),
            models.KeyRevoked,
        )
        return await self._asker.ask(request)

    async def caller(self) -> models.Asking:
        """Say who asks, and what he sees."""
        request = Request(
            "GET",
            path("/v1/caller"),
            models.Asking,
            may_wait=True,
        )
        return await self._asker.ask(request)

    def list(self) -> AsyncIterator[models.Key]:
        """List keys, revoked ones included."""
        request = Request(
            "GET",
            path("/v1/keys"),
            models.KeyPage,
        )
        return self._asker.pages(request)


class AsyncAccesses(AsyncResource):
    """What can be asked about accesses."""

    def list(
        self,
        *,
        key: str | None = None,
        status: int | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[models.AccessEntry]:
        """List who asked for what.

        ``key``: only with the keys of this name.
        ``status``: only with this status.
        ``since``: at or after (the API's clock): 1h is an hour ago; 03:17, a day, RFC 3339.
        ``until``: before (the API's clock): 1h is an hour ago; 03:17, a day, RFC 3339.
        """
        request = Request(
            "GET",
            path("/v1/accesses"),
            models.AccessPage,
            params={"key": key, "status": status, "since": since, "until": until, "limit": page_size(limit)},
        )
        return self._asker.pages(request, limit)


class AsyncCluster(AsyncResource):
    """What can be asked about cluster."""

    async def field(
        self,
        *,
        by: str | None = None,
        resources: str | None = None,
        measured: bool | None = None,
        at: Moment | None = None,
    ) -> models.Field:
        """Show all nodes at once, as columns.

        ``by``: group nodes by the values of this label, as topology.kubernetes.io/zone.
        ``resources``: these resources, with commas between them; else cpu, memory,
            nvidia.com/gpu, pods.
        ``measured``: whether to say what was measured, and what is hot.
        """
        request = Request(
            "GET",
            path("/v1/field"),
            models.Field,
            params={"by": by, "resources": resources, "measured": measured, "at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def moment(self, *, at: Moment | None = None) -> models.Looked:
        """Say what a moment means."""
        request = Request(
            "GET",
            path("/v1/moment"),
            models.Looked,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def totals(self, *, at: Moment | None = None) -> models.Totals:
        """Sum over the cluster."""
        request = Request(
            "GET",
            path("/v1/totals"),
            models.Totals,
            params={"at": at},
            has_past=True,
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def diff(
        self, *, from_: Moment, until: Moment | None = None, namespace: str | None = None
    ) -> models.Diff:
        """Say what differs between two moments.

        ``from_``: the first moment: 1h is an hour ago; 03:17, a day, RFC 3339; 0:1234 is right
            after batch 1234 of shard 0.
        ``until``: the second moment: 1h is an hour ago; 03:17, a day, RFC 3339; 0:1234 is right
            after batch 1234 of shard 0; now.
        ``namespace``: only this namespace.
        """
        request = Request(
            "GET",
            path("/v1/diff"),
            models.Diff,
            params={"from": from_, "until": until, "namespace": namespace},
            may_wait=True,
        )
        return await self._asker.ask(request)

    async def audit(self) -> models.AuditAnswer:
        """Ask the ledger's invariants."""
        request = Request(
            "GET",
            path("/v1/audit"),
            models.AuditAnswer,
        )
        return await self._asker.ask(request)

    async def health(self) -> models.Health:
        """Whether this process lives."""
        request = Request(
            "GET",
            path("/healthz"),
            models.Health,
        )
        return await self._asker.ask(request)

    async def readiness(self) -> models.Health:
        """Whether the deployment can decide: database, migrations, log, and a worker for every shard."""
        request = Request(
            "GET",
            path("/readyz"),
            models.Health,
            accepts=(503,),
        )
        return await self._asker.ask(request)

    async def metrics(self) -> str:
        """Prometheus metrics."""
        request = Request(
            "GET",
            path("/metrics"),
            str,
            may_wait=True,
        )
        return await self._asker.ask(request)


class AsyncResources(AsyncAsker):
    """All that can be asked."""

    @property
    def pods(self) -> AsyncPods:
        """See `AsyncPods`."""
        return AsyncPods(self)

    @property
    def nodes(self) -> AsyncNodes:
        """See `AsyncNodes`."""
        return AsyncNodes(self)

    @property
    def decisions(self) -> AsyncDecisions:
        """See `AsyncDecisions`."""
        return AsyncDecisions(self)

    @property
    def pending(self) -> AsyncPending:
        """See `AsyncPending`."""
        return AsyncPending(self)

    @property
    def nominations(self) -> AsyncNominations:
        """See `AsyncNominations`."""
        return AsyncNominations(self)

    @property
    def gangs(self) -> AsyncGangs:
        """See `AsyncGangs`."""
        return AsyncGangs(self)

    @property
    def profiles(self) -> AsyncProfiles:
        """See `AsyncProfiles`."""
        return AsyncProfiles(self)

    @property
    def config(self) -> AsyncConfig:
        """See `AsyncConfig`."""
        return AsyncConfig(self)

    @property
    def replicas(self) -> AsyncReplicas:
        """See `AsyncReplicas`."""
        return AsyncReplicas(self)

    @property
    def shards(self) -> AsyncShards:
        """See `AsyncShards`."""
        return AsyncShards(self)

    @property
    def workers(self) -> AsyncWorkers:
        """See `AsyncWorkers`."""
        return AsyncWorkers(self)

    @property
    def actions(self) -> AsyncActions:
        """See `AsyncActions`."""
        return AsyncActions(self)

    @property
    def deadletters(self) -> AsyncDeadletters:
        """See `AsyncDeadletters`."""
        return AsyncDeadletters(self)

    @property
    def usage(self) -> AsyncUsage:
        """See `AsyncUsage`."""
        return AsyncUsage(self)

    @property
    def bill(self) -> AsyncBill:
        """See `AsyncBill`."""
        return AsyncBill(self)

    @property
    def keys(self) -> AsyncKeys:
        """See `AsyncKeys`."""
        return AsyncKeys(self)

    @property
    def accesses(self) -> AsyncAccesses:
        """See `AsyncAccesses`."""
        return AsyncAccesses(self)

    @property
    def cluster(self) -> AsyncCluster:
        """See `AsyncCluster`."""
        return AsyncCluster(self)
