"""Are recorded reasons shown in words, and left as they are where they hold no codes?"""

from __future__ import annotations

import pytest

from services.phrases import lost_its_node, said_in_words


@pytest.mark.parametrize(
    ("recorded", "said"),
    [
        ("", ""),
        ("deleted", "deleted"),
        ("0/1 nodes: 1 insufficient:cpu", "of 1 node, 1 lacks cpu"),
        (
            "node-09 is promised, 1 pod to leave; 0/11 nodes: 8 insufficient:cpu,insufficient:memory; "
            "2 untolerated-taint; 1 node-unschedulable",
            "node-09 is promised, 1 pod to leave; of 11 nodes, 8 lack cpu and memory; "
            "2 have a taint that it does not tolerate; 1 is cordoned",
        ),
        ("0/9 nodes: 5 insufficient:cpu; ...", "of 9 nodes, 5 lack cpu; ..."),
        ("a pod named 0/3 nodes: many", "a pod named 0/3 nodes: many"),
    ],
)
def test_codes_of_a_recorded_reason_become_words(recorded: str, said: str) -> None:
    assert said_in_words(recorded) == said


def test_a_lost_node_is_said_of_now_and_of_then() -> None:
    assert lost_its_node("n").startswith("lost its node n and counts nowhere; ")
    assert lost_its_node("n", is_past=True).startswith("had lost its node n and counted nowhere, ")
