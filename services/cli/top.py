"""`berth top`: what nodes and namespaces requested, used and had decided over time."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from services.cli import output
from services.cli.options import CLIENT, check_times, with_settings
from services.cli.output import Column, Format, Json, Output
from services.cli.tables import moment
from services.config import Settings
from services.times import TIMES

_GIB = 1 << 30


class Of(enum.StrEnum):
    """What `berth top` shows, and what the API calls it."""

    NODES = "nodes"
    NAMESPACES = "namespaces"
    CLUSTER = "cluster"

    @property
    def by(self) -> str:
        """The value of `by`."""
        return self.value.removesuffix("s")


def _amount(item: Json, what: str, resource: str) -> str | None:
    if resource == "cpu":
        milli = item[f"{what}_cpu_milli"]
        return None if milli is None else f"{milli / 1000:g}"
    amount = item[f"{what}_memory_bytes"]
    return None if amount is None else f"{amount / _GIB:.4g}Gi"


def _of(title: str, what: str, resource: str, *, wide: bool = False) -> Column:
    return Column(title, lambda item: _amount(item, what, resource), right=True, wide=wide)


def _number(title: str, field: str, *, wide: bool = False) -> Column:
    return Column(title, lambda item: item[field], right=True, keep=True, wide=wide)


def _decided(item: Json) -> str:
    return " ".join(f"{outcome}={count}" for outcome, count in item["decisions"].items())


def columns(of: Of, *, steps: bool) -> list[Column]:
    """Return the columns: with ``steps`` also when each begins."""
    found = [moment("AT", "at")] if steps else []
    if of is not Of.CLUSTER:
        found.append(Column(of.by.upper(), lambda item: item["name"]))
    found += [_number("PODS", "pods"), _of("CPU", "requested", "cpu"), _of("MEMORY", "requested", "memory")]
    if of is not Of.NAMESPACES:
        for resource in ("cpu", "memory"):
            found.append(_of(f"OF {resource.upper()}", "allocatable", resource))
        for resource in ("cpu", "memory"):
            found.append(_of(f"USED {resource.upper()}", "measured", resource))
    if of is not Of.NODES:
        found.append(_number("PENDING", "pending_pods"))
    found.append(_number("EVICTIONS", "evictions"))
    found.append(Column("DECISIONS", _decided))
    found.append(_number("SAMPLES", "samples", wide=True))
    return found


@with_settings(*CLIENT)
async def top(
    settings: Settings,
    of: Annotated[Of, typer.Argument(metavar="OF", help=f"One of {', '.join(Of)}.")],
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help=f"From the step of this time on: {TIMES}.")
    ] = "1h",
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only steps that begin before this time.")
    ] = None,
    step: Annotated[
        str | None,
        typer.Option("--step", metavar="TIME", help="A line for each step of 5m or a multiple, as 1h."),
    ] = None,
    form: Output = Format.TABLE,
) -> None:
    """Show what pods requested and used, and how many decisions there were, as means over a time."""
    from services.cli.source import fetch_all, open_source

    check_times(since=since, until=until)
    async with open_source(settings) as source:
        found = await fetch_all(source, "/v1/usage", None, by=of.by, since=since, until=until, step=step)
    if step is None:
        found.sort(key=lambda item: (-(item["requested_cpu_milli"] or 0), item["name"]))
    output.print_items("usage", columns(of, steps=step is not None), found, form)
