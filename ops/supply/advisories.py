"""Says what an audit of the pinned packages found, or that nobody could be asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def summary(found: list[dict[str, Any]]) -> tuple[str, int]:
    """Return a text and the exit code for the ``dependencies`` of pip-audit's report.

    The code is 1 if a package has a known vulnerability. It is 0 if none has, and also if no database
    answered, as on a machine that only reaches a mirror of packages; the text then says that nothing was
    checked.
    """
    skipped = [package["name"] for package in found if "skip_reason" in package]
    if len(skipped) == len(found):
        return f"NOT CHECKED: no database of advisories answered for any of {len(found)} packages", 0
    lines = []
    for package in found:
        for flaw in package.get("vulns", ()):
            mended = ", ".join(flaw["fix_versions"]) or "none yet"
            lines.append(f"{package['name']} {package['version']}: {flaw['id']}, mended in {mended}")
    code = 1 if lines else 0
    lines.append(f"{len(found) - len(skipped)} packages checked, {len(lines)} known vulnerabilities")
    if skipped:
        lines.append(f"NOT CHECKED, as the database does not know them: {', '.join(skipped)}")
    return "\n".join(lines), code


def main(path: Path) -> int:
    """Print the summary of a report; a report that is missing or empty counts as nobody asked."""
    text = path.read_text() if path.exists() else ""
    said, code = summary(json.loads(text)["dependencies"] if text.strip() else [])
    print(said)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
