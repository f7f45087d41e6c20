"""The one way from the command line to a terminal: what others wrote cannot steer it."""

from __future__ import annotations

import re

import typer

# Control characters but tab and line feed, and the marks that turn the direction of text or break its lines.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Return a text whose steering characters are written out as ``\u001b``, which JSON reads too.

    Names and messages come from manifests, other people's answers and the log. Printed as they are, escape
    sequences in them could recolour, retitle and overwrite a terminal, or answer in its user's name.
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def echo(text: str | bytes = "", *, err: bool = False) -> None:
    """Print a text and a line feed."""
    typer.echo(printable(text.decode() if isinstance(text, bytes) else text), err=err)
