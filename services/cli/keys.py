"""`berth api-key`: who may use the API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from domain.model.errors import FieldError
from domain.model.priorities import USER_PRIORITY_MAX
from services.cli import output
from services.cli.options import CommandError, with_settings
from services.cli.output import Column, Format, Json, Output
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


def _scope(item: Json) -> str:
    """Return what a key is limited to, in words."""
    listed = ((name, item[name]) for name in ("namespaces", "kinds", "priority_classes"))
    parts = [f"{name.replace('_', ' ')} {' '.join(values)}" for name, values in listed if values]
    if item["priority_max"] not in (None, USER_PRIORITY_MAX):
        parts.append(f"priority {item['priority_max']}")
    rates = ((unit, item[name]) for name, unit in _RATES.items())
    return "; ".join(parts + [f"{value} {unit}" for unit, value in rates if value])


_RATES = {"events_per_second": "events/s", "bytes_per_second": "bytes/s", "requests_at_once": "at once"}
COLUMNS = (
    Column("NAME", lambda item: item["name"]),
    Column("ROLES", lambda item: " ".join(item["roles"])),
    Column("LIMITED TO", _scope),
    moment("CREATED", "created_at"),
    moment("REVOKED", "revoked_at"),
)


@contextlib.asynccontextmanager
async def _store(settings: Settings) -> AsyncIterator[Store]:
    from ops.postgres.server import InUse
    from services import bootstrap

    try:
        async with bootstrap.place(settings, make=True) as place:
            if settings.postgres_dsn is None:
                await bootstrap.initialise(place, settings.shards)
            async with contextlib.aclosing(bootstrap.open_store(place)) as store:
                yield store
    except InUse as error:
        raise CommandError(f"{error}; or ask its API with an admin's key: POST /v1/keys") from None


def _named_as_given(error: FieldError) -> CommandError:
    """Return the error about a part of a grant with the name that it has on the command line."""
    flag = _FLAGS.get(error.path, error.path.replace("_", "-"))
    return CommandError(f"{'NAME' if flag == 'name' else f'--{flag}'}: {error.message}")


_FLAGS = {
    "roles": "role",
    "namespaces": "namespace",
    "kinds": "kind",
    "priority_classes": "priority-class",
}
Several = list[str] | None


@app.command("create")
@with_settings("dir", "postgres_dsn", "postgres_password")
async def create(
    settings: Settings,
    name: Annotated[str, typer.Argument(help="Who holds it; several keys may share a name.")],
    role: Annotated[
        list[str],
        typer.Option(
            help="producer sends pods and budgets, operator sends what belongs to the cluster and reads, "
            "auditor reads, admin does everything. May be repeated.",
            metavar="ROLE",
        ),
    ],
    namespace: Annotated[
        Several, typer.Option(help="Only this namespace. May be repeated.", metavar="NAME")
    ] = None,
    kind: Annotated[
        Several,
        typer.Option(
            help="Send this kind, instead of those of the roles. May be repeated; also Pod/binding, to send "
            "pods with a node, Pod/priority, for any priority, and Pod/anti-affinity, to keep pods of other "
            "namespaces off more than a node.",
            metavar="KIND",
        ),
    ] = None,
    events_per_second: Annotated[int | None, typer.Option(help="Events that the name may send.")] = None,
    bytes_per_second: Annotated[int | None, typer.Option(help="Bytes of events that it may send.")] = None,
    requests_at_once: Annotated[
        int | None, typer.Option(help="Requests of the name that are answered at the same time.")
    ] = None,
    priority_max: Annotated[
        int | None,
        typer.Option(
            help="The highest priority that its pods may ask for; without it 0 with --namespace or "
            "--priority-class, else 1000000000."
        ),
    ] = None,
    priority_class: Annotated[
        Several,
        typer.Option(
            help="A priority class that its pods may name, whatever its value. May be repeated; with "
            "--namespace or --priority-max they may name no other.",
            metavar="NAME",
        ),
    ] = None,
) -> None:
    """Create a key and print it, this once. docs/keys.md says what each role may do."""
    from services.api.keys import checked_grant, key_hash, new_key
    from services.ports.store import Grant

    rates = (events_per_second, bytes_per_second, requests_at_once)
    priorities = (priority_max, priority_class)
    try:
        key, grant = new_key(), checked_grant(Grant(name, role, namespace, kind, *rates, *priorities))
    except FieldError as error:
        raise _named_as_given(error) from None
    async with _store(settings) as store:
        await store.create_key(key_hash(key), grant)
    echo(key)


@app.command("list")
@with_settings("dir", "postgres_dsn", "postgres_password")
async def show(settings: Settings, form: Output = Format.TABLE) -> None:
    """List the keys, revoked ones included; the keys themselves are not kept."""
    from services.api.formats import stamp
    from services.api.keys import in_force

    async with _store(settings) as store:
        rows = await store.keys()
    items = [
        {
            **in_force(row.grant)._asdict(),
            "created_at": stamp(row.created_at),
            "revoked_at": stamp(row.revoked_at),
        }
        for row in rows
    ]
    output.print_items("keys", COLUMNS, items, form)


@app.command("revoke")
@with_settings("dir", "postgres_dsn", "postgres_password")
async def revoke(settings: Settings, name: Annotated[str, typer.Argument(help="Name of the key.")]) -> None:
    """Revoke all keys of a name, at once."""
    async with _store(settings) as store:
        count = await store.revoke_key(name)
    if not count:
        raise CommandError(f"there is no key named {name} to revoke; `berth api-key list` shows them")
    echo(f"revoked {count} key(s) named {name}", err=True)
