"""The one JSON error shape, and the one place where an error's code becomes an HTTP status."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from domain.model.errors import BerthError, FieldError
from services.api.answers import Error, ErrorBody, ErrorDetail

_log = logging.getLogger("berth.api")

STATUS = {
    "invalid-field": 422,
    "invalid-events": 422,
    "not-json": 422,
    "not-http": 400,
    "not-found": 404,
    "out-of-reach": 410,
    "method-not-allowed": 405,
    "unauthorized": 401,
    "forbidden": 403,
    "not-granted": 403,
    "foreign-origin": 403,
    "unsupported-media-type": 415,
    "wrong-host": 421,
    "not-kept": 410,
    "another-ledger": 410,
    "too-large": 413,
    "rate-exceeded": 429,
    "too-many-failures": 429,
    "too-many-requests": 429,
    "unavailable": 503,
    "not-yet": 503,
    "busy": 503,
    "no-parquet": 501,
    "export-too-long": 503,
    "too-slow": 503,
    "not-ready": 503,
    "database-refused": 503,
    "log-refused": 503,
}
"""HTTP status per error code; anything else is 500."""


GONE = 499
"""The status by which a request is counted whose client left; it reaches no client."""


class ApiError(BerthError):
    """An error whose message the client gets as it is."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Sequence[ErrorDetail] | None = None,
        retry_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.retry_seconds = retry_seconds


def json_answer(value: object, status: int = 200) -> Response:
    """Return a value as a JSON answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_answer(
    code: str, message: str, path: str | None = None, details: Sequence[ErrorDetail] | None = None
) -> Response:
    """Return an error as a JSON answer with the status of its code."""
    body = ErrorBody(code=code, message=message, path=path or UNSET)
    if details is not None:
        body.details = list(details)
    answer = json_answer(Error(error=body), STATUS.get(code, 500))
    if answer.status_code == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="berth"'
    if answer.status_code == 503:
        answer.headers["Retry-After"] = "1"
    return answer


async def _berth(_: Request, error: Exception) -> Response:
    assert isinstance(error, BerthError)
    if isinstance(error, FieldError):
        return error_answer(error.code, error.message, error.path)
    if error.code not in STATUS:
        _log.error("request failed", exc_info=error)
    answer = error_answer(error.code, str(error), details=getattr(error, "details", None))
    if isinstance(error, ApiError) and error.retry_seconds is not None:
        answer.headers["Retry-After"] = str(error.retry_seconds)
    return answer


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 404:
        return error_answer("not-found", f"{path} is no resource of this API; see /docs or /openapi.json")
    if error.status_code == 405:
        answer = error_answer("method-not-allowed", f"{request.method} is not allowed on {path}")
        operations = request.app.openapi()["paths"].get(getattr(request.scope.get("route"), "path", ""), {})
        allowed = ", ".join(sorted(map(str.upper, operations)))  # the framework names those of one route
        answer.headers.update({"Allow": allowed} if allowed else error.headers or {})
        return answer
    return error_answer("internal", str(error.detail))


async def _parameters(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    details = [
        ErrorDetail(path=str(each["loc"][-1]) if each["loc"] else "", message=str(each["msg"]))
        for each in error.errors()
    ]
    return error_answer("invalid-field", details[0].message, details[0].path, details)


async def _gone(_: Request, error: Exception) -> Response:
    return Response(status_code=GONE)


async def _bug(_: Request, error: Exception) -> Response:
    return error_answer("internal", "the server failed on this request; its log says why")


def install(app: FastAPI) -> None:
    """Make the app answer every error in the one shape."""
    app.add_exception_handler(BerthError, _berth)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(RequestValidationError, _parameters)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _bug)
