"""`berth api-key`: who may use the API."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import typer

from services.cli import options, output
from services.cli.options import CommandError
from services.cli.output import Column, Format
from services.config import Settings

app = typer.Typer(
    help="Create, list and revoke API keys. With any, or listening beyond loopback, the API asks for one. "
    "The embedded server's keys are made while `berth up` is stopped.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS = (
    Column("NAME", lambda item: item["name"]),
    Column("ROLE", lambda item: item["role"]),
    Column("CREATED", lambda item: item["created_at"]),
    Column("REVOKED", lambda item: item["revoked_at"]),
)


class Role(enum.StrEnum):
    """What a key may do."""

    PRODUCER = "producer"
    AUDITOR = "auditor"
    ADMIN = "admin"


def _with_store(settings: Settings, work: Callable[[Any], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        from services import bootstrap

        async with bootstrap.place(settings) as place:
            if settings.postgres_dsn is None:
                await bootstrap.initialise(place, settings.shards)
            store = bootstrap.open_store(place)
            try:
                return await work(store)
            finally:
                await store.aclose()

    return options.run(run())


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="What to call it; several keys may share a name.")],
    role: Annotated[
        Role, typer.Option("--role", help="producer posts events, auditor reads, admin does both.")
    ],
    directory: options.Dir = None,
    dsn: options.Dsn = None,
) -> None:
    """Create a key and print it, this once."""
    settings = options.settings(dir=directory, postgres_dsn=dsn)

    async def work(store: Any) -> str:
        from services.api.keys import key_hash, new_key

        key = new_key()
        await store.create_key(key_hash(key), name, role.value)
        return key

    typer.echo(_with_store(settings, work))


@app.command("list")
def show(
    form: Annotated[Format, typer.Option("-o", "--output", help="How to show it.")] = Format.TABLE,
    directory: options.Dir = None,
    dsn: options.Dsn = None,
) -> None:
    """List the keys, revoked ones included; the keys themselves are not kept."""
    settings = options.settings(dir=directory, postgres_dsn=dsn)

    async def work(store: Any) -> list[dict[str, Any]]:
        from services.api.words import stamp

        return [
            {
                "name": row["name"],
                "role": row["role"],
                "created_at": stamp(row["created_at"]),
                "revoked_at": stamp(row["revoked_at"]),
            }
            for row in await store.keys()
        ]

    items = _with_store(settings, work)
    if form is Format.JSON:
        output.print_json(items)
    elif form is Format.YAML:
        output.print_yaml(items)
    else:
        output.print_table("keys", COLUMNS, items)


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(help="Name of the key.")],
    directory: options.Dir = None,
    dsn: options.Dsn = None,
) -> None:
    """Revoke all keys of a name, at once."""
    settings = options.settings(dir=directory, postgres_dsn=dsn)

    async def work(store: Any) -> int:
        return int(await store.revoke_key(name))

    count = _with_store(settings, work)
    if not count:
        raise CommandError(f"there is no key named {name} to revoke; `berth api-key list` shows them")
    typer.echo(f"revoked {count} key(s) named {name}", err=True)
