"""What berth is made of: pinned by hash, listed, and asked about."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import Marker

from ops.supply import advisories, bundled

REPOSITORY = Path(__file__).parents[2]
LOCKS = (
    "requirements.lock",
    "requirements-embedded.lock",
    "requirements-dev.lock",
    "ops/supply/tools.lock",
)
_PIN = re.compile(
    r"^([a-z0-9._-]+)==([^ ;]+)(?: ; ([^\\]+))? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.MULTILINE,
)


def pins(lock: str) -> dict[str, str]:
    """Return the version of each package of a lock; every line of the lock is part of a pin with hashes.

    Of a package with several versions it is the one for the Python that runs.
    """
    text = re.sub(r"^ +# .*\n", "", (REPOSITORY / lock).read_text(), flags=re.M)
    assert _PIN.sub("", text).strip() == "", f"{lock} pins something without a hash"
    found = [(each[1], each[2], each[3]) for each in _PIN.finditer(text)]
    found.sort(key=lambda pin: pin[2] is None or Marker(pin[2]).evaluate())
    return {name: version for name, version, _ in found}


def _name(requirement: str) -> str:
    return re.split(r"[\[<>=~! ;]", requirement, maxsplit=1)[0].lower().replace("_", "-")


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_with_hashes(lock: str) -> None:
    assert len(pins(lock)) > 20
    assert "://" not in (REPOSITORY / lock).read_text(), "a lock names no index"


def test_the_locks_pin_what_the_project_asks_for() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    runtime, dev = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {_name(each) for each in project["dependencies"] + extras["build"]} <= set(runtime)
    assert {_name(each) for each in extras["dev"] + extras["plots"] + extras["search"]} <= set(dev)
    assert not {_name(each) for each in extras["plots"] + extras["search"]} & set(runtime)
    embedded, servers = pins("requirements-embedded.lock"), {_name(each) for each in extras["embedded"]}
    assert servers <= set(embedded)
    assert not servers & set(runtime), "production has no database server of ours"
    assert {name: version for name, version in embedded.items() if name in runtime} == runtime
    assert {name: dev.get(name) for name in embedded if name != "setuptools"} == {
        name: version for name, version in embedded.items() if name != "setuptools"
    }
    assert {name: dev.get(name) for name in runtime if name != "setuptools"} == {
        name: version for name, version in runtime.items() if name != "setuptools"
    }


def test_the_tests_run_on_the_pinned_packages() -> None:
    installed = {_name(each.name): each.version for each in metadata.distributions()}
    pinned = pins("requirements-dev.lock")
    assert {name: installed[name] for name in pinned if name in installed} == {
        name: version for name, version in pinned.items() if name in installed
    }
    assert len(set(pinned) & set(installed)) > 40


def test_images_are_pinned_by_digest() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text() + (REPOSITORY / "docker-compose.yml").read_text()
    named = re.findall(r"^(?:FROM| +image:) (\S+)", lines, flags=re.M)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", lines, flags=re.M))
    foreign = [name for name in named if name != "berth" and name not in stages]
    assert len(foreign) == 3
    assert all(re.fullmatch(r"[a-z0-9/.:_-]+@sha256:[0-9a-f]{64}", name) for name in foreign), foreign


# ------------------------------------------------------------------------------------- bill and advisories


def test_the_bill_has_what_the_wheels_carry_inside(tmp_path: Path) -> None:
    bill: dict[str, Any] = {"bomFormat": "CycloneDX", "components": [{"name": "numpy"}]}
    (tmp_path / "bill.json").write_text(json.dumps(bill))
    bundled.main(tmp_path / "bill.json")
    found = json.loads((tmp_path / "bill.json").read_text())["components"]
    names = {component["name"] for component in found}
    assert names == {"numpy", "PostgreSQL", "pgvector", "readline", "ncurses-libs"}
    assert all(each["licenses"] for each in found if each["name"] != "numpy")
    assert any(each["name"] == "PostgreSQL" and each["version"].startswith("18.") for each in found)


def test_the_production_image_has_no_database_server_and_is_the_one_that_is_built() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    stages = [line.split()[1:] for line in lines if line.startswith("FROM ")]
    assert [stage[2] for stage in stages] == ["system", "all-in-one", "production"]
    assert stages[1][0] == stages[2][0] == "system"
    system = lines[: lines.index("FROM system AS all-in-one")]
    assert not [line for line in system if line.startswith(("COPY", "RUN")) and "embedded" in line]
    assert lines[-1] == "FROM system AS production", "which adds nothing"
    assert (REPOSITORY / "docker-compose.yml").read_text().count("target: production") == 2


def test_the_licence_and_the_notice_are_at_the_top_and_in_the_wheel() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert {"LICENSE", "NOTICE"} < set(project["license-files"])
    assert all((REPOSITORY / name).is_file() for name in project["license-files"])
    text = " ".join((REPOSITORY / "LICENSE").read_text().split())
    assert text.startswith("Apache License Version 2.0, January 2004")
    assert "END OF TERMS AND CONDITIONS" in text
    assert "openb" in (REPOSITORY / "NOTICE").read_text()


def test_the_page_names_the_licence_of_all_that_the_embedded_server_brings() -> None:
    page = (REPOSITORY / "docs" / "supply-chain.md").read_text()
    for component in bundled.bundled():
        assert component["licenses"][0]["license"]["id"] in page


def test_the_docs_name_the_versions_of_the_embedded_server() -> None:
    page = (REPOSITORY / "docs" / "supply-chain.md").read_text()
    for component in bundled.bundled():
        assert f"{component['name']} {component['version']}" in page


FINE = {"name": "a", "version": "1", "vulns": []}
FLAWED = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        ([FINE], 0, "1 packages checked, 0 known vulnerabilities"),
        ([FINE, FLAWED], 1, "b 2: CVE-1, mended in 3"),
        ([FINE, UNKNOWN], 0, "NOT CHECKED, as the database does not know them: c"),
        ([UNKNOWN, UNKNOWN], 0, "NOT CHECKED: no database of advisories answered for any of 2 packages"),
        ([], 0, "NOT CHECKED"),
    ],
)
def test_an_audit_says_what_it_found(found: list[dict[str, Any]], code: int, said: str) -> None:
    text, exit_code = advisories.summary(found)
    assert said in text
    assert exit_code == code


def test_an_audit_without_a_report_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert advisories.main(tmp_path / "none.json") == 0
    assert "NOT CHECKED" in capsys.readouterr().out
