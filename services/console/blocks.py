"""What pages are made of: tables, facts, bars and stories, as values that templates only write down."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Cell:
    """A text, perhaps with a link.

    ``look`` is how it is shown: "", number, time (``text`` is RFC 3339), code, good, bad or muted. ``key`` is
    what a table is sorted by; None: the text.
    """

    text: str
    href: str | None = None
    look: str = ""
    title: str | None = None
    key: float | str | None = None


@dataclasses.dataclass(frozen=True)
class Link:
    """A text that leads somewhere."""

    text: str
    href: str


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table; ``name`` is what the URL calls it where the table can be sorted by it."""

    title: str
    name: str = ""
    is_number: bool = False


Line = Cell | Sequence[Cell]
"""One cell of a row: a text, or several of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of cells. ``sorts`` are links that sort it, by column, and ``sorted_by`` the one that holds."""

    kind: ClassVar[str] = "table"
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Line]]
    empty: str = "There are none."
    note: str = ""
    sorts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    sorted_by: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Names with what they are."""

    kind: ClassVar[str] = "facts"
    title: str
    items: Sequence[tuple[str, Line]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Text:
    """Sentences; ``look`` is "", good or bad."""

    kind: ClassVar[str] = "text"
    title: str = ""
    lines: Sequence[str]
    look: str = ""
    links: Sequence[Link] = ()


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a bar: how wide it is in percent of the widest bar, and which of ten colours it has."""

    name: str
    x_percent: float
    width_percent: float
    colour: int
    text: str


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar of parts with its name, and the same in words."""

    name: Cell
    parts: Sequence[Part]
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bars:
    """Bars below each other. ``legend`` names the colours."""

    kind: ClassVar[str] = "bars"
    title: str
    lines: Sequence[str] = ()
    bars: Sequence[Bar]
    legend: Sequence[tuple[str, int]] = ()


@dataclasses.dataclass(frozen=True)
class Happened:
    """One thing that happened."""

    at: str
    what: str
    says: str
    links: Sequence[Link]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Story:
    """What happened, one thing after the other."""

    kind: ClassVar[str] = "story"
    title: str
    entries: Sequence[Happened]
    lines: Sequence[str] = ()
    more: Link | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Raw:
    """A value as JSON, folded away."""

    kind: ClassVar[str] = "raw"
    title: str
    text: str


@dataclasses.dataclass(frozen=True)
class Field:
    """A field of a form: a text, or one of ``options``, or with ``rows`` several lines."""

    name: str
    label: str
    value: str = ""
    options: Sequence[tuple[str, str]] = ()
    rows: int = 0
    hint: str = ""
    is_secret: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """A form. With ``token`` it is one that is sent (POST), else its fields go into the URL."""

    kind: ClassVar[str] = "form"
    title: str
    action: str
    fields: Sequence[Field]
    button: str
    hidden: Mapping[str, str] = dataclasses.field(default_factory=dict)
    token: str | None = None
    clear: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pager:
    """Where the list begins and goes on."""

    kind: ClassVar[str] = "pager"
    first: str | None
    following: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Later:
    """What takes seconds: a link to its page, of which a script puts the blocks here as they come."""

    kind: ClassVar[str] = "later"
    title: str
    href: str


Block = Later | Table | Facts | Text | Bars | Story | Raw | Form | Pager


@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """A page: its title, what stays while it is live, and what is made anew then.

    ``extra`` names a template of the page's own, which gets ``data``; ``scripts`` are files of ``static``.
    ``shows`` is what a page shows that has no moment.
    """

    title: str
    blocks: Sequence[Block]
    controls: Sequence[Block] = ()
    crumbs: Sequence[Link] = ()
    is_live: bool = True
    has_twin: bool = True
    extra: str | None = None
    data: Any = None
    scripts: Sequence[str] = ()
    shows: str = "what is now"
