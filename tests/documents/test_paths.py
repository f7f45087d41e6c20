"""Do the files exist that the pages on the house name?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = ("docs/architecture.md", "domain/README.md", "docs/adr/README.md", "docs/adr/0038-one-cycle-run.md")


@pytest.mark.parametrize("page", PAGES)
def test_each_path_and_each_link_leads_to_a_file(page: str) -> None:
    text = (ROOT / page).read_text()
    named = {ROOT / name for name in re.findall(r"`((?:domain|services)/[\w/.]+?)/?`", text)}
    linked = {(ROOT / page).parent / name for name in re.findall(r"\]\(([^)#:]+)\)", text)}
    assert named | linked, "the page names files"
    assert sorted(str(each) for each in named | linked if not each.exists()) == []


def test_the_index_names_every_decision() -> None:
    index = (ROOT / "docs/adr/README.md").read_text()
    pages = {each.name for each in (ROOT / "docs/adr").glob("00*.md")}
    assert {name for name in pages if name not in index} == set()
