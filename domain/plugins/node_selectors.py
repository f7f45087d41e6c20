"""The rule by which a node selector term matches a node, evaluated over columns."""

from __future__ import annotations

import numpy as np

from domain.manifests.constraints import WireNodeAffinity, read_node_affinity
from domain.manifests.objects import convert_manifest
from domain.model.integers import integer
from domain.model.pods import NodeAffinity, NodeSelectorTerm, Requirement
from domain.plugins.arguments import Arguments
from domain.state.keyed_values import ABSENT, Values
from domain.state.table import NodeTable

_NAME_FIELD = "metadata.name"


def added_affinity(given: Arguments) -> NodeAffinity | None:
    """Return the node affinity that a profile adds to that of every pod, None if it adds none."""
    if "addedAffinity" not in given:
        return None
    at = given.at("addedAffinity")
    wire = convert_manifest(given.raw("addedAffinity"), WireNodeAffinity, at)
    return read_node_affinity(wire, at)


def match_labels(selector: dict[str, str], table: NodeTable, rows: np.ndarray) -> np.ndarray:
    """Return bool[len(rows)]: the node has every label of the selector with exactly that value."""
    matched = np.ones(len(rows), dtype=np.bool_)
    for key, text in selector.items():
        column, value = table.labels.column(key), table.labels.values.id_of(text)
        if column is None or value is None:
            return np.zeros(len(rows), dtype=np.bool_)
        matched &= column[rows] == value
        if not matched.any():
            break
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
        if not matched.any():
            return matched
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
    """Return bool[len(rows)]: the requirement holds. Cost: O(rows + values), whatever values nodes have."""
    column, values = table.labels.column(requirement.key), table.labels.values
    if column is None:
        absent_matches = requirement.operator in ("NotIn", "DoesNotExist")
        return np.full(len(rows), absent_matches, dtype=np.bool_)
    found: np.ndarray = column[rows]
    match requirement.operator:
        case "In":
            return values.among(found, requirement.values)
        case "NotIn":
            return ~values.among(found, requirement.values)
        case "Exists":
            present: np.ndarray = found != ABSENT
            return present
        case "DoesNotExist":
            absent: np.ndarray = found == ABSENT
            return absent
        case _:
            return _compare(found, requirement, values)


def _compare(found: np.ndarray, requirement: Requirement, values: Values) -> np.ndarray:
    """Match Gt and Lt: both sides must be integers without a sign, or the node does not match."""
    bound = integer(requirement.values[0]) if requirement.values else None
    if bound is None:
        return np.zeros(len(found), dtype=np.bool_)
    numbers = values.numbers[found]
    matched: np.ndarray = values.is_number[found]
    matched &= numbers > bound if requirement.operator == "Gt" else numbers < bound
    return matched
