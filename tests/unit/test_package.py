"""Does the wheel hold all that berth reads?

This needs no network; `make wheel` builds the wheel and runs it.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = tuple(
    name.removesuffix("*").replace(".", "/") for name in SETUPTOOLS["packages"]["find"]["include"]
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CLIENT = tomllib.loads((ROOT / "berth" / "pyproject.toml").read_text())


def files() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    assert len(found) > 200
    return [path for path in found if "__pycache__" not in path.parts]


def test_every_data_file_is_package_data() -> None:
    patterns = SETUPTOOLS["package-data"]["*"]
    data = [path for path in files() if path.suffix != ".py"]
    assert [path for path in data if not any(fnmatch(path.name, each) for each in patterns)] == []


def test_every_folder_is_a_package() -> None:
    """One that is not is left out of the wheel without a word."""
    folders = {path.parent for path in files()}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_the_wheel_of_the_client_holds_all_of_it_and_agrees_with_berth() -> None:
    packages = CLIENT["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in (ROOT / "berth").rglob("*.py")}
    assert {ROOT / name.replace(".", "/") for name in packages} == folders
    assert CLIENT["project"]["version"] == PROJECT["version"]
    asked = {*CLIENT["project"]["dependencies"], *CLIENT["project"]["optional-dependencies"]["kafka"]}
    assert asked <= set(PROJECT["dependencies"]), "else one environment could not have both"
