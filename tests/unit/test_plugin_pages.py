"""Are the pages about plugins and profiles what the code does?"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.build.plugin_pages import described, main, page, reason_codes
from domain.manifests.profile import profile_from_manifest
from domain.model.events import ProfileUpserted
from domain.plugins.base import Plugin
from domain.plugins.registry import FILTERS, SCORES, STRATEGIES, ProfilePlan
from services.cli.output import Table
from services.cli.tables import TABLES
from services.codec.decode import Decoded, Decoder
from services.phrases import reason_in_words, reasons_in_words
from services.plan.scenario import plan_scenario
from services.ports.log import CONFIG_TOPIC
from tests.builders import event_bytes, record

DOCS = Path(__file__).parent.parent.parent / "docs"


def blocks(language: str, page: str = "profiles.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def as_a_worker_reads_it(manifest: dict[str, Any]) -> Decoded:
    key = f"SchedulingProfile/{manifest['metadata']['name']}".encode()
    return Decoder().decode(record(CONFIG_TOPIC, event_bytes("MODIFIED", manifest), key))


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


def test_every_section_is_whole() -> None:
    filters, scores = page().partition("## Write your own")[0].split("## Scores")
    for part, needed in ((filters, "Reason codes"), (scores, "Formula")):
        for section in part.split("\n### ")[1:]:
            for label in ("Arguments", "Fields read", "Source", "File", needed):
                assert section.count(f"\n- **{label}**: ") == 1, (label, section)


@pytest.mark.parametrize("plugin", FILTERS.values(), ids=lambda each: each.__name__)
def test_every_reason_says_whether_evicting_pods_could_help(plugin: type[Plugin]) -> None:
    codes = reason_codes(plugin) or described(plugin)["Reason codes"]
    assert plugin.__name__ == "NodeResourcesFit" or "(evicting pods c" in codes


@pytest.mark.parametrize("plugin", FILTERS.values(), ids=lambda each: each.__name__)
def test_every_reason_can_be_said_in_words(plugin: type[Plugin]) -> None:
    said = reason_codes(plugin) or described(plugin)["Reason codes"]
    codes = re.findall(r"`([a-z-]+(?::<resource>)?)`", said)
    assert codes
    for code in codes:
        kind = code.partition(":")[0]
        assert kind.replace("-", " ") not in reason_in_words(code), f"{code} has no phrase"


def test_one_node_has_what_many_have() -> None:
    assert reasons_in_words({"untolerated-taint": 1}) == "1 has a taint that it does not tolerate"
    assert reasons_in_words({"untolerated-taint": 2}) == "2 have a taint that it does not tolerate"
    assert reason_in_words("insufficient:cpu,insufficient:memory", 1) == "lacks cpu and memory"


@pytest.mark.parametrize("text", blocks("yaml"))
def test_every_profile_of_the_page_is_accepted(text: str) -> None:
    assert ProfilePlan(profile_from_manifest(yaml.safe_load(text))).scores


def test_the_first_profile_of_the_page_can_be_applied_to_what_runs() -> None:
    manifest = yaml.safe_load(blocks("yaml")[0])
    assert as_a_worker_reads_it(manifest).event == ProfileUpserted(profile_from_manifest(manifest))


def test_the_dead_letter_of_the_page_is_what_a_terminal_shows_of_the_mistake(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = yaml.safe_load(blocks("yaml")[0])
    manifest["spec"]["scores"][0]["args"]["scoringStrategy"]["type"] = "Most"
    rejected = as_a_worker_reads_it(manifest).rejected
    assert rejected is not None
    letter = {"id": "0-1", "topic": CONFIG_TOPIC, "offset": 7}
    letter |= {"path": rejected.path, "message": rejected.message}
    monkeypatch.setenv("COLUMNS", "80")
    Table(TABLES["deadletters"], aligned=True).add([letter])
    (shown,) = blocks("console")
    assert capsys.readouterr().out == shown.partition("\n")[2]


def test_the_event_of_the_page_about_events_brings_a_profile() -> None:
    text = blocks("json", "events.md")[1]
    decoded = Decoder().decode(record(CONFIG_TOPIC, text.encode(), b"SchedulingProfile/batch"))
    assert isinstance(decoded.event, ProfileUpserted)
    assert decoded.event.resource_version == 7


def test_the_scenario_of_the_page_places_its_pod() -> None:
    (text,) = blocks("json")
    (verdict,) = plan_scenario(json.loads(text))
    assert verdict.node == "a"
    assert verdict.scores == pytest.approx({"a": 80.0, "b": 20.0})
