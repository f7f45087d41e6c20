"""The picture that an outside consumer has: the events that were sent, and the decisions that were published.

It is folded here by its own rules from bytes alone. Neither the ledger nor the worker's state is asked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import orjson

from domain.model.profiles import BUILT_IN_PROFILES
from services.codec.partition import partition_for
from services.ports.log import Record
from tests.simulation.facts import Events, Node, Pod, moment_ms, why_not, why_not_beside
from tests.simulation.invariants import Findings, Invariant
from tests.simulation.lent import Known, Lent
from tests.simulation.promises import Promises
from tests.simulation.tape import Commit

PLACED = ("bound", "adopted", "resized", "orphaned", "returned")
WAITS = (
    *("unschedulable", "unresolvable", "gang-waiting", "conflict"),
    *("nominated", "cleared", "bind-failed"),
)
HUGE = "node-huge"
"""The node of the end of the day, which has room for every pod."""

PICTURED_EVERY = 7
"""Of how many transactions one is kept as it left the cluster."""

_NOWHERE = Node(gone=True)

Placed = dict[str, tuple[str, Pod]]
"""Uid -> the node that a pod is on, and the pod."""


@dataclasses.dataclass(slots=True)
class Life:
    """What the decisions of one pod have said so far."""

    node: str = ""
    node_gone: bool = False
    waits: bool = False
    released: bool = False
    version: int = 0
    outcome: str = ""
    shard: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """What held right after a transaction, by the log and the decisions alone.

    ``nodes`` says what each node that there is offers, ``placed`` on which node each pod is, by uid. Pods
    that are ``waiting`` were told so; others that are ``alive`` may wait, too.
    """

    number: tuple[int, int]
    nodes: Mapping[str, Mapping[str, int]]
    placed: Mapping[str, str]
    waiting: Set[str]
    alive: Set[str]


@dataclasses.dataclass(slots=True)
class Step:
    """What a decision changed on a node: ``pod`` counts there from now on, or ``uid`` no longer does.

    ``is_sure`` is whether the transaction gave the node that version. Who follows the end of a node names the
    version that it knows, which lags behind where somebody raised it without a word.
    """

    version: int | None
    order: tuple[int, int]
    outcome: str
    uid: str
    pod: Pod | None
    is_sure: bool


def consumed(records: Iterable[Record]) -> tuple[list[bytes], int]:
    """Return what a consumer has by the rule that consumers are told, and how many runs repeat that.

    Only the seq after the last one is taken each time: where the log loses its last records, a relay may
    append once before it sees that. Under a name of the ledger that was not there before, all that was
    taken from the record's seq on is void; what comes under an earlier name is dropped.
    """
    taken: list[bytes] = []
    runs_again, again, name, earlier = 0, False, None, set[bytes | None]()
    for record in records:
        if record.ledger in earlier:
            continue
        payload, _, _ = (record.value or b"").rpartition(b',"recorded_at":"')
        payload += b"}"
        seq = orjson.loads(payload)["seq"]
        if record.ledger != name:
            earlier, name, again = earlier | {name}, record.ledger, False
            del taken[seq - 1 :]
        if seq <= len(taken):
            same = taken[seq - 1] == payload
            runs_again += same and not again
            again = same
            continue
        again = False
        if seq == len(taken) + 1:
            taken.append(payload)
    return taken, runs_again


class Outside:
    """Folds published decisions over sent events.

    ``shard_counts`` says how many shards there were after each addition; for ``reserves`` see ``Promises``.
    """

    def __init__(
        self, events: Events, findings: Findings, shard_counts: Sequence[int] = (), *, reserves: bool = False
    ) -> None:
        self.events = events
        self.promises = Promises(findings, reserves=reserves)
        self.gangs_count = 0  # of transactions, each of which placed pods of a gang
        self.workloads_count = 0  # of those of Workloads
        self.lent = Lent(events)
        self._known = Known(0, 0, 0)  # to the worker of the present transaction, of what is lent
        self._first: set[str] | None = None  # uids of pods that were placed when it began to bind
        self._shard_counts = shard_counts
        self.lives: dict[str, Life] = {}
        self.decisions: dict[int, list[bytes]] = {}  # of each shard, each once, without when it was recorded
        self.runs_again = 0  # of records that were published before
        self._findings = findings
        self._told: dict[tuple[int, int], Mapping[str, Any]] = {}  # by shard and seq
        self._steps: dict[str, list[Step]] = {}
        self._gangs_bound: dict[str, str] = {}  # of the present transaction: gang -> what it did
        self._left: dict[tuple[str, str], list[tuple[int, int]]] = {}  # (node, uid) -> its moves elsewhere
        self._knows_order = True
        self._commit = Commit((), ())
        self.pictures: list[Picture] = []  # of some transactions, as long as the log has all that was taken
        self._is_whole = True
        self._undone: list[tuple[Commit, dict[str, Node], Placed]] = []  # what facts were before each commit
        self._appeared: dict[str, tuple[int, int]] = {}  # node -> the transaction that brought it
        self._order = 0  # counts decisions as they were committed; one number where their order is not known

    def read(self, shard: int, records: Iterable[Record]) -> None:
        """Take the records of a shard's partition as consumers do."""
        records = list(records)
        for record in records:
            told = orjson.loads(record.value or b"")
            self._require(
                told["shard"] == shard,
                Invariant.OTHER_TIMELINE,
                f"{told['id']} in the partition of shard {shard}",
            )
        self.decisions[shard], runs_again = consumed(records)
        self.runs_again += runs_again
        told = {(shard, seq): orjson.loads(payload) for seq, payload in enumerate(self.decisions[shard], 1)}
        self._told |= told

    def follow(self, commits: Sequence[Commit], is_overwritten: Callable[[Commit], bool]) -> None:
        """Fold the events of one transaction after another, each before what was decided in it.

        ``is_overwritten`` says that the log holds something else by now than what a transaction took.
        """
        nodes, placed = self._now()
        for number, commit in enumerate(commits):
            self._commit, self._knows_order = commit, commit.is_ordered
            self._order += 1
            known = {name for name, at in self._appeared.items() if commit.knows(*at)}
            for record in commit.records:
                self.events.fold(record)
            self._judge_refused(known)
            if 0 in commit.own:
                self.lent.end_batch(commit.number[1])
            self._known, self._first = self.lent.known(commit.usage_batch, commit.log_time_ms), None
            for at in commit.decided:
                if (told := self._told.pop(at, None)) is not None:
                    self._live(told)
                    self._judge_version(told, commit.versions)
            self._judge_gangs()
            before, (nodes, placed) = (nodes, placed), self._now()
            self._is_whole = self._is_whole and not is_overwritten(commit)
            if self._is_whole and number % PICTURED_EVERY == 0:
                self.pictures.append(self._picture())
            self._undone.append((commit, _differ(before[0], nodes), _facts(before[1], placed, self.lives)))
        self._knows_order = False
        for told in self._told.values():  # that no transaction decided
            self._live(told)

    def _picture(self) -> Picture:
        live = {name: states[-1] for name, states in self.events.nodes.items() if not states[-1].gone}
        return Picture(
            self._commit.number,
            {name: node.offers for name, node in live.items()},
            {uid: life.node for uid, life in self.lives.items() if life.node},
            {uid for uid, life in self.lives.items() if life.waits},
            {pod.uid for pod in self.events.alive.values()},
        )

    def _judge_refused(self, known: Set[str]) -> None:
        """A measurement is refused only where its worker may not have known the node."""
        nodes = self.events.nodes
        for name in self.events.refused:
            was_gone = any(state.gone for state in nodes.get(name, ()))
            what = f"a measurement of {name} is refused, and the node was known"
            self._require(was_gone or name not in known, Invariant.LOST_USAGE, what)
        self.events.refused.clear()
        for name in nodes.keys() - self._appeared.keys():
            self._appeared[name] = self._commit.number

    def _require(self, holds: bool, invariant: Invariant, message: str) -> None:
        self._findings.require(holds, invariant, message)

    def _judge_version(self, told: Mapping[str, Any], versions: Mapping[str, tuple[int, int]]) -> None:
        """The version that a decision names is one that its transaction gave the node."""
        if told["node"] in versions and told["node_version"] is not None:
            before, after = versions[told["node"]]
            what = (
                f"{told['id']}: {told['node']} v{told['node_version']}, and it went from {before} to {after}"
            )
            of_then = told["outcome"] in ("orphaned", "returned")  # the node may have changed again meanwhile
            self._require(of_then or before < told["node_version"] <= after, Invariant.VERSION_CHAIN, what)

    def _judge_gangs(self) -> None:
        """Of each gang of which a transaction placed pods, as many run now as its PodGroup asks for.

        Who holds shard 0 takes its changes itself; another worker may know any of its states.
        """
        for gang, who in self._gangs_bound.items():
            states = [least for _, least in self.events.states_of(gang)]
            may_know = states[-1:] if 0 in self._commit.own else [each for each in states if each is not None]
            found = sum(pod.gang == gang for _, pod in self._now()[1].values())
            enough = any(least is not None and found >= least for least in may_know)
            self._require(enough, Invariant.PART_OF_GANG, f"{who}: {found} of {gang} run, of {may_know}")
            self.gangs_count += 1
            self.workloads_count += ":" in gang
        self._gangs_bound.clear()

    # ------------------------------------------------------------------------------------- lives of pods

    def _live(self, decision: Mapping[str, Any]) -> None:
        """Check one decision against the pod's life so far and the event that it names."""
        told, outcome, node = decision["pod"], decision["outcome"], decision["node"] or ""
        uid, version = told["uid"], int(told["resource_version"] or 0)
        who = f"{decision['id']}: {outcome} {uid} v{version} {node}"
        life = self.lives.setdefault(uid, Life())
        pod = self.events.said.get((uid, version))
        if pod is None or pod.key != f"{told['namespace']}/{told['name']}":
            self._require(False, Invariant.PHANTOM_DECISION, f"{who}: no such event was sent")
            return
        asked = decision["template"]["requests"] == pod.requests and decision["labels"] == pod.labels
        self._require(asked, Invariant.PHANTOM_DECISION, f"{who}: the event asks for something else")
        if outcome in ("evicted", "spared"):  # of the preemptor's shard, whatever the victim's own has said
            self.promises.tell(decision, pod, life.node, who)
            return
        homes = {partition_for(pod.key.encode(), None, count) for count in self._shard_counts}
        own = decision["shard"] in homes | self.events.homes[pod.key]
        self._require(
            own, Invariant.FOREIGN_DECISION, f"{who}: its events are in {self.events.homes[pod.key]}"
        )
        newer = version >= life.version
        self._require(newer, Invariant.OLD_EVENT_WON, f"{who}: version {life.version} was known")
        if outcome != "released":
            alive = self.events.alive.get(pod.key)
            is_back = alive is not None and alive.uid == uid  # with a version newer than its end
            self._require(not life.released or is_back, Invariant.GHOST, f"{who}: it was released before")
        self._follow(life, decision, pod, who)
        beside = self._beside(node) if outcome == "nominated" and self._knows_order else None
        if beside is not None and decision["preemption"]["victims"]:
            self._judge_leaving(pod, who)
        self.promises.fold(decision, pod, beside, who)
        self._place(life, decision, pod)
        life.version, life.outcome, life.shard = version, outcome, decision["shard"]

    def _follow(self, life: Life, decision: Mapping[str, Any], pod: Pod, who: str) -> None:
        """Check that an outcome can follow the one before."""
        node = decision["node"] or ""
        match decision["outcome"]:
            case "bound":
                self._require(not life.node, Invariant.DOUBLE_PLACEMENT, f"{who}: it is on {life.node}")
                why = self._why_not_beside(node, pod)
                self._require(not why, Invariant.INFEASIBLE_PLACEMENT, f"{who}: {why}")
                self._judge_lent(node, pod, who)
                self._require(not pod.node, Invariant.PHANTOM_DECISION, f"{who}: it runs on {pod.node}")
                if pod.gang:
                    self._gangs_bound[pod.gang] = who
            case "adopted":
                self._require(pod.node == node, Invariant.PHANTOM_DECISION, f"{who}: it is on {pod.node!r}")
            case "resized":
                self._require(life.node == node != "", Invariant.WRONG_LIFE, f"{who}: it is on {life.node!r}")
            case "bind-failed":
                self._require(life.node == node != "", Invariant.WRONG_LIFE, f"{who}: it is on {life.node!r}")
                said = (decision["pod"]["uid"], node) in self.events.failed
                self._require(said, Invariant.PHANTOM_DECISION, f"{who}: nobody said so")
            case "orphaned" | "returned" as outcome:
                told = life.node == node and life.node_gone == (outcome == "returned")
                self._require(told, Invariant.WRONG_LIFE, f"{who}: it is on {life.node!r}")
            case "released":
                ended = decision["pod"]["uid"] in self.events.ended
                self._require(ended, Invariant.PHANTOM_DECISION, f"{who}: nothing ended it")
                known = life.node == node and not life.released
                self._require(known, Invariant.WRONG_LIFE, f"{who}: after {life}")
            case _:
                self._require(not life.node, Invariant.WRONG_LIFE, f"{who}: it is on {life.node!r}")

    def _beside(self, name: str) -> tuple[Node, dict[str, Pod]]:
        """Return a node as it is now, and the pods on it by uid."""
        nodes, placed = self._now()
        return nodes.get(name, _NOWHERE), {uid: pod for uid, (on, pod) in placed.items() if on == name}

    def _judge_leaving(self, pod: Pod, who: str) -> None:
        """Nobody is evicted for a pod while others leave the node that another scheduler named for it.

        But where the node refuses it whoever leaves. What others did may not be known to its worker yet.
        """
        if not pod.named_node or any(not self._commit.knows(*each[0].number) for each in self._undone):
            return
        node, there = self._beside(pod.named_node)
        leaving = [each.uid for each in there.values() if each.leaves and each.priority < pod.priority]
        waits = leaving and not why_not(node, (), pod)
        self._require(not waits, Invariant.WRONG_NOMINATION, f"{who}: {leaving} leave {pod.named_node}")

    def _judge_lent(self, node: str, pod: Pod, who: str) -> None:
        """A pod that borrows finds room by the latest measurement that its worker knew."""
        states, placed = self.events.nodes.get(node, []), self._now()[1]
        if self._first is None:
            self._first = set(placed)
        if not pod.borrows or not self._knows_order or not states:
            return
        there = {uid: other for uid, (on, other) in placed.items() if on == node}
        why = self.lent.why_not(self._known, node, states, there, self._first, pod)
        self.lent.pods_count += 1
        name = Invariant.STALE_VIEW if why.startswith("stale") else Invariant.LENT_TWICE
        self._require(not why, name, f"{who}: {why}")

    def _now(self) -> tuple[dict[str, Node], Placed]:
        """Return all nodes, and where each pod is."""
        nodes = {name: states[-1] for name, states in self.events.nodes.items()}
        alive = {pod.uid: pod for pod in self.events.alive.values()}
        on = ((uid, self.lives.get(uid)) for uid in alive)
        return nodes, {uid: (life.node, alive[uid]) for uid, life in on if life is not None and life.node}

    def _why_not_beside(self, name: str, pod: Pod) -> str:
        """Return why pods of other nodes refuse a pod on a node.

        It may come either as all of it is now, or as it would be without the facts of other workers that its
        own did not know yet: nobody guards these. Where others placed pods counts in any case.
        """
        if not self._knows_order:
            return ""
        nodes, placed = self._now()
        why = _why_beside(name, nodes, placed, pod)
        if why:
            unknown = [each for each in self._undone if not self._commit.knows(*each[0].number)]
            for _, nodes_before, placed_before in reversed(unknown):
                nodes |= nodes_before
                placed |= placed_before
            why = _why_beside(name, nodes, placed, pod) if unknown else why
        return why

    def _place(self, life: Life, decision: Mapping[str, Any], pod: Pod) -> None:
        node, outcome = decision["node"] or "", decision["outcome"]
        self._order += self._knows_order
        order = self._order, decision["seq"]
        if node and outcome != "cleared":
            stays = None if outcome in ("released", "nominated", "bind-failed") else pod
            version, (before, after) = decision["node_version"], self._commit.versions.get(node, (0, 0))
            step = Step(version, order, outcome, pod.uid, stays, before < (version or 0) <= after)
            self._steps.setdefault(node, []).append(step)
        if life.node and life.node != node:
            self._left.setdefault((life.node, pod.uid), []).append(order)
        life.node = node if outcome in PLACED else ""
        at_ms = moment_ms(decision["decided_at"])
        self.lent.place(pod.uid, life.node, at_ms, is_sure=decision["node_version"] is not None)
        life.node_gone = "node-deleted" in decision["reasons"]
        life.waits = outcome in WAITS
        life.released = outcome == "released"

    # -------------------------------------------------------------------------------------- nodes in turn

    def judge_nodes(self) -> None:
        """Judge each ``bound`` on what the node was then."""
        for name, steps in self._steps.items():
            self._judge_node(name, steps)

    def _judge_node(self, name: str, steps: list[Step]) -> None:
        """Walk through the versions of a node.

        Each change of the node itself, and each pod that comes or goes, raises the version by one. So the
        node can have changed between two decisions only as often as versions are missing between them.
        """
        steps.sort(key=lambda s: (s.version is not None, s.version or 0, s.order))
        states, at, last, spare = self.events.nodes.get(name, []), -1, 0, 0
        there: dict[str, Step] = {}
        for step in steps:
            told_together = step.outcome in ("orphaned", "returned")
            if told_together and not step.is_sure:
                was_so = any(state.gone == (step.outcome == "orphaned") for state in states)
                what = f"{name} v{step.version}: {step.outcome} {step.uid}: no event says so"
                self._require(was_so, Invariant.VERSION_CHAIN, what)
            elif step.version is not None:
                cost = 0 if told_together else 1 + (step.outcome == "resized")
                spare += step.version - last - cost
                last = step.version
                chained = spare >= 0
                what = f"{name} v{step.version}: {step.outcome} {step.uid}"
                self._require(chained, Invariant.VERSION_CHAIN, f"{what}: another decision has that version")
                if told_together:
                    gone = step.outcome == "orphaned"
                    found = self._next_state(states, at, spare, gone=gone)
                    # Its worker may not have known yet what others had done to the node since.
                    was_so = found >= 0 or any(state.gone == gone for state in states[:at])
                    self._require(was_so, Invariant.VERSION_CHAIN, f"{what}: no event says so")
                    spare, at = spare - max(found - at, 0), max(found, at)
                elif step.outcome == "bound" and step.pod is not None:
                    moved = self._judge_bound(
                        what, states, at, spare, self._certainly(name, there, step), step
                    )
                    spare, at = spare - moved, at + moved
            if step.pod is None:
                there.pop(step.uid, None)
            elif step.is_sure or not told_together:  # else it names an older version than it came with
                there[step.uid] = step

    def _certainly(self, name: str, there: Mapping[str, Step], step: Step) -> list[Pod]:
        """Return the pods that are on a node for certain: not those that may have moved elsewhere by then."""
        pods = []
        for uid, came in there.items():
            left = next((order for order in self._left.get((name, uid), ()) if order > came.order), None)
            # Who came before the node was known counts from when its own worker says so, which no byte tells.
            stays = came.version is not None and (left is None or left[0] > step.order[0])
            if stays and uid != step.uid and came.pod is not None:
                pods.append(came.pod)
        return pods

    def _next_state(self, states: list[Node], at: int, spare: int, *, gone: bool) -> int:
        for index in range(max(at, 0), min(at + spare, len(states) - 1) + 1):
            if states[index].gone == gone:
                return index
        return -1

    def _judge_bound(
        self, what: str, states: list[Node], at: int, spare: int, there: list[Pod], step: Step
    ) -> int:
        """Check a placement on the states that the node may have been in; return how many it moved on."""
        assert step.pod is not None
        why = ""
        for index in range(max(at, 0), min(at + max(spare, 0), len(states) - 1) + 1):
            why = why_not(states[index], there, step.pod)
            if not why:
                return index - at
        why = why or "unknown node"
        name = Invariant.OVER_CAPACITY if why.startswith("over") else Invariant.INFEASIBLE_PLACEMENT
        self._require(False, name, f"{what}: {why}")
        return 0

    # ----------------------------------------------------------------------------------- the end of the day

    def judge_end(self) -> None:
        """Check that what was said last agrees with the events: nobody is lost, nobody waits for nothing."""
        self._knows_order = True
        self._undone.clear()
        self._known = self.lent.known(None, self._known.now_ms)
        alive = {pod.uid: pod for pod in self.events.alive.values()}
        on: dict[str, list[Pod]] = {}
        for uid, life in self.lives.items():
            if uid in alive and life.node:
                on.setdefault(life.node, []).append(alive[uid])
            fine = uid in alive or not (life.node or life.waits)
            self._require(fine, Invariant.UNRELEASED, f"{uid} is gone, and its last word is {life}")
        for uid, pod in alive.items():
            life = self.lives.get(uid, Life())
            heard = bool(life.node) or life.waits
            self._require(heard, Invariant.LOST_POD, f"{uid} ({pod.key}): {life}")
            if pod.node:
                there = f"{uid} runs on {pod.node}: {life}"
                self._require(life.node == pod.node, Invariant.LOST_POD, there)
            if life.node in self.events.nodes:
                gone = self.events.nodes[life.node][-1].gone
                self._require(gone == life.node_gone, Invariant.UNTOLD, f"{life.node} of {uid}: {life}")
            self._require(life.outcome != "conflict", Invariant.NOT_RETRIED, f"{uid} ({pod.key}): {life}")
            if life.waits and uid not in self.promises.open:
                self._judge_waiting(pod, on)

    def _judge_waiting(self, pod: Pod, on: Mapping[str, list[Pod]]) -> None:
        """A pod may wait at the end only where every node refuses it, or the log lost its profile."""
        profiles = self.events.profiles.get(pod.profile)
        if pod.profile not in BUILT_IN_PROFILES and (profiles is None or profiles[-1][1] is None):
            return
        if pod.gang and not self._is_complete(pod):
            return
        for name, states in self.events.nodes.items():
            if (pod.uid, name) in self.events.failed:
                continue  # it is kept off the node for a while
            promised = [e.pod for e in self.promises.open.values() if e.node == name]
            there = [*on.get(name, ()), *(other for other in promised if other.priority >= pod.priority)]
            why = why_not(states[-1], there, pod) or self._why_not_beside(name, pod)
            why = why or self._why_not_lent(name, pod, there)
            self._require(bool(why), Invariant.NOT_DRAINED, f"{pod.uid} fits {name}")

    def _why_not_lent(self, name: str, pod: Pod, there: Sequence[Pod]) -> str:
        """Return why a node lends a pod nothing at the end; of one that went and came it is not known."""
        states = self.events.nodes[name]
        if not pod.borrows or any(state.gone for state in states):
            return "unknown" if pod.borrows else ""
        on_it = {each.uid: each for each in there}
        return self.lent.why_not(self._known, name, states, on_it, on_it, pod, at_most=True)

    def _is_complete(self, pod: Pod) -> bool:
        """Say whether certainly enough pods of a pod's gang have a node, or would fit the one with most room.

        Those count that get in nobody's way, and of one shard: each counts its own.
        """
        states = self.events.states_of(pod.gang)
        least = states[-1][1] if states else None
        if least is None:
            return False
        shard = self.lives[pod.uid].shard
        of_gang = (each for each in self.events.alive.values() if each.gang == pod.gang)
        members = [each for each in of_gang if each.uid in self.lives and self.lives[each.uid].shard == shard]
        plain = [each for each in members if not (each.ports or each.avoids or each.spread)]
        room = [states[-1] for name, states in self.events.nodes.items() if name == HUGE]
        fits = [p for p in plain if not self.lives[p.uid].node and room and not why_not(room[0], [], p)]
        known = [p for p in fits if p.profile in BUILT_IN_PROFILES]
        return sum(bool(self.lives[each.uid].node) for each in members) + len(known) >= least

    def sums(self) -> dict[str, dict[str, int]]:
        """Return what pods ask for on each node, by what was said last."""
        alive = {pod.uid: pod for pod in self.events.alive.values()}
        sums: dict[str, dict[str, int]] = {}
        for uid, life in self.lives.items():
            if life.node and uid in alive:
                total = sums.setdefault(life.node, {"pods": 0})
                total["pods"] += 1
                for name, value in alive[uid].requests.items():
                    total[name] = total.get(name, 0) + value
        return sums


def _why_beside(name: str, nodes: Mapping[str, Node], placed: Placed, pod: Pod) -> str:
    there = {known: node for known, node in nodes.items() if not node.gone}
    others = [(there[node], other) for node, other in placed.values() if node in there]
    return why_not_beside(there[name], others, there.values(), pod) if name in there else ""


def _differ(before: Mapping[str, Node], now: Mapping[str, Node]) -> dict[str, Node]:
    """Return what nodes were before they changed; a new one was nowhere."""
    return {name: before.get(name, _NOWHERE) for name, node in now.items() if before.get(name) is not node}


def _facts(before: Placed, now: Placed, lives: Mapping[str, Life]) -> Placed:
    """Return where pods were that changed, but for those that were placed by a decision."""
    changed = {uid for uid in before.keys() | now.keys() if before.get(uid) != now.get(uid)}
    of_facts = {uid for uid in changed if uid not in now or lives[uid].outcome != "bound"}
    return {uid: before[uid] if uid in before else ("", now[uid][1]) for uid in of_facts}
