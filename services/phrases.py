"""Reason codes and counts in plain English, as answers and the command line say them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Protocol

from domain.manifests.codes import UNSUPPORTED
from domain.model.config import GROUP_MARK
from domain.model.decisions import GangSeen
from domain.model.devices import DEVICE_ONE
from domain.model.limits import gang_members_max

_UNKNOWN_PROFILE = "unknown-profile:"
_OF_NO_PLUGIN = {
    "unsupported": "were not tried: this version does not honour",
    "scheduling-gated": "were not tried: the pod still has the gate",
    "unknown-profile": "were not tried: there is no profile",
    "unknown-priority-class": "were not tried: there is no priority class",
    "gang-unknown": "were not tried: the PodGroup, or the Workload's group, of the pod's gang does not exist",
    "gang-incomplete": "were not tried: too few pods of the gang exist",
    "gang-too-large": f"were not tried: more than {gang_members_max:,} pods of the gang wait",
    "gang-promised": "were not tried: nodes are nominated for other pods of the gang",
    "gang-too-varied": "were not tried: the pods of the gang differ too much to be looked at together",
    "gang-resources": "were not tried: for the gang, all nodes together have too little",
    "gang-topology": "were not tried: no single domain has room for all of the gang by",
    "gang-domain": "are in another domain than the gang is tried in",
    "too-many-rules": "were not tried: the pod asks too much of other pods",
    "too-many-wide-terms": (
        "were not tried: its namespace has too many different affinity terms over all others"
    ),
    "no-nodes": "nodes exist",
    "overcommitted": "are overcommitted in",
    "node-unknown": "are not known",
    "conflict": "were changed by another worker first",
    "node-deleted": "were deleted",
    "others": "have other reasons",
}
_SINGULAR = {"are": "is", "were": "was", "have": "has", "hold": "holds", "do": "does", "lack": "lacks"}


@cache
def _phrases() -> Mapping[str, str]:
    """Return the phrase per kind of reason. Plugins are imported at the first call."""
    from domain.plugins.registry import FILTERS

    found = dict(_OF_NO_PLUGIN)
    for plugin in FILTERS.values():
        found |= plugin.phrases
    return found


def unknown_profile(reasons: Iterable[str]) -> str | None:
    """Return the profile that a pod names and that does not exist, where that is why it waits."""
    found = (code.removeprefix(_UNKNOWN_PROFILE) for code in reasons if code.startswith(_UNKNOWN_PROFILE))
    return next(found, None)


def held_for_profile(name: str, *, is_past: bool = False) -> str:
    """Return that a pod is held, or was, because the profile that it names does not exist."""
    if is_past:
        return f"no profile {name} existed, so it was held until one of that name came"
    return f"no profile {name} exists, so it is held until one of that name comes"


def lost_its_node(node: str, *, is_past: bool = False) -> str:
    """Return what it is to a pod that its node is deleted, or was."""
    if is_past:
        return f"had lost its node {node} and counted nowhere, until a node of that name would return"
    return f"lost its node {node} and counts nowhere; it counts there again when a node of that name returns"


def nothing_says(gang: str) -> str:
    """Return what a gang of a name lacks, of which nothing says how many pods must have a node."""
    return f"there is no such {'group of a Workload' if GROUP_MARK in gang else 'PodGroup'}"


def too_few_exist(count: int, least: int) -> str:
    """Return how many pods of a gang exist, of how many."""
    return f"{count} of at least {least} pods exist"


def gang_in_words(gang: GangSeen, why: str) -> str:
    """Return what a gang lacks: pods, or a node for the first pod that found none. ``why`` may be empty."""
    within = f" in {gang.domain}" if gang.domain else ""
    least, there = gang.min_member, gang.placed_count + gang.waiting_count
    if gang.missing:
        found = gang.placed_count + gang.found_count
        first = f"{gang.missing}: {why}" if why else f"{gang.missing} finds none"
        why = f"{found} of at least {least} pods find a node{within}; {first}"
    elif not least:
        why = nothing_says(gang.name)
    elif there < least:
        why = too_few_exist(there, least)
        why += f" beside {gang.elsewhere_count} of other shards" if gang.elsewhere_count else ""
    return f"gang {gang.name}: {why}" + (f"; it fails for {gang.late_seconds} s" if gang.late_seconds else "")


class SeenRule(Protocol):
    """A rule over other pods and what it saw: see ``domain.model.decisions.RuleSeen``."""

    @property
    def text(self) -> str: ...
    @property
    def count_max(self) -> int | None: ...
    @property
    def count_min(self) -> int | None: ...
    @property
    def domains(self) -> Mapping[str, int]: ...


def rule_in_words(rule: SeenRule) -> str:
    """Return a sentence on a rule that refused nodes: what it demands, and what it counted."""
    if rule.count_max is None:
        return f"No pod that it needs is near: {rule.text}."
    found = ", ".join(f"{domain} has {count}" for domain, count in rule.domains.items())
    lowest = "" if rule.count_min is None else f", as the lowest count is {rule.count_min}"
    most = f"At most {rule.count_max}" if rule.count_max > 0 else "None"
    return f"{most} may be there before it{lowest}: {rule.text}{found and f'; {found}'}."


def plural(count: int, noun: str) -> str:
    """Return ``1 node`` or ``1,523 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def reason_in_words(code: str, count: int = 2) -> str:
    """Return the phrase for so many nodes with this reason code: ``lack cpu and memory``, ``is cordoned``."""
    details: dict[str, list[str]] = {}
    for part in code.split(","):
        kind, _, detail = part.partition(":")
        detail = UNSUPPORTED.get(detail, detail) if kind == "unsupported" else detail
        details.setdefault(kind, []).extend([detail] if detail else [])
    said = []
    for kind, names in details.items():
        verb, *rest = _phrases().get(kind, kind.replace("-", " ")).split()
        listed = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
        said.append(
            " ".join([_SINGULAR.get(verb, verb) if count == 1 else verb, *rest, *filter(None, [listed])])
        )
    return " and ".join(said)


def reasons_in_words(reasons: Mapping[str, int], shown_max: int = 4) -> str:
    """Return ``310 lack cpu; 12 are cordoned`` with the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    text = "; ".join(f"{count:,} {reason_in_words(code, count)}" for code, count in ordered[:shown_max])
    more = len(ordered) - shown_max
    return f"{text} and {plural(more, 'more reason')}" if more > 0 else text


def parts_in_words(parts: Mapping[str, float], weights: Mapping[str, float]) -> list[str]:
    """Return ``2*NodeAffinity=50`` per part of a score; without the weight where it is 1 or not known."""
    return [f"{weighted(name, weights.get(name, 1))}={value:.6g}" for name, value in parts.items()]


_REFUSED = re.compile(r"0/(\d+) nodes: (\d+ [^\s;]+(?:; \d+ [^\s;]+)*)", re.ASCII)


def said_in_words(reason: str) -> str:
    """Return a recorded reason with words in the place of its codes: ``of 3 nodes, 2 lack cpu``."""

    def words(found: re.Match[str]) -> str:
        parts = (part.partition(" ") for part in found[2].split("; "))
        said = (f"{int(count):,} {reason_in_words(code, int(count))}" for count, _, code in parts)
        return f"of {plural(int(found[1]), 'node')}, {'; '.join(said)}"

    return _REFUSED.sub(words, reason)


EVICTION_RULE = (
    "Of the nodes where pods could make room, the one is nominated on which the fewest victims violate a "
    "disruption budget; then the one with the lowest priority of the most important victim, the lowest sum "
    "of priorities, the fewest victims, the latest start of the most important victims; of equals a hash of "
    "the seed and the node decides (docs/preemption.md, The node)"
)


def tied_in_words(count: int) -> str:
    """Return how one of some nodes with the same score is chosen."""
    drawn = "of equals one is drawn by a hash of its name and the seed"
    return f"{count} of the best nodes have this score; {drawn}"


def weighted(score: str, weight: float) -> str:
    """Return ``2*NodeAffinity``; a weight of 1 goes without saying."""
    return score if weight == 1 else f"{weight:g}*{score}"


class Evicted(Protocol):
    """Victims on a node, and what their eviction weighs: see ``domain.engine.evaluate.Eviction``."""

    @property
    def node(self) -> str: ...
    @property
    def victims(self) -> Sequence[str]: ...
    @property
    def violations(self) -> int: ...
    @property
    def highest_priority(self) -> int | None: ...
    @property
    def priorities_sum(self) -> int: ...
    @property
    def earliest_start_ms(self) -> int | None: ...


def why_evicted(best: Evicted, others: Sequence[Evicted]) -> str:
    """Return why a node is chosen for its victims: the first criterion by which the next best one differs."""
    if not others:
        return "no other node would do"
    (other,) = others
    if best.violations != other.violations:
        return (
            f"fewer victims violate a disruption budget than on {other.node}, "
            f"{best.violations} against {other.violations}"
        )
    if best.highest_priority != other.highest_priority:
        return (
            f"no victim has a priority above {best.highest_priority}, "
            f"and one has {other.highest_priority} on {other.node}"
        )
    if len(best.victims) != len(other.victims):
        return f"fewer pods go than on {other.node}"
    if best.priorities_sum != other.priorities_sum:
        return (
            f"the priorities of its victims sum to {best.priorities_sum}, "
            f"and to {other.priorities_sum} on {other.node}"
        )
    if best.earliest_start_ms != other.earliest_start_ms:
        return f"its most important victims run for a shorter time than those on {other.node}"
    return f"{other.node} would be as good, and the seed decides"


def devices_in_words(devices: Sequence[int]) -> str:
    """Return ``devices 0 and 3``."""
    *first, last = map(str, devices)
    return f"devices {', '.join(first)} and {last}" if first else f"device {last}"


def devices_taken_in_words(taken: Sequence[int]) -> str:
    """Return ``thousandths taken of each device: 0: 1000, 1: 300``."""
    return "thousandths taken of each device: " + ", ".join(f"{i}: {milli}" for i, milli in enumerate(taken))


def devices_free_in_words(taken: Sequence[int]) -> str:
    """Return ``2 of 4 wholly free; up to 700 free on a shared one``.

    ``taken`` are thousandths, of each device.
    """
    found = f"{taken.count(0)} of {len(taken)} wholly free"
    room = max((DEVICE_ONE - each for each in taken if each), default=0)
    return found + (f"; up to {room} free on a shared one" if room > 0 else "")
