"""Errors as pages: what was asked, why there is no answer, and what to do."""

from __future__ import annotations

from services.console.asking import NotAnswered
from services.console.blocks import Block, Field, Form, Link, Text, View
from services.console.here import Here

_TITLES = {
    401: "Sign in",
    403: "You may not see this",
    404: "There is no such thing",
    405: "This cannot be asked so",
    410: "That moment is out of reach",
    413: "This is too much",
    415: "This cannot be read",
    422: "This is not understood",
    429: "Too much was asked",
    501: "This is not installed here",
    503: "The API cannot answer now",
}
_REMEDIES = {
    403: "Sign in with a key whose role and namespaces allow it; an admin makes one with "
    "`berth api-key create`.",
    404: "Names are exact. What was just sent may be on its way; what is long gone may still be in a history "
    "or among the decisions.",
    410: "Choose a later moment, or go back to now. How far back the ledger reaches is set by `berth prune`.",
    429: "Wait a moment and load the page again.",
    503: "Load the page again in a moment. What is wrong now is said above, with what to do about it.",
}


def error_view(error: NotAnswered, here: Here, *, is_signed_in: bool) -> View:
    """Return the page that says why there is no answer."""
    if error.status == 401:
        return sign_in_view(here, error.message if is_signed_in else "", here.root + here.path)
    lines = [f"{error.path}: {error.message}" if error.path else error.message]
    lines += [f"{each.get('path', '')}: {each.get('message', '')}" for each in error.details[1:]]
    remedy = _REMEDIES.get(error.status)
    blocks: list[Block] = [Text(title="Why", lines=lines or ["The API does not say."], look="bad")]
    links = [Link("Back to the overview", here.to())]
    if here.at is not None:
        links.insert(0, Link("This page as it is now", here.at_another(None)))
    if error.status == 503:
        links.insert(0, Link("What is wrong now", here.to("wrong")))
    blocks.append(Text(title="What to do", lines=[remedy] if remedy else [], links=links))
    title = _TITLES.get(error.status, "Something went wrong")
    return View(title=title, blocks=blocks, is_live=False)


def sign_in_view(here: Here, why: str, after: str) -> View:
    """Return the page on which a visitor shows a key. ``after`` is where he wants to go."""
    said = [why] if why else []
    said.append("This console shows what the API shows, and the API asks for a key here.")
    form = Form(
        title="Show a key",
        action=f"{here.root}/sign-in",
        fields=[
            Field(
                "key",
                "API key",
                is_secret=True,
                hint="`berth api-key create NAME --role auditor` makes one. A session lasts 12 hours at "
                "most, and ends when the key is revoked.",
            )
        ],
        button="Sign in",
        hidden={"next": after},
        token=here.token,
    )
    return View(
        title="Sign in",
        blocks=[Text(lines=said, look="bad" if why else ""), form],
        is_live=False,
        has_twin=False,
    )
