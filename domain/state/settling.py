"""Which pods on a node its measurements cover: those that settled before the latest one was made.

A pod that was bound a second ago has hardly started, so a measurement does not know it yet. It counts by what
it is expected to use until the first measurement made ``settle_seconds`` or more after its placement. When
each pod was placed is in the ledger, so which pods are covered is the same after a restart. Where a node is
measured by quality, only such a measurement covers pods, as long as it may be believed: what is lent follows
from it, and a sample in percent that came since does not change that.
Source: scheduler-plugins, Trimaran, which counts pods of the last 60 seconds before a measurement likewise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from domain.model.limits import usage_ahead_seconds_max
from domain.state.nodes import NodeEntry
from domain.state.occupancy import Occupancy
from domain.state.policies import Policies


def measure_node(of: Occupancy, policies: Policies, node: str, *, newer: bool) -> None:
    """Stamp the row of a node that was measured. The latest measurement covers the pods that settled.

    ``newer``: it may be the latest one, of all or by quality. One by quality that comes late may cover fewer
    pods than samples did that came before.
    """
    entry, row = of.nodes.get(node), of.table.rows.get(node)
    if newer:
        until_ms = _covered_ms(of, policies, node)
        before_ms, of.usage.covered_ms[node] = of.usage.covered_ms.get(node, until_ms), until_ms
        if entry is not None:
            if entry.recent is None:
                entry.recent = set(entry.pods)
            elif until_ms < before_ms:
                _count_all_as_recent(of, node, entry)
            of.sums.cover_pods(row, entry, until_ms)
    if row is not None:
        of.table.touch_usage(row)


def cover_pods(of: Occupancy, placed_ms: Mapping[str, int]) -> None:
    """Let pods (by key) be covered of which it is known only now when they were placed. Cost: O(1) each."""
    covered_ms, pods = of.usage.covered_ms, of.pods
    if not covered_ms:
        return
    known = ((pods[key].node, at_ms) for key, at_ms in placed_ms.items() if key in pods)
    for name in {node for node, at_ms in known if 0 < at_ms <= covered_ms.get(node, 0)}:
        of.sums.cover_pods(of.table.rows.get(name), of.nodes[name], covered_ms[name])


def settle_anew(of: Occupancy, policies: Policies, names: Iterable[str]) -> None:
    """Find again which pods are covered, on nodes where pods may settle in another time than before."""
    for name in names:
        entry = of.nodes.get(name)
        if entry is None or name not in of.usage.covered_ms:
            continue
        until_ms = _covered_ms(of, policies, name)
        if until_ms != of.usage.covered_ms[name] or entry.recent is None:
            of.usage.covered_ms[name] = until_ms
            _count_all_as_recent(of, name, entry)
            of.sums.cover_pods(of.table.rows.get(name), entry, until_ms)


def _count_all_as_recent(of: Occupancy, node: str, entry: NodeEntry) -> None:
    entry.recent = set(entry.pods)
    of.sums.count_recent_anew(of.nodes, (node,))


def follow_policies(of: Occupancy, policies: Policies) -> None:
    """Count recent pods by the policies in force. Cost: O(recent pods); O(pods) for other estimates."""
    rule = policies.of_all.policy.estimate
    if rule != of.table.resources.estimate_rule:
        of.table.resources.expect(rule)
        of.sums.count_recent_anew(of.nodes)
    settle_anew(of, policies, list(of.usage.covered_ms))


def _covered_ms(of: Occupancy, policies: Policies, node: str) -> int:
    """Return the log time of placement up to which the latest measurement of a node covers pods.

    The clock of a measurement may be ahead of the log's, by which the latest one by quality grows old.
    """
    entry = of.nodes.get(node)
    labels = {} if entry is None or entry.spec is None else entry.spec.labels
    rule, at_ms = policies.of(labels).policy.view, of.usage.windows[node].at_ms
    if (known := of.usage.qualities.get(node)) is not None:
        believed_seconds = rule.age_seconds_max + usage_ahead_seconds_max
        if at_ms <= known.at_ms + believed_seconds * 1_000:
            at_ms = known.at_ms
    return at_ms - rule.settle_seconds * 1_000
