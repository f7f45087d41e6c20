"""`berth api-key`: who may use the API."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Protocol

import orjson
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
    from services.cli.source import Source
    from services.ports.store import Grant, Store

app = typer.Typer(
    help="Create, list and revoke API keys. With any, or listening beyond loopback, the API asks for one. "
    "`berth up` makes the first one itself where others can reach it. These commands work beside it, and "
    "while it is stopped.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def _scope(item: Json) -> str:
    """Return what a key is limited to, in words."""
    listed = ((name, item[name]) for name in ("namespaces", "kinds", "priority_classes"))
    parts = [f"{name.replace('_', ' ')} {' '.join(values)}" for name, values in listed if values]
    parts += [f"node {item['node']}"] if item.get("node") else []
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


class Keys(Protocol):
    """The keys of an instance, whether it runs or not."""

    async def create(self, grant: Grant) -> str:
        """Make a key; return its text."""

    async def listed(self) -> list[Json]:
        """Return all keys as the API shows them."""

    async def revoke(self, name: str) -> int:
        """Revoke all keys of a name; return how many."""


class _OfLedger:
    """The keys as the ledger has them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, grant: Grant) -> str:
        from services.api.keys import key_hash, new_key

        key = new_key()
        await self._store.callers.create_key(key_hash(key), grant)
        return key

    async def listed(self) -> list[Json]:
        from services.api.formats import stamp
        from services.api.keys import in_force

        return [
            {
                **in_force(row.grant)._asdict(),
                "created_at": stamp(row.created_at),
                "revoked_at": stamp(row.revoked_at),
            }
            for row in await self._store.callers.keys()
        ]

    async def revoke(self, name: str) -> int:
        return await self._store.callers.revoke_key(name)


class _OfInstance:
    """The keys of a running instance, by its API: nobody else reaches its embedded server."""

    def __init__(self, source: Source) -> None:
        self._source = source

    async def create(self, grant: Grant) -> str:
        from services.cli.source import answer_of

        body = orjson.dumps(grant._asdict())
        return str(answer_of(*await self._source.request("POST", "/v1/keys", body))["key"])

    async def listed(self) -> list[Json]:
        from services.cli.source import fetch

        found: list[Json] = (await fetch(self._source, "/v1/keys"))["items"]
        return found

    async def revoke(self, name: str) -> int:
        from services.cli.source import answer_of, target

        status, body = await self._source.request("DELETE", target("/v1/keys", name))
        return 0 if status == 404 else int(answer_of(status, body)["revoked"])


@contextlib.asynccontextmanager
async def _keys(settings: Settings) -> AsyncIterator[Keys]:
    """Open the keys of the running instance, else those of the ledger."""
    from services import bootstrap
    from services.cli.source import Source, running_instance

    if settings.postgres_dsn is None:
        instance = await running_instance(bootstrap.data_dir(settings), settings.api_ca)
        if instance is not None:
            source = Source(instance.url, instance.owner_key, ca=settings.api_ca)
            async with contextlib.aclosing(source):
                yield _OfInstance(source)
            return
    async with bootstrap.place(settings, make=True) as place:
        if settings.postgres_dsn is None:
            await bootstrap.initialise(place, settings.shards)
        async with contextlib.aclosing(bootstrap.open_store(place)) as store:
            yield _OfLedger(store)


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
            "auditor reads, agent reports one node (--node), admin does everything. May be repeated.",
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
    node: Annotated[
        str | None, typer.Option(help="Of the role agent: the node that it is for.", metavar="NAME")
    ] = None,
) -> None:
    """Create a key and print it, this once. docs/keys.md says what each role may do."""
    from services.api.keys import checked_grant
    from services.ports.store import Grant

    rates = (events_per_second, bytes_per_second, requests_at_once)
    priorities = (priority_max, priority_class)
    try:
        grant = checked_grant(Grant(name, role, namespace, kind, *rates, *priorities, node))
    except FieldError as error:
        raise _named_as_given(error) from None
    async with _keys(settings) as keys:
        is_first = not await keys.listed()
        echo(await keys.create(grant))
    if is_first:
        output.say(
            "This is the first key: from now on every question to the API needs one (BERTH_API_KEY_FILE, "
            "BERTH_API_KEY), yours too. `--role admin` makes one that may do everything.",
            err=True,
        )


@app.command("list")
@with_settings("dir", "postgres_dsn", "postgres_password")
async def show(settings: Settings, form: Output = Format.TABLE) -> None:
    """List the keys, revoked ones included; the keys themselves are not kept."""
    async with _keys(settings) as keys:
        items = await keys.listed()
    output.print_items("keys", COLUMNS, items, form)


@app.command("revoke")
@with_settings("dir", "postgres_dsn", "postgres_password")
async def revoke(settings: Settings, name: Annotated[str, typer.Argument(help="Name of the key.")]) -> None:
    """Revoke all keys of a name, at once."""
    async with _keys(settings) as keys:
        count = await keys.revoke(name)
    if not count:
        raise CommandError(f"there is no key named {name} to revoke; `berth api-key list` shows them")
    echo(f"revoked {count} key(s) named {name}", err=True)
