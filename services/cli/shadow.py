"""`berth shadow`: how a profile that is planned beside the live ones compares with them."""

from __future__ import annotations

from typing import Annotated

import typer

from services.cli import output
from services.cli.options import CLIENT, with_settings
from services.cli.output import Column, Format, Json, Output
from services.cli.terminal import echo
from services.config import Settings


def _percent(item: Json, field: str) -> str | None:
    return None if item[field] is None else f"{item[field]:.1%}"


def _points(item: Json, field: str) -> str | None:
    return None if item[field] is None else f"{item[field]:.2f}"


NUMBERS = (
    Column("STATE", lambda item: item["state"], keep=True),
    Column("REVISION", lambda item: item["revision"], right=True),
    Column("ATTEMPTS", lambda item: item["attempts"], right=True),
    Column("AGREEMENT", lambda item: _percent(item, "agreement"), right=True),
    Column("REGRET", lambda item: _points(item, "regret"), right=True),
    Column("LIVE REGRET", lambda item: _points(item, "live_regret"), right=True),
    Column("ONLY LIVE", lambda item: item["only_live"], right=True),
    Column("ONLY SHADOW", lambda item: item["only_shadow"], right=True),
    Column("SKIPPED", lambda item: item["skipped"] + item["skipped_lagging"], right=True),
    Column("PODS", lambda item: item["pods"], right=True, wide=True),
    Column("PODS AGREE", lambda item: _percent(item, "pods_agreement"), right=True, wide=True),
    Column("LIVE REFUSED", lambda item: item["live_refused"], right=True, wide=True),
    Column("SHADOW REFUSED", lambda item: item["shadow_refused"], right=True, wide=True),
    Column("NEITHER", lambda item: item["neither"], right=True, wide=True),
)
PROFILES = (Column("PROFILE", lambda item: item["profile"]), *NUMBERS)
WORKERS = (Column("WORKER", lambda item: item["name"]), *NUMBERS)


@with_settings(*CLIENT)
async def shadow(
    settings: Settings,
    profile: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="Only this one; without it, all.")
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Say how a shadow profile compares with those in force: would it choose other nodes, and what is lost.

    Workers that have it as BERTH_SHADOW_PROFILE compare; nothing they decide depends on it.
    """
    from services.cli.source import fetch_all, open_source

    async with open_source(settings) as source:
        found = await fetch_all(source, "/v1/shadow", None, profile=profile)
    if form in (Format.JSON, Format.YAML):
        output.print_items("shadow profiles", PROFILES, found, form)
        return
    if not found:
        which = "any profile" if profile is None else f"the profile {profile}"
        output.say(f"no worker that is up compares {which}: see BERTH_SHADOW_PROFILE")
        return
    output.print_items("shadow profiles", PROFILES, found, form)
    for item in found:
        if len(item["workers"]) > 1:
            echo(f"\n{item['profile']}, by worker")
            output.print_items("workers", WORKERS, item["workers"], form)
