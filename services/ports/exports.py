"""What can be exported: the one table of columns, and the port that reads their rows.

The header of a CSV file, the schema of a Parquet file, the views of the schema ``audit`` and docs/export.md
are made from ``SCHEMAS``, or tests hold them to it. A schema whose columns change in what they mean, or lose
one, has a higher version; a new column is added at the end.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import NamedTuple, Protocol

Value = int | float | bool | str | None
ExportRow = Sequence[Value]
"""The values of a row in the order of its schema's columns: a time as milliseconds, JSON as its text."""


class Kind(enum.StrEnum):
    """Of which kind the values of a column are."""

    TEXT = "text"
    INT = "int"
    REAL = "real"
    BOOL = "bool"
    TIME = "time"
    JSON = "json"


class What(enum.StrEnum):
    """What can be exported."""

    DECISIONS = "decisions"
    ATTEMPTS = "attempts"
    PLACEMENTS = "placements"
    NODES = "nodes"
    CONFIG = "config"


class Column(NamedTuple):
    """A column: its name, the kind of its values, their unit ("": none) and what they say."""

    name: str
    kind: Kind
    unit: str
    about: str


class Schema(NamedTuple):
    """The columns of an export; ``time`` is the column that ``since`` and ``until`` are about.

    ``order`` are the columns by which rows come. ``rows_at_once`` are read and written together.
    ``by_namespace`` says whether each row is of a namespace.
    """

    what: What
    version: int
    about: str
    time: str
    order: tuple[str, ...]
    columns: tuple[Column, ...]
    rows_at_once: int
    by_namespace: bool = True

    @property
    def label(self) -> str:
        """Its name and version, as files say it."""
        return f"{self.what}/{self.version}"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(each.name for each in self.columns)


_MILLI, _BYTES, _LOG, _CLOCK = "1/1000 core", "bytes", "log time", "clock of the database"
_ID, _SEQ = "<shard>-<seq>", "number in its shard"


def _text(name: str, about: str, unit: str = "") -> Column:
    return Column(name, Kind.TEXT, unit, about)


def _int(name: str, about: str, unit: str = "") -> Column:
    return Column(name, Kind.INT, unit, about)


def _bool(name: str, about: str) -> Column:
    return Column(name, Kind.BOOL, "", about)


def _time(name: str, about: str, unit: str = _LOG) -> Column:
    return Column(name, Kind.TIME, unit, about)


def _json(name: str, about: str, unit: str = "") -> Column:
    return Column(name, Kind.JSON, unit, about)


_CANONICAL = "cpu in 1/1000 core, else the resource's own"
_SHARD = _int("shard", "Shard that decided")
_POD = (
    _text("namespace", "Namespace of the pod"),
    _text("name", "Name of the pod"),
    _text("pod_uid", "Unique id of the pod"),
    _int("resource_version", "Version of the pod that its producer gave; empty: none"),
)
_REQUESTS = (
    _int("cpu_milli", "What the pod asked for of cpu; 0: nothing", _MILLI),
    _int("memory_bytes", "What the pod asked for of memory; 0: nothing", _BYTES),
    _json("requests", "All that the pod asked for, by resource", _CANONICAL),
    _json("labels", "The pod's labels"),
)
_SIGNATURE = _text("signature", "Hex signature of the equivalence group")
_DECISIONS = Schema(
    What.DECISIONS,
    1,
    "A row for each outcome for a pod, as `berth.decisions` has it.",
    "decided_at",
    ("shard", "seq"),
    (
        _text("id", "Id of the decision", _ID),
        _SHARD,
        _int("seq", "Number of the decision in its shard, from 1 without a hole"),
        _int("epoch", "Ownership of the shard under which it was decided"),
        *_POD,
        _text("outcome", "What was decided; docs/events.md lists the outcomes"),
        _text("node", "The node; empty: there is none"),
        _int("node_version", "Change counter of the node after the decision; empty: no node"),
        _time("decided_at", "When it was decided"),
        _time(
            "event_at", "When the pod's event happened, as its producer claims; empty: not claimed", "claimed"
        ),
        _time("recorded_at", "When it became durable", _CLOCK),
        _text("sent_by", "Who sent the event that led to it; docs/events.md says what it can be"),
        _text("profile", "Profile that the pod names"),
        _int("profile_revision", "Its revision then; empty: no profile was asked"),
        _text("reason", "Reason, where the outcome has one"),
        _json("reasons", "Nodes per reason code, where no node was found", "nodes"),
        _json("warnings", "What of the pod had no say in it, as ignored:<code>; empty: nothing"),
        Column("score", Kind.REAL, "0 to 100 times weights", "Total score of the node when it was chosen"),
        _json("devices", "Devices of the node that the pod has, or had, from 0; empty: none"),
        *_REQUESTS,
        _SIGNATURE,
        _text("cycle", "Id of the cycle that explains it; empty: none is needed", _ID),
        _json("victims", "nominated: uids of the pods that have to leave the node"),
        _int("violations", "nominated: how many disruption budgets that breaks"),
        _time("expires_at", "nominated: when the nomination ends"),
        _text("preemptor", "evicted, spared: uid of the pod for which it has to leave"),
        _int("preemptor_priority", "evicted, spared: the priority of that pod"),
        _text("nominated", "evicted, spared: id of that pod's decision", _ID),
        _text("moved_to", "evicted from a hot node: where a dry run found room for it"),
        _json("moved_why", "evicted from a hot node: by what it is hot, in plain words"),
        _int("relief_cpu_milli", "evicted from a hot node: what the pod is expected to use", _MILLI),
        _int("relief_memory_bytes", "evicted from a hot node: the same of memory", _BYTES),
    ),
    2_000,
)
_ATTEMPTS = Schema(
    What.ATTEMPTS,
    1,
    "A row for equal attempts in a row by which a group of equal pods found no node: the first "
    "and the latest ones that are kept of each group.",
    "last_at",
    ("shard", "signature", "number"),
    (
        _int("shard", "Shard that tried"),
        _SIGNATURE,
        _int("number", "Which change of the reasons of its group it was, from 1"),
        _time("at", "First attempt with these reasons"),
        _time("last_at", "Last attempt with these reasons"),
        _int("times", "How many attempts they were", "attempts"),
        _text("profile", "Profile that the pods name"),
        _int("profile_revision", "Its revision then; empty: there is no such profile"),
        _int("nodes", "How many nodes there were", "nodes"),
        _json("reasons", "Nodes per reason code", "nodes"),
        _bool("unresolvable", "Whether the pods had no node even if every other pod left"),
        _text("cycle", "Id of the cycle that explains the first attempt; empty: none is needed", _ID),
    ),
    1_000,
)
_PLACEMENTS = Schema(
    What.PLACEMENTS,
    1,
    "A row for each time span in which a pod counted on a node.",
    "bound_at",
    ("shard", "seq"),
    (
        _text("id", "Id of the decision that opened it", _ID),
        _SHARD,
        _int("seq", "Number of that decision in its shard"),
        *_POD,
        _text("node", "The node"),
        _bool("adopted", "Whether the log said that the pod runs there, so that berth did not decide it"),
        _time("bound_at", "From when on the pod counts there"),
        _time("released_at", "Until when; empty: it still does"),
        _time("recorded_at", "When its beginning became durable", _CLOCK),
        _time("released_recorded_at", "When its end became durable; empty: it has none", _CLOCK),
        _bool("orphaned", "Whether its node is deleted"),
        _text("gang", "PodGroup with whose other pods it was placed; empty: alone"),
        *_REQUESTS,
        _SIGNATURE,
    ),
    2_000,
)
_NODES = Schema(
    What.NODES,
    1,
    "A row for each node as it is now, deleted ones included.",
    "spec_changed_at",
    ("name",),
    (
        _text("name", "Name of the node"),
        _int("id", "Its order of arrival, kept for ever"),
        _int("version", "Counts changes of the node and of the pods on it"),
        _int("resource_version", "Version of its spec that its producer gave; empty: none"),
        _bool("deleted", "Whether it is deleted; the rest is then what was last known"),
        _bool("unschedulable", "Whether it takes no new pods"),
        _bool("ready", "What its Ready condition says; empty: nothing"),
        _json("node_labels", "Its labels"),
        _json("taints", "Its taints"),
        _int("allocatable_cpu_milli", "What it offers of cpu", _MILLI),
        _int("allocatable_memory_bytes", "What it offers of memory", _BYTES),
        _json("allocatable", "All that it offers, by resource", _CANONICAL),
        _int("requested_cpu_milli", "What its pods ask for of cpu", _MILLI),
        _int("requested_memory_bytes", "What its pods ask for of memory", _BYTES),
        _int("requested_pods", "How many pods count on it", "pods"),
        _json("requested", "All that its pods ask for, by resource", _CANONICAL),
        _time("spec_changed_at", "When its spec last changed"),
        _text("spec_sent_by", "Who sent that"),
    ),
    500,
    by_namespace=False,
)
_CONFIG = Schema(
    What.CONFIG,
    1,
    "A row for each configuration object as it is now, and for each revision of each profile "
    "that an event made, deleted ones included.",
    "changed_at",
    ("kind", "namespace", "name", "revision"),
    (
        _text("kind", "Kind of the object; Profile for a profile"),
        _text("namespace", "Its namespace; empty: its kind has none"),
        _text("name", "Its name"),
        _int("revision", "Of a profile: which revision, from 1; else 0"),
        _int("resource_version", "Version that its producer gave; empty: none"),
        _bool("deleted", "Whether it was deleted then"),
        _time("changed_at", "When it changed"),
        _time("recorded_at", "When that became durable", _CLOCK),
        _text("sent_by", "Who sent it"),
        _json("object", "The object; empty: deleted"),
    ),
    50,
)
SCHEMAS = {each.what: each for each in (_DECISIONS, _ATTEMPTS, _PLACEMENTS, _NODES, _CONFIG)}
"""The columns of each export."""


class ExportFilter(NamedTuple):
    """Which rows to export; None means any. Times are milliseconds of log time.

    A placement is asked for if it touches the time, attempts if the last one is in it, anything else by its
    one time. ``namespaces`` are those whose rows are asked for. Of attempts these are those of groups of
    which pods of the namespaces are or were, from when the first of these was there. ``with_shared`` adds
    the configuration that is of no namespace and that a key with namespaces sees.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    namespaces: Collection[str] | None = None
    with_shared: bool = False


class Exports(Protocol):
    """Reads whole tables, of one snapshot, without holding more than some rows at once."""

    def rows(self, schema: Schema, which: ExportFilter) -> AsyncGenerator[Sequence[ExportRow], None]:
        """Yield the rows in the order of the schema, ``rows_at_once`` at a time; no empty list is yielded.

        Raises
        ------
        Busy
            As many exports run as may; nothing was read.
        ExportTooLong
            The snapshot was open for ``limits.export_seconds_max``: what follows is not read.
        """
