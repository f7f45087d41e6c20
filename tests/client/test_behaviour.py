"""Do both clients do what they say, against a real worker and API?"""

from __future__ import annotations

import asyncio
import datetime
import functools
import gc
import importlib.util
import itertools
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.client import AsyncClient, Client, InvalidRequest, NotAllowed, NotFound, Timeout, models
from tests.client.world import OWNER_KEY, Blocked, Loop, node, pod, world

Opened = Callable[..., Any]
TOO_MUCH = "9000"
"""CPU that no node has: pods of it are there, and take no place from those of other tests."""


@pytest.fixture(scope="module")
def url(embedded_dsn: str) -> Iterator[str]:
    with world(embedded_dsn) as url:
        yield url


@pytest.fixture(params=["blocks", "awaits"])
def opened(request: pytest.FixtureRequest, url: str) -> Iterator[Opened]:
    """Return what opens a client of either kind, in the words of the one that blocks; all must be closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        if request.param == "blocks":
            yield functools.partial(Client, url)
        else:
            loop = Loop()
            yield lambda **named: Blocked(loop, loop.run(_made(url, **named)))
            loop.close()
        gc.collect()


async def _made(url: str, **named: Any) -> AsyncClient:
    return AsyncClient(url, **named)


@pytest.fixture
def berth(opened: Opened) -> Iterator[Any]:
    """Return a client that shows no key."""
    with opened() as client:
        yield client


@pytest.fixture
def space() -> str:
    return f"n-{uuid.uuid4().hex[:8]}"


def test_what_is_applied_is_placed_and_read_after_it_was_written(berth: Any, space: str) -> None:
    applied = berth.apply([node("big"), *(pod(f"p{n}", space) for n in range(30))])
    assert (applied.accepted, applied.duplicates, applied.invalid) == (31, 0, 0)
    assert {each.topic for each in applied.positions} == {"berth.nodes", "berth.pods"}
    assert len(list(berth.pods.list(namespace=space))) == 30, "a read waits for what was written"
    fates = berth.wait(applied)
    assert list(fates) == [f"{space}/p{n}" for n in range(30)]
    assert {each.node for each in fates.values()} == {"big"}
    assert all(each.is_bound for each in fates.values())
    found = berth.pods.get(space, "p7")
    assert isinstance(found, models.PodDetail)
    assert (found.phase, found.node) == ("bound", "big")


def test_what_another_client_wrote_is_read_after_it_took_effect(opened: Opened, space: str) -> None:
    with opened() as writer, opened() as reader:
        reader.read_after(writer.apply([pod(f"p{n}", space, TOO_MUCH) for n in range(30)]))
        assert len(list(reader.pods.list(namespace=space))) == 30


def test_a_wait_in_the_request_tells_the_decisions(berth: Any, space: str) -> None:
    applied = berth.apply([pod("small", space), pod("huge", space, TOO_MUCH)], wait="decided", timeout=20)
    assert applied.folded
    outcomes = {each.pod.name: each.outcome for each in applied.decisions}
    assert outcomes == {"small": "bound", "huge": "unresolvable"}
    fates = berth.wait(applied, "decided", timeout=10)
    assert (fates[f"{space}/small"].is_bound, fates[f"{space}/huge"].is_bound) == (True, False)


def test_what_is_not_there_in_time_is_named(berth: Any, space: str) -> None:
    berth.apply(pod("huge", space, TOO_MUCH))
    with pytest.raises(Timeout) as caught:
        berth.wait(f"{space}/huge", timeout=0.5)
    assert caught.value.missing == (f"{space}/huge",)
    assert "why(" in str(caught.value)


def test_a_pod_that_was_written_anew_is_not_taken_for_the_one_before(berth: Any, space: str) -> None:
    of_before = {**pod("p", space), "metadata": {"namespace": space, "name": "p", "uid": f"{space}-1"}}
    of_now = {**pod("p", space, TOO_MUCH), "metadata": {"namespace": space, "name": "p", "uid": f"{space}-2"}}
    assert berth.wait(berth.apply([node("big"), of_before]))[f"{space}/p"].is_bound
    berth.delete(of_before)
    fate = berth.wait(berth.apply(of_now), "decided", timeout=30)[f"{space}/p"]
    assert not fate.is_bound


def test_what_is_deleted_is_waited_for_until_it_is_gone(berth: Any, space: str) -> None:
    pods = [pod(f"p{n}", space) for n in range(25)]
    berth.apply(pods, wait="folded")
    berth.delete("pod", f"{space}/p0")
    assert berth.wait(f"{space}/p0", "gone")[f"{space}/p0"].is_gone
    fates = berth.wait(berth.delete(pods[1:]), "gone")
    assert len(fates) == 24
    assert list(berth.pods.list(namespace=space)) == []


def test_a_list_goes_on_page_by_page_up_to_a_limit(berth: Any, space: str) -> None:
    berth.apply([pod(f"p{n}", space, TOO_MUCH) for n in range(1_050)], wait="folded")
    assert len({each.name for each in berth.pods.list(namespace=space)}) == 1_050
    assert len(list(berth.pods.list(namespace=space, limit=7))) == 7
    assert list(berth.pods.list(namespace=space, limit=0)) == []


def test_an_object_that_makes_no_sense_is_refused_by_its_place_and_field(berth: Any, space: str) -> None:
    objects = (pod(f"p{n}", space, cpu="one" if n == 1_002 else TOO_MUCH) for n in range(1_004))
    with pytest.raises(InvalidRequest) as caught:
        berth.apply(objects)
    error = caught.value
    assert (error.code, error.status, error.sent_count) == ("invalid-events", 422, 1_000)
    assert error.path == error.field
    assert error.path == "events[1002].object.spec.containers[0].resources.requests.cpu"
    assert [each.index for each in error.details] == [1_002]
    assert "'one' is not a quantity; allowed is" in error.message
    assert str(error).count("events[1002]") == 1
    sent = berth.apply([pod("good", space), pod("bad", space, cpu="one")], partial=True)
    assert (sent.accepted, sent.invalid, sent.errors[0].index) == (1, 1, 1)


def test_a_call_that_is_repeated_under_its_key_has_effect_once(berth: Any, space: str) -> None:
    pods = [pod(f"p{n}", space) for n in range(3)]
    assert berth.apply(pods, idempotency_key=space).accepted == 3
    again = berth.apply(pods, idempotency_key=space)
    assert (again.accepted, again.duplicates) == (0, 3)
    assert berth.apply(pods).accepted == 3, "without a key each call is another one"


def test_what_is_not_there_is_not_found(berth: Any, space: str) -> None:
    with pytest.raises(NotFound) as caught:
        berth.pods.get(space, "none")
    assert (caught.value.code, caught.value.status) == ("not-found", 404)
    with pytest.raises(NotFound, match="has no decision here"):
        berth.explain(f"{space}/none")


def test_a_pod_is_explained_and_its_story_told(berth: Any, space: str) -> None:
    berth.apply([node("big"), pod("p", space)], wait="decided")
    told = berth.explain(f"{space}/p")
    assert told.decision.pod.name == "p"
    assert berth.explain(told.decision.id) == told
    story = list(berth.history(f"{space}/p"))
    assert story[-1].decision == told.decision, "attempts may go before it: pods and nodes have their topics"
    assert {each.kind for each in story} <= {"attempt", "decision"}


def test_the_past_is_asked_through_a_view(berth: Any, space: str) -> None:
    berth.apply([node("big"), pod("p", space)], wait="decided")
    then = berth.at(datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=1))
    assert [each.name for each in then.pods.list(namespace=space)] == ["p"]
    before = berth.at("1d")
    assert before.moment.endswith("Z"), "an age is taken from now on"
    assert list(before.pods.list(namespace=space)) == []
    assert before.cluster.totals().nodes == 0
    with pytest.raises(ValueError, match="cannot be asked of the past"):
        before.pods.why(space, "p")
    with pytest.raises(ValueError, match="says no offset"):
        berth.at(datetime.datetime(2026, 1, 1))


def test_a_plan_says_where_pods_would_go_now_and_then(berth: Any, space: str) -> None:
    berth.apply([node("big"), pod("p", space)], wait="decided")
    planned = berth.plan([pod("a", space), pod("b", space, TOO_MUCH)], cures=True)
    assert [(each.pod, each.node) for each in planned.pods] == [(f"{space}/a", "big"), (f"{space}/b", None)]
    assert "cpu" in planned.pods[1].why
    assert [each.pod for each in planned.cures] == [f"{space}/b"]
    text = f"kind: Pod\nmetadata: {{name: c, namespace: {space}}}\nspec: {{containers: [{{name: c}}]}}\n"
    more = berth.plan(text, how_many=True)
    assert (more.placed, more.waiting, more.more[0].pod) == (1, 0, f"{space}/c")
    assert berth.at("1d").plan(pod("a", space)).nodes == 0
    assert [each.name for each in berth.pods.list(namespace=space)] == ["p"], "nothing was written"
    with pytest.raises(InvalidRequest, match="'none' is not in force"):
        berth.plan(pod("a", space), profile="none")


def test_what_happens_is_watched_and_gone_on_behind_an_id(berth: Any, space: str) -> None:
    with berth.watch(namespace=space, kinds=["decisions", "releases"], marks=True) as watch:
        begins = next(watch)
        assert begins.is_mark
        berth.apply([pod("a", space), pod("b", space)])
        seen = list(itertools.islice((each for each in watch if not each.is_mark), 2))
    assert [each.decision.pod.name for each in seen] == ["a", "b"]
    assert {each.kind for each in seen} == {"decisions"}
    for after, names in ((begins.id, ["a", "b"]), (seen[0].id, ["b"])):
        with berth.watch(namespace=space, after=after) as again:
            assert [next(again).decision.pod.name for _ in names] == names
            assert again.last_id is not None


async def test_a_watch_that_is_waited_for_with_a_limit_goes_on(url: str, space: str) -> None:
    async with AsyncClient(url) as client, client.watch(namespace=space, kinds=["decisions"]) as watch:
        for name in ("a", "b"):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(watch), 0.5)
            await client.apply([node("big"), pod(name, space)])
            decision = (await asyncio.wait_for(anext(watch), 20)).decision
            assert decision is not None
            assert decision.pod.name == name
        await watch.aclose()
        assert [each async for each in watch] == []


def test_a_table_is_rows_a_file_or_a_frame(berth: Any, space: str, tmp_path: Path) -> None:
    berth.apply([node("big"), *(pod(f"p{n}", space) for n in range(5))], wait="decided")
    table = berth.export("placements", namespace=space)
    rows = list(table)
    assert sorted(each["name"] for each in rows) == [f"p{n}" for n in range(5)]
    saved = table.save(tmp_path / "placements.csv")
    assert saved.read_text().count("\n") == 6
    frame = table.to_pandas()
    assert sorted(frame["name"]) == [f"p{n}" for n in range(5)]
    assert str(frame["bound_at"].dtype).endswith("UTC]")


def test_a_frame_is_the_same_without_parquet(berth: Any, space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert importlib.util.find_spec("pyarrow"), "else both are read in the same way"
    berth.apply([node("big"), pod("p", space)], wait="decided")
    first = berth.export("placements", namespace=space).to_pandas()
    monkeypatch.setattr("berth.client._sync.export.reads_parquet", lambda: False)
    monkeypatch.setattr("berth.client._async.export.reads_parquet", lambda: False)
    second = berth.export("placements", namespace=space).to_pandas()
    assert list(first.columns) == list(second.columns)
    assert (first["bound_at"] == second["bound_at"]).all()


def test_keys_are_made_shown_and_revoked(opened: Opened, space: str) -> None:
    with opened(key=OWNER_KEY) as owner:
        made = owner.keys.create(models.KeyToMake(name=space, roles=["admin"]))
        owner.keys.create(models.KeyToMake(name=f"{space}-2", roles=["admin"]))
        assert made.key.startswith("berth_")
        with opened(key=made.key) as admin:
            assert space in [each.name for each in admin.keys.list()]
            assert admin.keys.revoke(space).revoked == 1
        with opened(key=made.key) as revoked, pytest.raises(NotAllowed) as caught:
            list(revoked.keys.list())
        assert (caught.value.status, caught.value.code) == (401, "unauthorized")
