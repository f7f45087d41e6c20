"""`berth agent`: the process on a node that measures, suppresses, evicts and reports."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from pathlib import Path
from typing import Annotated

import typer

from services.address import read_key
from services.cli.options import CommandError, with_settings
from services.cli.terminal import echo
from services.config import Settings


class _WallClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000


@with_settings("dir", "api_url", "api_key", "api_ca", "log_level", "log_format")
async def agent(
    settings: Settings,
    node: Annotated[
        str,
        typer.Option("--node", help="Name of this node, as events have it.", show_default="the host's name"),
    ] = "",
    cgroup_root: Annotated[
        str, typer.Option("--cgroup-root", help="Control group below which kubelet has those of pods.")
    ] = "/",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; change and send nothing.")
    ] = False,
    grace_seconds: Annotated[
        int,
        typer.Option(
            "--grace-seconds", help="From SIGTERM to SIGKILL, where the kernel ends no group at once.", min=0
        ),
    ] = 30,
    latency_dir: Annotated[
        Path | None,
        typer.Option(
            "--latency-dir", help="Folder in which pods write their latency and its bound.", file_okay=False
        ),
    ] = None,
) -> None:
    """Measure this node by quality, hold low pods back, end them where they hurt, and report. Until Ctrl-C.

    Prints a line for each thing that it does.
    """
    from services import bootstrap
    from services.agent.acting import AgentSettings
    from services.agent.run import Agent
    from services.cli.source import Source, running_instance
    from services.supervising import announced, leave, supervise

    told = AgentSettings(
        node or socket.gethostname(), secrets.token_hex(4), dry_run, grace_seconds, latency_dir
    )
    url, key = settings.api_url, settings.api_key
    if url is None:
        directory = bootstrap.data_dir(settings)
        instance = await running_instance(directory, settings.api_ca)
        if instance is None:
            raise CommandError(f"nothing runs on {directory}; name the API with --api, or BERTH_API_URL")
        url, key = instance.url, key or read_key(directory)
    cgroups = bootstrap.open_cgroups(cgroup_root)
    found = Agent(cgroups, told, _WallClock(), lambda: time.monotonic_ns() // 1_000_000, echo)
    offered = ", ".join(sorted(cgroups.features())) or "no pods yet"
    line = f"agent of {told.node} is up, on cgroups v{cgroups.version} ({offered}); Ctrl-C stops it"
    async with contextlib.aclosing(
        Source(url, key, proxied=settings.api_url is not None, ca=settings.api_ca)
    ) as api:
        await supervise(announced(line, found.run(api)))
    leave()
