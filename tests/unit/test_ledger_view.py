"""Does the worker keep its own book, and leave the domain's state to ``ClusterState``?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import services.worker
from services.codec.partition import partition_for
from tests.builders import node_manifest, pod_manifest
from tests.property.site import SHARDS, Site

OWN = {"self", "builder", "lane", "ledger_view"}


def chain(target: ast.expr) -> list[str]:
    """Return the names of ``a.b[c].d``, from the left."""
    match target:
        case ast.Attribute():
            return [*chain(target.value), target.attr]
        case ast.Subscript():
            return chain(target.value)
        case ast.Name():
            return [target.id]
        case _:
            return ["?"]


def writes(tree: ast.AST) -> Iterator[tuple[ast.expr, list[str]]]:
    """Yield what is written into, with its names: attributes, and values within them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            names = chain(node)
            if len(names) > 1:
                yield node, names


def test_the_worker_writes_into_nothing_but_what_is_its_own() -> None:
    wrong = [
        f"{path.name}:{target.lineno}: {ast.unparse(target)}"
        for path in sorted(Path(services.worker.__path__[0]).glob("*.py"))
        for target, names in writes(ast.parse(path.read_text()))
        if names[0] not in OWN or {"state", "scheduler", "_scheduler"} & set(names[1:-1])
    ]
    assert wrong == []


def test_the_book_knows_pods_for_as_long_as_they_exist() -> None:
    site = Site()
    site.tell("ADDED", node_manifest("n", cpu=1))
    for name in "ab":
        site.tell("ADDED", pod_manifest(name, cpu=1, resource_version=1))
    book = site.planner.ledger_view
    shards = {key: pod.shard for key, pod in site.planner.scheduler.state.pods.items()}
    assert shards == {
        f"default/{name}": partition_for(f"default/{name}".encode(), None, SHARDS) for name in "ab"
    }
    assert list(book.waits) == ["default/b"], "the first one is placed"
    for name in "ab":
        site.tell("DELETED", pod_manifest(name, resource_version=2))
    assert book.waits == {}
