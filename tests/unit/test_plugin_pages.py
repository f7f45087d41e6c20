"""Are the pages about plugins and profiles what the code does?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from domain.model.profile_manifest import profile_from_manifest
from domain.plugins.base import Plugin
from domain.plugins.registry import FILTERS, SCORES, STRATEGIES, ProfilePlan
from services.planning import plan_scenario
from services.plugin_pages import described, main, page, reason_codes

PROFILES = Path(__file__).parent.parent.parent / "docs" / "profiles.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PROFILES.read_text(), re.DOTALL)


def test_the_page_is_as_the_docstrings_are() -> None:
    assert main(["--check"]) == 0


@pytest.mark.parametrize("plugin", [*SCORES.values(), *STRATEGIES.values()], ids=lambda each: each.__name__)
def test_every_score_says_its_formula(plugin: type[Plugin]) -> None:
    assert {"What", "Formula", "Source"} <= set(described(plugin))


@pytest.mark.parametrize("plugin", FILTERS.values(), ids=lambda each: each.__name__)
def test_every_filter_says_its_reason_codes(plugin: type[Plugin]) -> None:
    assert reason_codes(plugin) or "Reason codes" in described(plugin)


def test_every_plugin_has_a_section() -> None:
    sections = re.findall(r"^### (.*)$", page(), re.MULTILINE)
    assert len(sections) == len(set(sections)) + len(set(FILTERS) & set(SCORES))
    assert {title.partition(":")[0] for title in sections} == {*FILTERS, *SCORES}


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_profile_of_the_page_is_accepted(text: str) -> None:
    assert ProfilePlan(profile_from_manifest(yaml.safe_load(text)), planning=True).scores


def test_the_scenario_of_the_page_places_its_pod() -> None:
    (text,) = blocks("json")
    (verdict,) = plan_scenario(json.loads(text))
    assert verdict.node == "a"
    assert verdict.scores == pytest.approx({"a": 80.0, "b": 20.0})
