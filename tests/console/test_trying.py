"""Does a plan say what of it can be applied, and how often?"""

from __future__ import annotations

import datetime

import pytest

from services.console.here import Here
from services.console.trying import offer

HERE = Here("/console", "/try", {}, None, "", datetime.datetime.now(datetime.UTC))
POD = "kind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c}]}\n"
WORKLOAD = (
    "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n"
    "spec: {template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}}\n"
)


@pytest.mark.parametrize(
    ("manifests", "replicas", "said"),
    [
        (POD, "", "Apply 1 object: it goes"),
        (POD, "1", "Apply 1 object: it goes"),
        (f"{POD}---\n{POD}", "30", "Apply 2 objects, each once and not in copies: it goes"),
        (WORKLOAD, "", "Nothing here can be applied"),
    ],
)
async def test_a_plan_says_what_would_be_applied_of_it(manifests: str, replicas: str, said: str) -> None:
    offered = await offer(HERE, {"manifests": manifests, "replicas": replicas})
    assert offered.title.startswith(said)
