"""`berth api-key`: who may use the API."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from services.cli import output
from services.cli.options import CommandError, with_settings
from services.cli.output import Column, Format, Output
from services.cli.tables import moment
from services.cli.terminal import echo
from services.config import Settings

if TYPE_CHECKING:
    from services.ports.store import Store

app = typer.Typer(
    help="Create, list and revoke API keys. With any, or listening beyond loopback, the API asks for one. "
    "`berth up` makes the first one itself where others can reach it; it is stopped while further ones are "
    "made in its embedded server.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS = (
    Column("NAME", lambda item: item["name"]),
    Column("ROLES", lambda item: ",".join(item["roles"])),
    moment("CREATED", "created_at"),
    moment("REVOKED", "revoked_at"),
)


class Role(enum.StrEnum):
    """What a key may do."""

    PRODUCER = "producer"
    AUDITOR = "auditor"
    ADMIN = "admin"


@contextlib.asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Store]:
    from services import bootstrap

    async with bootstrap.place(settings) as place:
        if settings.postgres_dsn is None:
            await bootstrap.initialise(place, settings.shards)
        async with contextlib.aclosing(bootstrap.open_store(place)) as store:
            yield store


@app.command("create")
@with_settings("dir", "postgres_dsn")
async def create(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="What to call it; several keys may share a name.")],
    role: Annotated[
        Role, typer.Option("--role", help="producer posts events, auditor reads, admin does both.")
    ],
) -> None:
    """Create a key and print it, this once."""
    from services.api.keys import key_hash, new_key
    from services.ports.store import Grant

    key = new_key()
    async with _store(settings) as store:
        await store.create_key(key_hash(key), Grant(name, [role.value]))
    echo(key)


@app.command("list")
@with_settings("dir", "postgres_dsn")
async def show(settings: Settings, form: Output = Format.TABLE) -> None:
    """List the keys, revoked ones included; the keys themselves are not kept."""
    from services.api.formats import stamp

    async with _store(settings) as store:
        rows = await store.keys()
    items = [
        {
            "name": row.grant.name,
            "roles": list(row.grant.roles),
            "created_at": stamp(row.created_at),
            "revoked_at": stamp(row.revoked_at),
        }
        for row in rows
    ]
    output.print_items("keys", COLUMNS, items, form)


@app.command("revoke")
@with_settings("dir", "postgres_dsn")
async def revoke(settings: Settings, name: Annotated[str, typer.Argument(help="Name of the key.")]) -> None:
    """Revoke all keys of a name, at once."""
    async with _store(settings) as store:
        count = await store.revoke_key(name)
    if not count:
        raise CommandError(f"there is no key named {name} to revoke; `berth api-key list` shows them")
    echo(f"revoked {count} key(s) named {name}", err=True)
