"""Who visits: the cookie of a session, and the token that forms carry so that no other site can send them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from domain.model.limits import form_bytes_max, session_seconds_max
from services.console.asking import NotAnswered

SESSION_COOKIE, FORM_COOKIE = "berth_session", "berth_form"
_FIELDS_MAX = 50
_SECRET_CHARS_MAX = 100


class Visitor(NamedTuple):
    """A browser: the token of its session, if it shows one, and the secret that its forms are bound to."""

    session: str | None
    secret: str
    is_new: bool

    @staticmethod
    def of(request: Request) -> Visitor:
        """Read the cookies; a browser without any gets a secret for its forms."""
        session, known = (_cookie(request, name) for name in (SESSION_COOKIE, FORM_COOKIE))
        return Visitor(session, session or known or secrets.token_urlsafe(32), not (session or known))

    @property
    def token(self) -> str:
        """What forms carry: only who can read this host's pages knows it."""
        return hmac.new(self.secret.encode(), b"forms of the console", hashlib.sha256).hexdigest()


def _cookie(request: Request, name: str) -> str | None:
    value = request.cookies.get(name, "")
    return value if 0 < len(value) <= _SECRET_CHARS_MAX and value.isascii() and value.isprintable() else None


def set_cookie(request: Request, answer: Response, name: str, value: str | None, root: str) -> None:
    """Set a cookie that no script reads and no other site sends; without a value, take it away."""
    is_https = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    age = 0 if value is None else session_seconds_max
    answer.set_cookie(
        name, value or "", max_age=age, path=root, secure=is_https, httponly=True, samesite="strict"
    )


async def read_form(request: Request, visitor: Visitor) -> dict[str, str]:
    """Return the fields of a form that a page of ours sent; raise ``NotAnswered`` where another did."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/x-www-form-urlencoded":
        raise NotAnswered.of(
            415, "unsupported-media-type", "a form is sent as application/x-www-form-urlencoded"
        )
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > form_bytes_max:
            raise NotAnswered.of(413, "too-large", f"a form may hold {form_bytes_max} bytes (form_bytes_max)")
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError:
        raise NotAnswered.of(422, "invalid-field", "the form cannot be read") from None
    if visitor.is_new or not hmac.compare_digest(fields.pop("token", "").encode(), visitor.token.encode()):
        told = "this form is not of a page that was shown to you, or its session ended; load the page again"
        raise NotAnswered.of(403, "forbidden", told)
    return fields


def safe_next(text: str, root: str) -> str:
    """Return where to go after signing in: a path of the console, or its first page for anything else."""
    first = f"{root}/"
    try:
        parts = urlsplit(text)
    except ValueError:
        return first
    is_ours = not parts.scheme and not parts.netloc and parts.path.startswith(first)
    is_plain = text.isascii() and text.isprintable() and "\\" not in text and ".." not in parts.path
    return text if is_ours and is_plain and not text.startswith("//") else first
