"""Measured usage of nodes over sliding windows: what scores and filters read, and what survives a restart.

A window ends at the node's latest measurement, never at a clock's now. It keeps a bounded number of samples
of each resource: the window is cut into spans of equal length, and the latest sample of each span stays. So
only what was measured decides what is kept, not the order in which it came. The highest samples of the day of
the latest measurement, and of the day before, are kept apart.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from domain.colocation.hot_spots import Sample, bad_signs, next_heat
from domain.model.colocation import DEFAULT_POLICY, Amounts, HotSpotRule, UseByQuality
from domain.model.limits import (
    unknown_nodes_measured_max,
    usage_percent_max,
    usage_resources_max,
    usage_samples_max,
    usage_window_seconds,
)
from domain.model.nodes import NodeSpec
from domain.model.resources import CPU, MEMORY
from domain.model.timestamps import NEVER_MS
from domain.model.usage import Measured, NodeUsage, QualityRecord, SeriesRecord, UsageRecord
from domain.model.validation import key_path
from domain.state.changes import NodeMeasured, Refused, Skipped
from domain.state.pod_counters import since_ms, with_counters

USAGE_SHARD = 0
"""The shard whose owner reads and writes what is measured."""

_DAY_MS = 86_400_000


@dataclass(slots=True, eq=False)
class Series:
    """One resource of one node: samples by time, figures that were given, peaks by day."""

    at_ms: array[int] = field(default_factory=lambda: array("q"))
    percent: array[float] = field(default_factory=lambda: array("d"))
    given: Measured | None = None
    given_at_ms: int = 0
    peaks: dict[int, float] = field(default_factory=dict)

    def add(self, at_ms: int, percent: float, span_ms: int) -> None:
        """Keep a sample, unless its span has a later one. A sample of the same moment is replaced."""
        at = bisect_right(self.at_ms, at_ms)
        span = at_ms // span_ms
        if at < len(self.at_ms) and self.at_ms[at] // span_ms == span:
            return
        if at and self.at_ms[at - 1] // span_ms == span:
            self.at_ms[at - 1], self.percent[at - 1] = at_ms, percent
        else:
            self.at_ms.insert(at, at_ms)
            self.percent.insert(at, percent)

    def thin(self, span_ms: int) -> None:
        """Keep the latest sample of each span, when the length of spans has changed."""
        samples = list(zip(self.at_ms, self.percent, strict=True))
        self.at_ms, self.percent = array("q"), array("d")
        for at_ms, percent in samples:
            self.add(at_ms, percent, span_ms)

    def cut(self, after_ms: int, first_day: int) -> None:
        """Drop the samples that the window has left behind, and the peaks of earlier days."""
        gone = bisect_right(self.at_ms, after_ms)
        if gone:
            del self.at_ms[:gone], self.percent[:gone]
        if self.given is not None and self.given_at_ms <= after_ms:
            self.given = None
        for day in [day for day in self.peaks if day < first_day]:
            del self.peaks[day]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not self.at_ms and self.given is None and not self.peaks

    def measured(self, today: int) -> Measured:
        """Return the figures. Those given with the latest measurement go before computed ones."""
        given = Measured()
        if self.given is not None and not (self.at_ms and self.given_at_ms < self.at_ms[-1]):
            given = self.given
        count = len(self.percent)
        average = deviation = latest = None
        if count:
            average = math.fsum(self.percent) / count
            deviation = math.sqrt(math.fsum((value - average) ** 2 for value in self.percent) / count)
            latest = self.percent[-1]
        return Measured(
            avg=average if given.avg is None else given.avg,
            std=deviation if given.std is None else given.std,
            latest=latest if given.latest is None else given.latest,
            peak=self.peaks.get(today - 1),
        )


@dataclass(slots=True, eq=False)
class NodeWindow:
    """The window of one node: a series per resource. ``at_ms`` is that of the latest measurement."""

    at_ms: int = -1
    span_ms: int = 0
    series: dict[str, Series] = field(default_factory=dict)

    def fold(
        self, at_ms: int, percent: Mapping[str, float], given: Mapping[str, Measured], window_ms: int
    ) -> None:
        """Take one measurement. A late one goes to its place, if the window still reaches there."""
        self.at_ms = max(self.at_ms, at_ms)
        after_ms, first_day = self.at_ms - window_ms, self.at_ms // _DAY_MS - 1
        span_ms = math.ceil(window_ms / (usage_samples_max - 1))
        if span_ms != self.span_ms:
            self.span_ms = span_ms
            for series in self.series.values():
                series.thin(span_ms)
        for resource in (percent.keys() | given.keys()) - self.series.keys():
            self.series[resource] = Series()
        if at_ms > after_ms:
            for resource, value in percent.items():
                self.series[resource].add(at_ms, value, span_ms)
            for resource, figures in given.items():
                series = self.series[resource]
                if series.given is None or at_ms >= series.given_at_ms:
                    series.given, series.given_at_ms = figures, at_ms
        day = at_ms // _DAY_MS
        latest = ((name, figures.latest) for name, figures in given.items() if figures.latest is not None)
        for resource, value in chain(percent.items(), latest):
            peaks = self.series[resource].peaks
            peaks[day] = max(value, peaks.get(day, 0.0))
        for resource, series in list(self.series.items()):
            series.cut(after_ms, first_day)
            if series.is_empty:
                del self.series[resource]

    def measured(self) -> dict[str, Measured]:
        """Return the figures of every resource."""
        today = self.at_ms // _DAY_MS
        return {resource: series.measured(today) for resource, series in self.series.items()}

    def record(self, node: str) -> UsageRecord:
        """Return the window as a value, in one fixed order."""
        return UsageRecord(
            node=node,
            at_ms=self.at_ms,
            series=dict(map(self._written, sorted(self.series))),
        )

    def _written(self, resource: str) -> tuple[str, SeriesRecord]:
        series = self.series[resource]
        return resource, SeriesRecord(
            ago_ms=[self.at_ms - at_ms for at_ms in series.at_ms],
            percent=series.percent.tolist(),
            given=series.given,
            given_ago_ms=0 if series.given is None else self.at_ms - series.given_at_ms,
            peaks=dict(sorted(series.peaks.items())),
        )


def window_of(record: UsageRecord) -> NodeWindow:
    """Return the window of which a record was made."""
    window = NodeWindow(record.at_ms)
    for resource, written in record.series.items():
        window.series[resource] = Series(
            at_ms=array("q", (record.at_ms - ago_ms for ago_ms in written.ago_ms)),
            percent=array("d", written.percent),
            given=written.given,
            given_at_ms=record.at_ms - written.given_ago_ms,
            peaks=dict(written.peaks),
        )
    return window


class Figures(Mapping[str, Mapping[str, Measured]]):
    """Node -> resource -> figures of its window, computed when they are asked for after a measurement.

    Where no profile in force reads them, a measurement does not cost them.
    """

    def __init__(self, windows: Mapping[str, NodeWindow]) -> None:
        self._windows = windows
        self._known: dict[str, Mapping[str, Measured]] = {}

    def __getitem__(self, node: str) -> Mapping[str, Measured]:
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._windows[node].measured()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._windows)

    def __len__(self) -> int:
        return len(self._windows)

    def forget(self, node: str) -> None:
        """Compute the figures of a node anew when they are asked for next."""
        self._known.pop(node, None)


class UsageWindows:
    """The windows of all nodes.

    Attributes
    ----------
    windows : dict
        Node -> its window. Nodes that are not known yet have one too, up to a bound.
    qualities : dict
        Node -> what was measured by quality, for those of which anything was.
    covered_ms : dict
        Node -> log time of placement up to which its latest measurement covers pods (``settling.py``).
    measured : Figures
        Node -> resource -> figures.
    unknown : set of str
        Nodes that were measured but are not known yet.

    Parameters
    ----------
    window_seconds : int
        Length of the window of a node that does not say another length itself.
    """

    def __init__(self, window_seconds: int = usage_window_seconds) -> None:
        self._window_seconds = window_seconds
        self.windows: dict[str, NodeWindow] = {}
        self.qualities: dict[str, QualityRecord] = {}
        self.covered_ms: dict[str, int] = {}
        self.measured = Figures(self.windows)
        self.unknown: set[str] = set()

    def fold(
        self, usage: NodeUsage, spec: NodeSpec | None, hot_spot: HotSpotRule = DEFAULT_POLICY.hot_spot
    ) -> NodeMeasured | Refused | Skipped:
        """Take one measurement of a node, whose spec is None while it is not known.

        ``hot_spot`` says what makes the node hot, where it is measured by quality.
        One that is told with its window is taken as it was folded elsewhere, whatever is known of the node.
        Cost: O(samples in the window).
        """
        percent = _as_percent(usage, spec)
        if isinstance(percent, Refused):
            return percent
        window = self.windows.get(usage.node)
        if window is None:
            is_first = usage.window_seconds is msgspec.UNSET
            if is_first and spec is None and len(self.unknown) >= unknown_nodes_measured_max:
                message = (
                    f"{usage.node!r} is not known, as {unknown_nodes_measured_max} measured nodes are not"
                )
                return Refused("object.metadata.name", f"{message} (unknown_nodes_measured_max)")
            window = NodeWindow()
        names = window.series.keys() | percent.keys() | usage.window.keys()
        if len(names) > usage_resources_max:
            message = f"brings more resources than a node may have measured ({usage_resources_max}"
            return Refused("object", f"{message}, usage_resources_max)")
        seconds = (0 if spec is None else spec.usage_window_seconds) or self._window_seconds
        if usage.window_seconds is not msgspec.UNSET:
            seconds = usage.window_seconds
        newer = usage.at_ms > window.at_ms
        window.fold(usage.at_ms, percent, usage.window, seconds * 1000)
        self._keep(usage.node, window, known=spec is not None)
        if usage.quality is not msgspec.UNSET:
            use = usage.quality
            if usage.signs is msgspec.UNSET:
                signs = bad_signs(hot_spot, capacity_of(spec), _sample(usage, use))
                usage = msgspec.structs.replace(usage, signs=signs)
            self._fold_quality(usage, use, hot_spot)
        if (
            usage.used or seconds != self._window_seconds
        ):  # else all workers fold it alike, whatever they know of the node
            usage = msgspec.structs.replace(usage, percent=percent, used={}, window_seconds=seconds)
        return NodeMeasured(usage.node, newer, usage)

    def _fold_quality(self, usage: NodeUsage, use: UseByQuality, hot_spot: HotSpotRule) -> None:
        """Take what was measured by quality: of the use the latest alone, of pods what is newer of each."""
        known = self.qualities.get(usage.node) or QualityRecord(at_ms=-1, use=use)
        if usage.at_ms > known.at_ms:
            heat = next_heat(hot_spot, known.heat, usage.signs or ())
            known = msgspec.structs.replace(known, at_ms=usage.at_ms, use=use, heat=heat)
        if known.since_ms == NEVER_MS:
            known = msgspec.structs.replace(known, since_ms=since_ms(usage))
        if usage.pods is not msgspec.UNSET:
            known = with_counters(known, usage.at_ms, usage.pods)
        self.qualities[usage.node] = known

    def _keep(self, node: str, window: NodeWindow, *, known: bool) -> None:
        self.windows[node] = window
        self.measured.forget(node)
        if not known:
            self.unknown.add(node)

    def forget(self, node: str) -> bool:
        """Drop a node's window; say whether there was one."""
        self.measured.forget(node)
        self.qualities.pop(node, None)
        self.covered_ms.pop(node, None)
        self.unknown.discard(node)
        return self.windows.pop(node, None) is not None

    def restore(self, record: UsageRecord, *, known: bool) -> None:
        """Restore a node's window from the ledger."""
        self._keep(record.node, window_of(record), known=known)
        if record.quality is not None:
            self.qualities[record.node] = record.quality

    def record(self, node: str) -> UsageRecord:
        """Return a node's window as a value, which may be empty."""
        window = self.windows.get(node)
        if window is None:
            return UsageRecord(node=node, at_ms=0, series={})
        return msgspec.structs.replace(window.record(node), quality=self.qualities.get(node))

    def known(self) -> dict[str, object]:
        """Return what must be equal in equal states."""
        written = {node: window.record(node).series for node, window in sorted(self.windows.items())}
        known = {node: msgspec.to_builtins(series, str_keys=True) for node, series in written.items()}
        return known | {f"{node}/quality": each for node, each in sorted(self.qualities.items())}


def capacity_of(spec: NodeSpec | None) -> Amounts:
    """Return the cpu and memory that a node has, or that it offers where no capacity is given."""
    offered = _offered(spec)
    return Amounts(offered.get(CPU, 0), offered.get(MEMORY, 0))


def _offered(spec: NodeSpec | None) -> Mapping[str, int]:
    return {} if spec is None else spec.capacity or spec.allocatable


def _sample(usage: NodeUsage, use: UseByQuality) -> Sample:
    return Sample(
        use.total,
        None if usage.pressure is msgspec.UNSET else usage.pressure,
        None if usage.latency is msgspec.UNSET else max(usage.latency.values(), default=None),
    )


def _as_percent(usage: NodeUsage, spec: NodeSpec | None) -> dict[str, float] | Refused:
    """Return all samples in percent of the node's capacity, or of what it offers if that is not given."""
    if not usage.used:
        return usage.percent
    capacity = _offered(spec)
    percent = dict(usage.percent)
    for resource, value in usage.used.items():
        path, whole = key_path("object.used", resource), capacity.get(resource, 0)
        if not whole:
            missing = "the node is not known" if spec is None else f"the node has no {resource}"
            return Refused(path, f"is not of a known capacity: {missing}; percent can be given instead")
        percent[resource] = 100.0 * value / whole
        if percent[resource] > usage_percent_max:
            message = f"is more than {usage_percent_max} percent of {whole} (usage_percent_max)"
            return Refused(path, message)
    return percent
