"""The rule by which a node selector term matches a node, evaluated over columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from domain.manifests.constraints import WireNodeAffinity, read_node_affinity
from domain.manifests.objects import convert_manifest
from domain.model.pods import NodeAffinity, NodeSelectorTerm, Requirement
from domain.plugins.arguments import Arguments
from domain.plugins.integers import integer
from domain.state.table import ABSENT, NodeTable

_NAME_FIELD = "metadata.name"


def added_affinity(args: Mapping[str, Any], path: str) -> NodeAffinity | None:
    """Return the node affinity that a profile adds to that of every pod, None if it adds none."""
    given = Arguments(args, path, ("addedAffinity",))
    if "addedAffinity" not in given:
        return None
    at = given.at("addedAffinity")
    wire = convert_manifest(given.raw("addedAffinity"), WireNodeAffinity, at)
    return read_node_affinity(wire, at)


def match_labels(selector: dict[str, str], table: NodeTable, rows: np.ndarray) -> np.ndarray:
    """Return bool[len(rows)]: the node has every label of the selector with exactly that value."""
    matched = np.ones(len(rows), dtype=np.bool_)
    for key, value in selector.items():
        matched &= _match_one(Requirement(key, "In", (value,)), table, rows)
    return matched


def match_any_term(terms: tuple[NodeSelectorTerm, ...], table: NodeTable, rows: np.ndarray) -> np.ndarray:
    """Return bool[len(rows)]: some term matches (terms are alternatives)."""
    matched = np.zeros(len(rows), dtype=np.bool_)
    for term in terms:
        matched |= match_term(term, table, rows)
    return matched


def match_term(term: NodeSelectorTerm, table: NodeTable, rows: np.ndarray) -> np.ndarray:
    """Return bool[len(rows)]: all requirements hold. A term without requirements matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(len(rows), dtype=np.bool_)
    matched = np.ones(len(rows), dtype=np.bool_)
    for requirement in term.match_expressions:
        matched &= _match_one(requirement, table, rows)
    for requirement in term.match_fields:
        matched &= _match_field(requirement, table, rows)
    return matched


def _match_field(requirement: Requirement, table: NodeTable, rows: np.ndarray) -> np.ndarray:
    """Match ``metadata.name``, the only field that Kubernetes knows here."""
    named = np.zeros(len(rows), dtype=np.bool_)
    if requirement.key == _NAME_FIELD:
        for name in requirement.values:
            named |= rows == table.rows.get(name, -1)
    return ~named if requirement.operator == "NotIn" else named


def _match_one(requirement: Requirement, table: NodeTable, rows: np.ndarray) -> np.ndarray:
    column = table.label_column(requirement.key)
    if column is None:
        absent_matches = requirement.operator in ("NotIn", "DoesNotExist")
        return np.full(len(rows), absent_matches, dtype=np.bool_)
    values = column[rows]
    match requirement.operator:
        case "In":
            return _among(values, requirement, table)
        case "NotIn":
            return ~_among(values, requirement, table)
        case "Exists":
            present: np.ndarray = values != ABSENT
            return present
        case "DoesNotExist":
            absent: np.ndarray = values == ABSENT
            return absent
        case _:
            return _compare(values, requirement, table)


def _among(values: np.ndarray, requirement: Requirement, table: NodeTable) -> np.ndarray:
    matched = np.zeros(len(values), dtype=np.bool_)
    for text in requirement.values:
        value = table.value_id(text)
        if value is not None:
            matched |= values == value
    return matched


def _compare(values: np.ndarray, requirement: Requirement, table: NodeTable) -> np.ndarray:
    """Match Gt and Lt: both sides must be integers without a sign, or the node does not match."""
    bound = integer(requirement.values[0]) if requirement.values else None
    matched = np.zeros(len(values), dtype=np.bool_)
    if bound is None:
        return matched
    for value in np.unique(values):
        if value == ABSENT:
            continue
        number = integer(table.value_text(int(value)))
        if number is not None and (number > bound if requirement.operator == "Gt" else number < bound):
            matched |= values == value
    return matched
