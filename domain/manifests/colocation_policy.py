"""Reads and writes a berth/v1 CoLocationPolicy: one table says of each field its form, bounds and meaning.

The same table makes the page ``docs/colocation-policy.md`` and the JSON schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from domain.manifests.forms import (
    DAY_US,
    SECOND_US,
    Form,
    amount,
    choice,
    count,
    duration,
    more_than_none,
    number,
    percent,
    portion,
    whole_percent,
)
from domain.manifests.metadata import Identity
from domain.model.colocation import (
    DEFAULT_POLICY,
    OF_ALL_NODES,
    Amounts,
    CoLocationPolicy,
    LendingForm,
)
from domain.model.errors import FieldError
from domain.model.validation import check_labels, key_path, shown

SELECTOR = "nodeSelector"


class WireCoLocationPolicy(msgspec.Struct, rename="camel", omit_defaults=True):
    """A CoLocationPolicy as it is written."""

    kind: str | None = None
    api_version: str | None = None
    metadata: Identity | None = None
    spec: Any = None


class Field(NamedTuple):
    """A field of ``spec``, its place in a ``CoLocationPolicy``, its form, and what it means."""

    name: str
    attribute: str
    form: Form
    meaning: str


_SHARE = percent(0, 100)
_THRESHOLD = percent(1, 100)
_SPAN = duration(0, DAY_US)
_INTERVAL = duration(SECOND_US, DAY_US)
_QUOTA_MIN_US, _PERIOD_MAX_US = 1_000, 1_000_000
"""The least quota, and the longest period, of a group of processes. Source: Linux, CFS bandwidth control."""
_QUOTA_MAX_US = 1_000 * _PERIOD_MAX_US
_FACTOR = number(0, 1_000)
_PRICE = number(0, 1_000_000)

FIELDS = (
    Field(
        "estimate.cpuFactor", "estimate.cpu_percent", whole_percent(1, 1_000),
        "estimate of a container with a request and no limit: its cpu request times this",
    ),
    Field(
        "estimate.memoryFactor", "estimate.memory_percent", whole_percent(1, 1_000),
        "the same of memory",
    ),
    Field(
        "estimate.cpu", "estimate.cpu_milli", more_than_none(amount("cpu")),
        "estimate of a container with neither request nor limit of cpu",
    ),
    Field(
        "estimate.memory", "estimate.memory_bytes", more_than_none(amount("memory")),
        "the same of memory",
    ),
    Field("view.margin.cpu", "view.margin_cpu", portion("cpu"), "what of a node's cpu is kept free"),
    Field(
        "view.margin.memory", "view.margin_memory", portion("memory"), "what of its memory is kept free"
    ),
    Field(
        "view.reserved.cpu", "view.reserved.cpu_milli", amount("cpu"),
        "the least cpu that the system is taken to use, whatever is measured",
    ),
    Field("view.reserved.memory", "view.reserved.memory_bytes", amount("memory"), "the same of memory"),
    Field("view.cap", "view.cap_percent", _SHARE, "the most that is lent, as a share of the node's capacity"),
    Field(
        "view.midForm", "view.mid_form", choice(*LendingForm),
        "what is lent to mid pods: by use, by requests, or what is requested and not used",
    ),
    Field(
        "view.lowForm", "view.low_form", choice(LendingForm.USAGE, LendingForm.REQUEST),
        "what is lent to low pods: by use, or by requests",
    ),
    Field(
        "view.unallocated", "view.unallocated_percent", _SHARE,
        "of the form `reclaimable`: how much is lent of what nothing requests",
    ),
    Field(
        "view.threshold", "view.threshold_percent", _SHARE,
        "of the form `reclaimable`: the most that is lent, as a share of the node's capacity",
    ),
    Field(
        "view.settle", "view.settle_seconds", _SPAN,
        "a pod counts by its estimate until a measurement made this long after it was bound",
    ),
    Field(
        "view.maxAge", "view.age_seconds_max", _INTERVAL,
        "a measurement that is older, in time of the log, lends nothing",
    ),
    Field(
        "suppression.grow", "suppression.grow_percent", percent(0.1, 100),
        "the most that a box grows in a step, of the node's cores",
    ),
    Field(
        "suppression.ignore", "suppression.ignore_percent", _SHARE,
        "a smaller change of a box is not made, of the node's cores",
    ),
    Field(
        "suppression.floor", "suppression.floor_us", duration(_QUOTA_MIN_US, _QUOTA_MAX_US, unit_us=1),
        "the least quota of the low box in a period",
    ),
    Field(
        "suppression.floorShare", "suppression.floor_percent", _SHARE,
        "the same as a share of the node's cores; the larger of both holds",
    ),
    Field(
        "suppression.period", "suppression.period_us", duration(_QUOTA_MIN_US, _PERIOD_MAX_US, unit_us=1),
        "the period of quotas",
    ),
    Field(
        "eviction.after", "eviction.after_seconds", _SPAN,
        "all low pods are ended when their box had less than one core for this long",
    ),
    Field(
        "eviction.lower", "eviction.lower_percent", _SHARE,
        "low pods are starved where their box has a smaller share of what they ask for",
    ),
    Field(
        "eviction.upper", "eviction.upper_percent", _SHARE, "so many are ended that the share would be this"
    ),
    Field("eviction.busy", "eviction.busy_percent", _SHARE, "and only where they use this much of their box"),
    Field("eviction.pause", "eviction.pause_seconds", _SPAN, "the least time between two such evictions"),
    Field(
        "eviction.node", "eviction.node_percent", percent(3, 100),
        "a node of which so much cpu is used is relieved",
    ),
    Field(
        "eviction.nodeLower", "eviction.node_lower_percent", _THRESHOLD,
        "it is relieved down to this; two points below `node` where it is left out",
    ),
    Field(
        "eviction.memory", "eviction.memory_percent", _THRESHOLD,
        "a node of which so much memory is used is relieved",
    ),
    Field("eviction.memoryLower", "eviction.memory_lower_percent", _THRESHOLD, "until less is used"),
    Field("hotSpot.use", "hot_spot.use_percent", _THRESHOLD, "a sample is bad where so much is used"),
    Field(
        "hotSpot.pressure", "hot_spot.pressure_percent", _THRESHOLD,
        "or where the pressure of cpu (`some avg60`) is this",
    ),
    Field(
        "hotSpot.latencyFactor", "hot_spot.latency_factor", number(1, 1_000),
        "or where a pod's latency is this many times its bound",
    ),
    Field("hotSpot.badCount", "hot_spot.bad_count", count(1, 1_000), "so many bad samples make a node hot"),
    Field("hotSpot.goodCount", "hot_spot.good_count", count(1, 1_000), "so many good ones make it calm"),
    Field("hotSpot.target", "hot_spot.target_percent", _THRESHOLD, "pods are moved until less is used"),
    Field("hotSpot.maxMoves", "hot_spot.moves_max", count(0, 1_000), "so many move at once in the cluster"),
    Field("hotSpot.rest", "hot_spot.rest_seconds", _SPAN, "how long a node rests after a move"),
    Field("replicas.step", "replicas.step_seconds", _INTERVAL, "how often replicas are counted, in log time"),
    Field(
        "replicas.wait", "replicas.wait_seconds", _SPAN,
        "a pod that waits for longer says that there are enough",
    ),
    Field("replicas.high", "replicas.high_percent", _THRESHOLD, "at a higher load there are fewer"),
    Field("replicas.low", "replicas.low_percent", _SHARE, "at a lower load there are more"),
    Field("replicas.shrink", "replicas.shrink_percent", percent(0.1, 100), "how many fewer in a step"),
    Field("prices.coreHour", "prices.core_hour", _PRICE, "price of a core and hour"),
    Field("prices.gibHour", "prices.gib_hour", _PRICE, "price of a GiB of memory and hour"),
    Field("prices.plain", "prices.plain", _FACTOR, "times this on nodes without co-location"),
    Field("prices.request", "prices.request", _FACTOR, "times this within the request"),
    Field("prices.burst", "prices.burst", _FACTOR, "times this between request and limit"),
    Field("prices.low", "prices.low", _FACTOR, "times this of low pods"),
    Field("reporting.node", "reporting.node_seconds", _INTERVAL, "how often the agent reports its node"),
    Field(
        "reporting.quiet", "reporting.quiet_seconds", _INTERVAL,
        "and how often where nothing changed; in two thirds of `view.maxAge` at the latest",
    ),
    Field("reporting.pods", "reporting.pods_seconds", _INTERVAL, "how often it reports what its pods used"),
    Field("reporting.change", "reporting.change_percent", _SHARE, "a smaller change is none"),
)  # fmt: skip
"""Every field of ``spec`` but ``nodeSelector``."""

BELOW = (
    ("eviction.lower", "eviction.upper"),
    ("eviction.nodeLower", "eviction.node"),
    ("eviction.memoryLower", "eviction.memory"),
    ("hotSpot.target", "hotSpot.use"),
    ("replicas.low", "replicas.high"),
    ("reporting.node", "reporting.quiet"),
)
"""Pairs of fields of which the first must be below the second."""

Tree = Mapping[str, "Tree | Field"]


def _tree() -> Tree:
    found: dict[str, Any] = {}
    for field in FIELDS:
        *above, name = field.name.split(".")
        into = found
        for each in above:
            into = into.setdefault(each, {})
        into[name] = field
    return found


TREE = _tree()
"""The fields as they are nested in ``spec``."""
_FIELD_OF = {field.name: field for field in FIELDS}


def policy_from_wire(wire: WireCoLocationPolicy, path: str) -> CoLocationPolicy:
    """Return the policy of an object; see ``policy_from_spec``."""
    return policy_from_spec(wire.spec, f"{path}.spec")


def policy_from_spec(spec: Any, path: str) -> CoLocationPolicy:
    """Return the policy of a CoLocationPolicy's ``spec``. What is left out, or null, has its default.

    Raises
    ------
    FieldError
        With the path of the field, what is wrong and what is allowed.
    """
    if spec is None:
        raise FieldError(path, "is missing; a policy has one, if only an empty one")
    known = (SELECTOR, *TREE)
    given = dict(_items(spec, known, path))
    selector = given.pop(SELECTOR, None) or {}
    if not isinstance(selector, dict):
        raise FieldError(f"{path}.{SELECTOR}", f"expected an object, got {shown(selector)}")
    labels = check_labels(selector, f"{path}.{SELECTOR}")
    for section in OF_ALL_NODES:
        if labels and section in given:
            raise FieldError(
                f"{path}.{section}",
                f"is the same for all nodes; allowed is it in a policy without {SELECTOR}",
            )
    policy: Any = msgspec.structs.replace(DEFAULT_POLICY, node_selector=labels)
    read = {}
    for field, value, at in _leaves(given, TREE, path):
        read[field.name] = at
        policy = _with(policy, field.attribute.split("."), field.form.read(value, at))
    _check_pairs(policy, read)
    assert isinstance(policy, CoLocationPolicy)
    return policy


def _items(value: Any, known: tuple[str, ...], path: str) -> Iterator[tuple[str, Any]]:
    """Yield what is given of an object; raise for a field that is not known."""
    if not isinstance(value, dict):
        raise FieldError(path, f"expected an object, got {shown(value)}")
    for name, each in value.items():
        if name not in known:
            raise FieldError(key_path(path, str(name)), f"unknown; allowed are {', '.join(known)}")
        if each is not None:
            yield name, each


def _leaves(value: Any, tree: Tree, path: str) -> Iterator[tuple[Field, Any, str]]:
    """Yield each field that is given, with what is given and its path."""
    for name, each in _items(value, tuple(tree), path):
        inner, at = tree[name], f"{path}.{name}"
        if isinstance(inner, Field):
            yield inner, each, at
        else:
            yield from _leaves(each, inner, at)


def _with(value: Any, attributes: list[str], new: Any) -> Any:
    """Return a value of which an attribute, at any depth, is another one."""
    name, *rest = attributes
    inner = _with(getattr(value, name), rest, new) if rest else new
    if isinstance(value, Amounts):
        return value._replace(**{name: inner})
    return msgspec.structs.replace(value, **{name: inner})


def value_of(policy: CoLocationPolicy, field: Field) -> Any:
    """Return what a policy says of a field, as it is written; None: nothing."""
    value = _kept(policy, field)
    return None if value is None else field.form.write(value)


def _kept(policy: CoLocationPolicy, field: Field) -> Any:
    value: Any = policy
    for name in field.attribute.split("."):
        value = getattr(value, name)
    return value


def _check_pairs(policy: CoLocationPolicy, given: Mapping[str, str]) -> None:
    """Raise where a number is not below the one that it must be below; name the one that was given."""
    for lower, upper in BELOW:
        low, high = (_kept(policy, _FIELD_OF[name]) for name in (lower, upper))
        if low is None:
            continue
        if high is None:
            raise FieldError(given[lower], f"says nothing without {upper}")
        if low < high:
            continue
        wrong, side, other = (lower, "below", upper) if lower in given else (upper, "above", lower)
        values = [value_of(policy, _FIELD_OF[name]) for name in (wrong, other)]
        raise FieldError(given[wrong], f"{values[0]} is not {side} {other}, which is {values[1]}")


def policy_to_spec(policy: CoLocationPolicy) -> dict[str, Any]:
    """Return the ``spec`` of a policy with all fields that it may give: what ``policy_from_spec`` reads."""
    spec: dict[str, Any] = {}
    if policy.node_selector:
        spec[SELECTOR] = dict(policy.node_selector)
    for field in FIELDS:
        *above, name = field.name.split(".")
        value = value_of(policy, field)
        if value is None or (policy.node_selector and above[0] in OF_ALL_NODES):
            continue
        into = spec
        for each in above:
            into = into.setdefault(each, {})
        into[name] = value
    return spec
