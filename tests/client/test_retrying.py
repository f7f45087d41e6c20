"""Is sent again what may be, as often and as late as it should, and never what must not be?"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.client import AsyncClient, Client, InvalidRequest, NoAnswer, Refused, Retry, Unavailable, models
from berth.client._sync import resources
from berth.client._sync.asking import Resource
from berth.client.requests import Request
from berth.client.retrying import NEVER, WAIT_SECONDS_MAX

URL = "https://berth.example"
QUICK = Retry(seconds_min=0, seconds_max=0)
INGESTED = {"accepted": 1, "duplicates": 0, "invalid": 0, "errors": [], "positions": []}
POD = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
KEY_TO_MAKE = models.KeyToMake(name="robot", roles=["admin"])

Step = int | type[httpx.HTTPError] | httpx.Response
Ask = Callable[[Any], Any]


def error_body(code: str = "unavailable") -> dict[str, Any]:
    return {"error": {"code": code, "message": f"it is {code}"}}


class Script:
    """Answers one request after another as it was told, and keeps what was sent."""

    def __init__(self, *steps: Step) -> None:
        self._steps: Iterator[Step] = itertools.chain(steps, itertools.repeat(200))
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = next(self._steps)
        if isinstance(step, httpx.Response):
            return step
        if isinstance(step, int):
            return httpx.Response(step, json=error_body() if step >= 400 else {"items": [], "next": None})
        raise step("it broke off")

    @property
    def sent(self) -> list[tuple[str, str]]:
        return [(each.method, each.url.path) for each in self.requests]


async def _awaited(script: Script, ask: Ask, has_answered: bool, **named: Any) -> Any:
    async with AsyncClient(URL, transport=httpx.MockTransport(script), **named) as client:
        client._connection.has_answered = has_answered
        answer = ask(client)
        return [each async for each in answer] if hasattr(answer, "__aiter__") else await answer


def run(kind: str, script: Script, ask: Ask, *, has_answered: bool = True, **named: Any) -> Any:
    """Ask once by either kind of client, of an API that answered before unless said otherwise."""
    named = {"retry": QUICK, **named}
    if kind == "awaits":
        return asyncio.run(_awaited(script, ask, has_answered, **named))
    with Client(URL, transport=httpx.MockTransport(script), **named) as client:
        client._connection.has_answered = has_answered
        answer = ask(client)
        return list(answer) if inspect.isgenerator(answer) else answer


@pytest.fixture(params=["blocks", "awaits"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _listed(client: Any) -> Any:
    return client.nodes.list()


def _applied(client: Any) -> Any:
    return client.apply(POD)


def _key_made(client: Any) -> Any:
    return client.keys.create(KEY_TO_MAKE)


def _resent(client: Any) -> Any:
    return client.deadletters.resend("1")


def _key_revoked(client: Any) -> Any:
    return client.keys.revoke("robot")


def _planned(client: Any) -> Any:
    return client.plan(POD)


# ------------------------------------------------------------------------------------------------- waits


@given(st.integers(1, 10_000))
def test_a_wait_doubles_up_to_its_maximum_and_varies_by_a_quarter(tried: int) -> None:
    """A watch waits for an API as long as it takes: a night has more tries than a float has doublings."""
    retry = Retry(seconds_min=0.5, seconds_max=4.0)
    wanted = min(0.5 * 2.0 ** min(tried - 1, 20), 4.0)
    assert 0.75 * wanted <= retry.wait(tried) <= 1.25 * wanted


def test_waits_differ_so_that_clients_do_not_come_back_at_once() -> None:
    assert len({Retry().wait(3) for _ in range(20)}) > 10


@pytest.mark.parametrize(
    ("told", "seconds"), [("0", 0.0), ("7", 7.0), ("3600", WAIT_SECONDS_MAX), ("9" * 400, WAIT_SECONDS_MAX)]
)
def test_what_the_api_says_goes_before_up_to_a_maximum(told: str, seconds: float) -> None:
    assert Retry().wait(1, told) == seconds


@pytest.mark.parametrize("told", [None, "", "soon", "-1", "1.5", "²", "Fri, 31 Dec 1999 23:59:59 GMT", "nan"])
def test_a_wait_that_cannot_be_read_is_as_if_none_was_said(told: str | None) -> None:
    assert 0.75 <= Retry(seconds_min=1.0).wait(1, told) <= 1.25


def test_it_goes_on_up_to_so_many_tries_and_so_long() -> None:
    retry = Retry(tries=3, total_seconds=10.0)
    assert [retry.goes_on(tried, 0.0) for tried in (1, 2, 3, 4)] == [True, True, False, False]
    assert [retry.goes_on(1, seconds) for seconds in (9.9, 10.0, 11.0)] == [True, False, False]
    assert not NEVER.goes_on(1, 0.0)


# ------------------------------------------------------------------------------------ what is sent again


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_question_is_asked_again_until_there_is_an_answer(kind: str, status: int) -> None:
    script = Script(status, status)
    assert run(kind, script, _listed) == []
    assert script.sent == [("GET", "/v1/nodes")] * 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 413, 422, 500, 501])
def test_what_would_not_help_is_not_asked_again(kind: str, status: int) -> None:
    script = Script(status)
    with pytest.raises(Unavailable if status == 500 else Refused):
        run(kind, script, _listed)
    assert len(script.sent) == 1


def test_the_last_try_tells_what_was_wrong(kind: str) -> None:
    script = Script(*[503] * 9)
    with pytest.raises(Unavailable, match="it is unavailable"):
        run(kind, script, _listed, retry=Retry(tries=4, seconds_min=0, seconds_max=0))
    assert len(script.sent) == 4


def test_each_wait_is_told_before_it_begins(kind: str) -> None:
    told = list[tuple[float, str]]()
    slow = httpx.Response(429, json=error_body("rate-exceeded"), headers={"Retry-After": "0"})
    run(kind, Script(slow, httpx.ReadError), _listed, told=lambda *each: told.append(each))
    assert [seconds for seconds, _ in told] == [0.0, 0.0]
    assert told[0][1] == "it is rate-exceeded"
    assert "it broke off" in told[1][1]


LOST = (httpx.ReadError, httpx.ReadTimeout, httpx.WriteError, httpx.RemoteProtocolError, httpx.CloseError)


@pytest.mark.parametrize("lost", LOST)
def test_an_answer_that_was_lost_is_asked_for_again(kind: str, lost: type[httpx.HTTPError]) -> None:
    script = Script(lost, httpx.ConnectError)
    assert run(kind, script, _listed) == []
    assert len(script.sent) == 3


def test_an_api_that_was_never_there_is_not_waited_for(kind: str) -> None:
    script = Script(httpx.ConnectError)
    with pytest.raises(NoAnswer, match="does not answer"):
        run(kind, script, _listed, has_answered=False)
    assert len(script.sent) == 1


def test_nothing_is_sent_again_where_that_is_not_wanted(kind: str) -> None:
    for step in (503, httpx.ReadError):
        script = Script(step)
        with pytest.raises((Unavailable, NoAnswer)):
            run(kind, script, _listed, retry=NEVER)
        assert len(script.sent) == 1
    script = Script(httpx.ReadError)
    with pytest.raises(NoAnswer):
        run(kind, script, _listed, retry=Retry(reconnects=False))
    assert len(script.sent) == 1


@pytest.mark.parametrize("step", [429, 502, 503, 504, *LOST])
def test_events_are_sent_again_with_the_same_ids(kind: str, step: Step) -> None:
    script = Script(step, step, httpx.Response(202, json=INGESTED))
    assert run(kind, script, _applied).accepted == 1
    assert script.sent == [("POST", "/v1/events")] * 3
    assert len({each.content for each in script.requests}) == 1
    ids = [each["id"] for each in json.loads(script.requests[0].content)]
    assert len(ids) == len(set(ids)) == 1


def test_another_call_has_other_ids(kind: str) -> None:
    sent = []
    for _ in range(2):
        script = Script(httpx.Response(202, json=INGESTED))
        run(kind, script, _applied)
        sent.append(script.requests[0].content)
    assert sent[0] != sent[1]


@pytest.mark.parametrize("ask", [_key_made, _resent])
@pytest.mark.parametrize("step", [502, 503, 504, *LOST])
def test_what_has_effect_twice_is_never_sent_twice(kind: str, ask: Ask, step: Step) -> None:
    """Also a 503 may be of a database that went away once it had the key."""
    script = Script(step)
    with pytest.raises((NoAnswer, Unavailable)):
        run(kind, script, ask)
    assert len(script.sent) == 1


@pytest.mark.parametrize("step", [429, httpx.ConnectError, httpx.ConnectTimeout])
def test_what_has_effect_twice_is_sent_again_where_it_was_not_taken(kind: str, step: Step) -> None:
    made = httpx.Response(201, json={"name": "robot", "key": "berth_x"})
    script = Script(step, made)
    assert run(kind, script, _key_made).key == "berth_x"
    assert script.sent == [("POST", "/v1/keys")] * 2


@pytest.mark.parametrize("step", [503, httpx.ReadError])
def test_a_plan_writes_nothing_and_a_key_is_revoked_once_for_all(kind: str, step: Step) -> None:
    script = Script(step, httpx.Response(422, json=error_body("invalid-field")))
    with pytest.raises(InvalidRequest):
        run(kind, script, _planned)
    assert script.sent == [("POST", "/v1/plan")] * 2
    script = Script(step, httpx.Response(200, json={"name": "robot", "revoked": 1}))
    assert run(kind, script, _key_revoked).revoked == 1
    assert script.sent == [("DELETE", "/v1/keys/robot")] * 2


def test_each_question_that_writes_is_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is added later has to be looked at: is it sent again?"""
    asked = list[Request[Any]]()

    class Asker:
        def ask(self, request: Request[Any]) -> None:
            asked.append(request)

        def pages(self, request: Request[Any], limit: int | None = None) -> None:
            asked.append(request)

    for name, each in vars(resources).items():
        if not (inspect.isclass(each) and issubclass(each, Resource)) or each is Resource:
            continue
        for method in [found for key, found in vars(each).items() if not key.startswith("_")]:
            given_names = [
                key
                for key, value in list(inspect.signature(method).parameters.items())[1:]
                if value.default is inspect.Parameter.empty
            ]
            functools.partial(method, each(Asker()))(**dict.fromkeys(given_names, "x"))  # type: ignore[arg-type]
            assert asked, name
    writes = {(each.method, each.path): each.is_repeatable for each in asked if each.method != "GET"}
    assert writes == {
        ("POST", "/v1/keys"): False,
        ("DELETE", "/v1/keys/x"): True,
        ("POST", "/v1/deadletters/x/resend"): False,
    }


def test_whether_it_is_ready_is_answered_at_once_also_where_it_is_not(kind: str) -> None:
    not_ready = {"status": "not-ready", "checks": {}}
    script = Script(httpx.Response(503, json=not_ready, headers={"Retry-After": "1"}))
    answer = run(kind, script, lambda client: client.cluster.readiness())
    assert len(script.sent) == 1
    assert answer is not None


# --------------------------------------------------------------------------------- what was written before


def test_what_the_ledger_has_not_in_time_is_told_at_once_and_not_waited_for_again() -> None:
    script = Script(httpx.Response(503, json=error_body("not-yet")))
    with Client(URL, transport=httpx.MockTransport(script), retry=QUICK) as client:
        client._written.ends["berth.pods", 0] = 7
        with pytest.raises(Unavailable) as caught:
            list(client.nodes.list())
        assert caught.value.code == "not-yet"
        assert list(client.nodes.list()) == []
    assert [each.url.params.get("wait") for each in script.requests] == ["berth.pods/0/7", None]


def test_a_question_waits_for_more_than_the_api_takes_at_once() -> None:
    script = Script()
    with Client(URL, transport=httpx.MockTransport(script), retry=QUICK) as client:
        client._written.ends.update({("berth.pods", number): number for number in range(120)})
        assert list(client.nodes.list()) == []
    waited = [each.url.params["wait"].split(",") for each in script.requests]
    assert [len(each) for each in waited] == [50, 50, 20]
    assert len({each for some in waited for each in some}) == 120
