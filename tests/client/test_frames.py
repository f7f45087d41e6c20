"""Is a stream of events cut into the same frames, however it comes in pieces?"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.client import BadAnswer, NoLongerKept, Unavailable, models
from berth.client.events import ending, event_of
from berth.client.frames import Frame, Frames

STREAM = (
    b"retry: 1000\n: begins\nid: l-4\n\n"
    b'id: l-5\nevent: decisions\ndata: {"seq": 1}\n\n'
    b": heartbeat\nid: l-7\n\n"
    b"id: l-8\nevent: nodes\ndata: first\ndata:second\ndata\n\n"
    b"event: end\ndata: {}\n\n"
)
FRAMES = [
    Frame("l-4", "", b""),
    Frame("l-5", "decisions", b'{"seq": 1}'),
    Frame("l-7", "", b""),
    Frame("l-8", "nodes", b"first\nsecond\n"),
    Frame("l-8", "end", b"{}"),
]
ENDS = {"\\n": b"\n", "\\r\\n": b"\r\n", "\\r": b"\r"}


def _cut(text: bytes, places: Sequence[int]) -> Iterator[bytes]:
    begins = 0
    for end in sorted(places):
        yield text[begins:end]
        begins = end
    yield text[begins:]


def _fed(parts: Iterator[bytes] | Sequence[bytes]) -> list[Frame]:
    frames = Frames()
    return [frame for part in parts for frame in frames.feed(part)]


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_a_stream_is_cut_at_each_byte(end: bytes) -> None:
    text = STREAM.replace(b"\n", end)
    for at in range(len(text) + 1):
        assert _fed([text[:at], text[at:]]) == FRAMES, at
    assert _fed([text[at : at + 1] for at in range(len(text))]) == FRAMES


@given(st.data(), st.sampled_from(list(ENDS.values())))
def test_a_stream_is_cut_anywhere_and_often(data: st.DataObject, end: bytes) -> None:
    text = STREAM.replace(b"\n", end)
    assert _fed(_cut(text, data.draw(st.lists(st.integers(0, len(text)), max_size=20)))) == FRAMES


LINES = STREAM.split(b"\n")[:-1]


@given(st.lists(st.sampled_from(list(ENDS.values())), min_size=len(LINES), max_size=len(LINES)), st.data())
def test_line_ends_may_be_mixed(ends: list[bytes], data: st.DataObject) -> None:
    """A return and a line feed behind it are one end: an empty line between them needs another one."""
    text = b""
    for line, end in zip(LINES, ends, strict=True):
        text += line + (b"\r" if not line and text.endswith(b"\r") and end == b"\n" else end)
    assert _fed(_cut(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8)))) == FRAMES


@given(st.binary(max_size=200))
def test_whatever_comes_is_cut_without_an_error(text: bytes) -> None:
    whole = _fed([text])
    assert _fed([text[at : at + 1] for at in range(len(text))]) == whole


def test_what_is_not_whole_is_no_frame() -> None:
    assert _fed([STREAM[:-1]]) == FRAMES[:-1]


def test_a_comment_alone_says_that_something_came_and_nothing_happened() -> None:
    assert _fed([b": heartbeat\n\n"]) == [Frame("", "", b"")]
    assert event_of(Frame("", "", b"")) is None
    assert _fed([b"id: l-1\n\n: heartbeat\n\n\n\n"]) == [Frame("l-1", "", b""), Frame("l-1", "", b"")]


def test_a_value_may_hold_colons_and_begin_with_blanks() -> None:
    assert _fed([b"id:a:b\nevent: x: y\ndata:  z\n\n"]) == [Frame("a:b", "x: y", b" z")]


def test_fields_that_nobody_knows_are_passed_over() -> None:
    assert _fed([b"later: 1\nid: l-1\nevent: nodes\ndata: 1\nid-of: 2\n\n"]) == [Frame("l-1", "nodes", b"1")]


def test_a_long_frame_in_many_pieces_takes_time_in_proportion() -> None:
    """Joining all that waits with each piece would copy 20 GB."""
    piece = b"x" * 1_000
    began = time.process_time()
    frames = _fed([b"data: ", *[piece] * 6_400, b"\n\n"])
    assert len(frames[0].data) == 6_400_000
    assert time.process_time() - began < 2


@pytest.mark.parametrize("data", [b"", b"<html>", b'{"seq": "x"}', b"[]", b'"\xff"', b"[" * 100_000])
def test_an_event_that_cannot_be_read_is_a_bad_answer(data: bytes) -> None:
    for kind in ("decisions", "nodes", "shards"):
        with pytest.raises(BadAnswer):
            event_of(Frame("l-1", kind, data))
    with pytest.raises(BadAnswer):
        ending(Frame("", "end", data), "l-1")


def test_an_event_of_a_later_api_is_passed_over() -> None:
    assert event_of(Frame("l-1", "quotas", b"{}")) is None


def test_the_end_of_a_stream_says_whether_it_can_go_on() -> None:
    where = '"details": [{"path": "id", "message": "l-9"}]'
    for code in ("not-kept", "another-ledger"):
        text = f'{{"error": {{"code": "{code}", "message": "gone", {where}}}}}'
        error = ending(Frame("", "end", text.encode()), "l-3")
        assert isinstance(error, NoLongerKept)
        assert (error.code, error.last_id, error.begin_at) == (code, "l-3", "l-9")
    for code in ("stopping", "time", "slow-reader", "unavailable"):
        text = f'{{"error": {{"code": "{code}", "message": "later"}}}}'
        error = ending(Frame("", "end", text.encode()), "l-3")
        assert isinstance(error, Unavailable), code


def test_an_event_is_read_as_the_struct_of_its_kind() -> None:
    change = b'{"node": "n", "change": "ready"}'
    with pytest.raises(BadAnswer, match="another version"):
        event_of(Frame("l-1", "nodes", change))
    mark = event_of(Frame("l-1", "", b""))
    assert mark is not None
    assert (mark.is_mark, mark.decision, mark.data) == (True, None, None)
    assert models.NodeChange.__struct_fields__
