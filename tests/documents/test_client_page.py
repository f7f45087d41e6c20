"""Do the programs of docs/client.md run as printed, and the first of them with the client's wheel alone?"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import re
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.kafka_site import site
from tests.documents.commands import REPOSITORY
from tests.integration.commands import environment, up
from tests.servers import scratch_dir

PAGE = REPOSITORY / "docs" / "client.md"
*PROGRAMS, WITH_KAFKA = re.findall(
    r"^```python\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL
)
NEEDED = ("httpx", "httpcore", "h11", "anyio", "idna", "certifi", "msgspec", "typing_extensions")
"""The distributions that the wheel asks for, and those that they ask for."""
SECONDS_MAX = 280
ALONE = """
import importlib.util, sys

sys.path.append({packages!r})
for absent in ("numba", "numpy", "services", "domain", "orjson", "aiokafka"):
    assert importlib.util.find_spec(absent) is None, absent
"""
"""What goes before a program that has the client's packages, and no others."""


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder on which a ``berth up`` runs."""
    with scratch_dir() as directory, up(directory / "berth"):
        yield directory


def run(command: list[str], place: Path, **kept: str) -> list[str]:
    done = subprocess.run(
        command,
        cwd=place,
        env=environment(place / "berth") | kept,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.deep
@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.slow
def test_the_page_runs_as_one_program(place: Path) -> None:
    assert len(PROGRAMS) >= 8
    program = place / "page.py"
    program.write_text("\n".join(PROGRAMS))
    told = run([sys.executable, "-X", "dev", str(program)], place, PYTHONPATH=str(REPOSITORY))
    assert told[0].startswith("10000 pods; node-")
    assert told[1].startswith("bound node-")
    assert told[1].endswith(" 10000")
    assert sum("more free cpu" in each for each in told) == 2, told


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.slow
async def test_the_program_with_kafka_has_each_effect_once(
    fresh_kafka: str, postgres_dsn: str, server_dir: Path
) -> None:
    program = server_dir / "follow.py"
    text = f"import asyncio\n{PROGRAMS[0].partition('with Client')[0]}\n{WITH_KAFKA}"
    assert "follow(100)" in text
    async with site(postgres_dsn, fresh_kafka) as there:
        of_kafka = {"PYTHONPATH": str(REPOSITORY), "BERTH_KAFKA_BOOTSTRAP": there.kafka}
        for count in (100, 110):  # the second time it goes on behind what it kept
            program.write_text(text.replace("follow(100)", f"follow({count})"))
            await asyncio.to_thread(run, [sys.executable, str(program)], server_dir, **of_kafka)
            with contextlib.closing(sqlite3.connect(server_dir / "effects.db")) as effects:
                told = effects.execute("SELECT count(*), count(DISTINCT pod) FROM done WHERE node <> ''")
                assert told.fetchone() == (count, count)


def _folder_with(distributions: tuple[str, ...], at: Path) -> None:
    """Give a folder the packages of some distributions, and nothing else of this environment."""
    for name in distributions:
        files = importlib.metadata.files(name) or ()
        for top in {file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}:
            source = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            (at / top).symlink_to(source)


@pytest.mark.deep
@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.slow
def test_the_wheel_of_the_client_needs_nothing_else_of_berth(place: Path) -> None:
    """Without the folders of this environment: what is not in the wheel, or named by it, is not there."""
    sources, packages = place / "sources", place / "packages"
    packages.mkdir()
    subprocess.run(["cp", "-r", str(REPOSITORY / "berth"), str(sources)], check=True)
    built = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*built, "--wheel-dir", str(place), str(sources)], check=True, capture_output=True)
    (wheel,) = place.glob("berth_client-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(packages)
    _folder_with(NEEDED, packages)
    program = place / "alone.py"
    program.write_text(ALONE.format(packages=str(packages)) + PROGRAMS[0])
    told = run([sys.executable, "-I", "-S", str(program)], place)
    assert told[0].startswith("10000 pods; node-")
