"""Does the wheel hold all that berth reads?

This needs no network; `make wheel` builds the wheel and runs it.
"""

from __future__ import annotations

import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = tuple(name.removesuffix("*") for name in SETUPTOOLS["packages"]["find"]["include"])


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
