"""Is each thing that goes wrong the exception of its kind, whatever answers and wherever it breaks off?"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.client import (
    AsyncClient,
    BadAnswer,
    BerthError,
    Client,
    InvalidRequest,
    NoAnswer,
    NoLongerKept,
    NotAllowed,
    NotFound,
    Refused,
    Retry,
    Unavailable,
    models,
)
from berth.client.errors import decoded, error_of
from berth.client.retrying import NEVER
from services.api.failures import STATUS, error_answer
from tests.client.cutting import read_message

PAGE = b"<!DOCTYPE html>\n\n<html><body>Please log in</body></html>\n\n"
KINDS = {
    400: InvalidRequest, 401: NotAllowed, 403: NotAllowed, 404: NotFound, 405: InvalidRequest,
    410: NoLongerKept, 413: InvalidRequest, 415: InvalidRequest, 421: InvalidRequest, 422: InvalidRequest,
    429: Unavailable, 501: Refused, 503: Unavailable,
}  # fmt: skip


@pytest.mark.parametrize("code", [*STATUS, "internal"])
def test_each_error_of_the_api_is_of_its_kind(code: str) -> None:
    answer = error_answer(code, "what was wrong", "a.b", [])
    error = error_of(answer.status_code, bytes(answer.body))
    kind = KINDS.get(answer.status_code, Unavailable)
    assert type(error) is kind
    assert (error.code, error.message, error.path) == (code, "what was wrong", "a.b")
    assert (error.status, error.details) == (answer.status_code, ())
    assert str(error) == "a.b: what was wrong"


def test_all_that_is_wrong_is_told() -> None:
    detail = {"index": 3, "path": "spec", "message": "is missing"}
    body = {"error": {"code": "invalid-events", "message": "it is", "details": [detail]}}
    error = error_of(422, json.dumps(body).encode())
    assert error.details == (models.ErrorDetail(index=3, path="spec", message="is missing"),)
    assert error.path is None
    assert str(error) == "it is"


NO_ERRORS = (
    b"", b"null", b"{}", b"[]", b"Bad Gateway", PAGE, b'{"error": "no"}', b'{"error": {}}',
    b'{"error": {"cod', b'{"error": {"code": 1, "message": "x"}}',
    b'{"error": {"code": "\xff", "message": ""}}',
    b"[" * 100_000, b"\xff\xfe", b"\x00", gzip.compress(b"{}"),
)  # fmt: skip


@pytest.mark.parametrize("body", NO_ERRORS)
@pytest.mark.parametrize("status", [301, 308, 400, 404, 407, 500, 502, 503, 504])
def test_an_answer_that_is_no_error_of_the_api_is_a_bad_answer_or_a_busy_proxy(
    status: int, body: bytes
) -> None:
    error = error_of(status, body)
    assert type(error) is (Unavailable if status in (502, 503, 504) else BadAnswer)
    assert (error.status, error.code) == (status, "bad-answer")
    assert str(status) in str(error)


@given(st.binary(max_size=100), st.integers(300, 599))
def test_any_answer_at_all_is_an_error_of_the_client(body: bytes, status: int) -> None:
    assert isinstance(error_of(status, body), BerthError)


@given(st.binary(max_size=50))
def test_any_answer_at_all_is_read_or_a_bad_answer(body: bytes) -> None:
    for kind in (models.Pod, models.NodePage, str):
        with contextlib.suppress(BadAnswer):
            decoded(body, kind)


# ------------------------------------------------------------------------------ whole clients, both kinds

Ask = Callable[[Any], Any]


def _listed(client: Any) -> Any:
    return client.nodes.list()


def _got(client: Any) -> Any:
    return client.cluster.totals()


def _applied(client: Any) -> Any:
    return client.apply({"kind": "Node", "metadata": {"name": "n"}})


def _planned(client: Any) -> Any:
    return client.plan("kind: Pod")


def _watched(client: Any) -> Any:
    return client.watch(after="l-1")


def _exported(client: Any) -> Any:
    return client.export("decisions")


def _measured(client: Any) -> Any:
    return client.cluster.metrics()


ASKED = [_listed, _got, _applied, _planned, _watched, _exported]


async def _awaited(url: str, ask: Ask, **named: Any) -> Any:
    async with AsyncClient(url, **named) as client, asyncio.timeout(20):
        answer = ask(client)
        return [each async for each in answer] if hasattr(answer, "__aiter__") else await answer


def run(kind: str, ask: Ask, url: str = "https://berth.example", **named: Any) -> Any:
    """Ask once, by a client that blocks or one that awaits."""
    named = {"retry": NEVER, **named}
    if kind == "awaits":
        return asyncio.run(_awaited(url, ask, **named))
    with Client(url, **named) as client:
        answer = ask(client)
        return list(answer) if hasattr(answer, "__iter__") and not isinstance(answer, str) else answer


@pytest.fixture(params=["blocks", "awaits"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("status", [200, 301, 302, 404])
def test_a_page_for_people_is_never_taken_for_an_answer(kind: str, ask: Ask, status: int) -> None:
    """A watch would follow it for ever, and an export would keep it as a table."""
    headers = {"content-type": "text/html; charset=utf-8", "location": "https://login.example"}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(status, content=PAGE, headers=headers)

    with pytest.raises(BadAnswer) as caught:
        run(kind, ask, transport=httpx.MockTransport(answer))
    assert caught.value.code == "bad-answer"


@pytest.mark.parametrize("ask", [_listed, _got, _applied, _planned])
@pytest.mark.parametrize("body", [b"", b"null", b"[]", PAGE, b'"\xff"', b"[" * 100_000])
def test_an_answer_that_is_not_what_was_asked_for_is_a_bad_answer(kind: str, ask: Ask, body: bytes) -> None:
    with pytest.raises(BadAnswer, match="another version"):
        run(kind, ask, transport=httpx.MockTransport(lambda _: httpx.Response(200, content=body)))


def test_a_text_that_is_none_is_a_bad_answer(kind: str) -> None:
    with pytest.raises(BadAnswer):
        run(kind, _measured, transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"\xff")))


def test_rows_that_are_none_are_a_bad_answer(kind: str) -> None:
    for body in (b"name,node\na,b\n", b'{"a": "\xff"}\n', b"[1]\n", b'{"a": 1}\n{"b"'):
        answer = httpx.Response(200, content=body, headers={"content-type": "application/x-ndjson"})
        with pytest.raises(BadAnswer):
            run(kind, _exported, transport=httpx.MockTransport(lambda _, answer=answer: answer))


def test_a_stream_of_another_media_type_is_a_bad_answer(kind: str) -> None:
    answer = httpx.Response(200, json={"status": "ok"})
    with pytest.raises(BadAnswer, match="application/json, not text/event-stream"):
        run(kind, _watched, transport=httpx.MockTransport(lambda _: answer))


# ----------------------------------------------------------------------------------- answers that break off


@contextlib.contextmanager
def serving(answer: bytes) -> Iterator[str]:
    """Serve the same bytes to each request, and close the connection behind them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.settimeout(5)
                        read_message(connection)
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def _http(body: bytes, media: str = "application/json", *, chunked: bool = False) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {media}\r\n"
    if chunked:
        return f"{head}Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_an_answer_that_breaks_off_is_no_answer_wherever_it_does(kind: str, chunked: bool) -> None:
    whole = _http(b'{"items": [], "next": null}', chunked=chunked)
    for end in range(0, len(whole), 7):
        with serving(whole[:end]) as url, pytest.raises(NoAnswer, match="does not answer"):
            run(kind, _listed, url)
    with serving(whole) as url:
        assert run(kind, _listed, url) == []


def test_rows_of_an_export_that_breaks_off_are_not_taken_for_all(kind: str, tmp_path: Any) -> None:
    whole = _http(b'{"a": 1}\n{"a": 2}\n', "application/x-ndjson", chunked=True)
    with serving(whole) as url:
        assert run(kind, _exported, url) == [{"a": 1}, {"a": 2}]
    with serving(whole[:-5]) as url:
        with pytest.raises(NoAnswer):
            run(kind, _exported, url)
        with pytest.raises(NoAnswer):
            run(kind, lambda client: client.export("decisions").save(tmp_path / "rows.ndjson"), url)
    assert list(tmp_path.iterdir()) == []


def test_what_speaks_no_http_is_no_answer_and_the_password_is_not_told(kind: str) -> None:
    with serving(b"SSH-2.0-OpenSSH_9\r\n") as url, pytest.raises(NoAnswer, match="is it https") as caught:
        run(kind, _got, url.replace("//", "//user:secret@"))
    assert "secret" not in str(caught.value)


def test_nothing_listens_there(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(NoAnswer, match="start it with `berth up`"):
        run(kind, _got, f"http://127.0.0.1:{port}", retry=Retry())
