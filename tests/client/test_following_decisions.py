"""Does a reader have each decision of the ledger once, whatever befalls ledger, relay and topic?"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.client import InvalidRequest
from berth.client.following_decisions import Follower, Step
from berth.client.kafka import Checkpoint, Decided, ShardCheckpoint
from berth.client.kafka.shard import Shard
from tests.client.decision_topics import SHARD, Reader, Record, Topic, decision

FEW = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), FEW),
        st.tuples(st.just("publish"), FEW),
        st.tuples(st.just("die"), FEW),
        st.tuples(st.just("set_back"), FEW),
        st.tuples(st.just("be_late"), st.integers(1, 12)),
        st.tuples(st.just("lose_end"), FEW, FEW),
        st.tuples(st.just("make_anew")),
        st.tuples(st.just("read"), FEW),
        st.tuples(st.just("is killed"), FEW),
        st.tuples(st.just("restart")),
    ),
    max_size=40,
)


def lived(steps: list[tuple[object, ...]]) -> tuple[Topic, Reader]:
    """Return topic and reader after some steps, and after all that was left to do."""
    topic = Topic()
    reader = Reader(topic)
    for what, *more in steps:
        if what == "is killed":
            reader.read(*more, stores=False)  # type: ignore[arg-type]
        else:
            getattr(reader if what in ("read", "restart") else topic, str(what))(*more)
    topic.decide(1)  # a ledger that has none cannot say that all are void
    topic.publish(1000)
    reader.look()
    reader.read(len(topic.records) * 4 + 10)
    return topic, reader


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_each_decision_of_the_ledger_has_its_effect_once(steps: list[tuple[object, ...]]) -> None:
    topic, reader = lived([("decide", 2), *steps])
    assert reader.effects == list(enumerate(topic.ledger, 1))


def take_any(self: Follower, seq: int, name: bytes | None, after: int | None = None) -> Step:
    """Take each seq above the last one, whether or not some are missing before it."""
    return _take(self, seq, name, 0)


def keep_void(self: Follower, seq: int, name: bytes | None, after: int | None = None) -> Step:
    """Take no heed of names."""
    return _take(self, seq, b"any", after)


def take_late(self: Follower, seq: int, name: bytes | None, after: int | None = None) -> Step:
    """Forget the names that were there before the present one."""
    del self.names[:-1]
    return _take(self, seq, name, after)


def believe(self: Shard, first: int, end: int) -> int:
    """Believe that the topic is the one that was read."""
    here = self.checkpoint().offset
    self._is_sure = self._has_just_begun = True
    return first if here is None else min(here + 1, end)


_take = Follower.take_record
BROKEN: list[tuple[type[object], str, object, list[tuple[object, ...]]]] = [
    (Follower, "take_record", take_any, [("decide", 1), ("publish", 2), ("lose_end", 1, 3)]),
    (Follower, "take_record", keep_void, [("publish", 2), ("set_back", 1)]),
    (
        Follower,
        "take_record",
        take_late,
        [("publish", 2), ("set_back", 1), ("decide", 1), ("publish", 2), ("be_late", 2)],
    ),
    (Shard, "begin", believe, [("be_late", 3), ("read", 2), ("make_anew",)]),
]


@pytest.mark.parametrize(("owner", "name", "broken", "steps"), BROKEN)
def test_a_broken_rule_is_found(
    owner: type[object],
    name: str,
    broken: object,
    steps: list[tuple[object, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not _is_wrong(steps)
    monkeypatch.setattr(owner, name, broken)
    assert _is_wrong(steps)


def test_a_checkpoint_that_is_stored_before_its_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "checkpoint_first", True)
    assert _is_wrong([("publish", 2), ("is killed", 1)])


def _is_wrong(steps: list[tuple[object, ...]]) -> bool:
    topic, reader = lived([("decide", 2), *steps])
    return reader.effects != list(enumerate(topic.ledger, 1))


def plain(records: list[tuple[int, bytes | None, int | None]]) -> list[int]:
    """Return which seqs stand after some records, word by word as docs/events.md has it."""
    last, present, before = 0, None, set[bytes]()
    stands: list[int] = []
    for seq, name, after in records:
        if name is None or name in before:  # 1
            continue
        if name != present:  # 2
            if present is not None:
                before.add(present)
                if last >= seq:
                    stands = [each for each in stands if each < seq]
                    last = seq - 1
            present = name
        if seq == last + 1 or (after is not None and after <= last < seq):  # 3
            stands.append(seq)
            last = seq
    return stands


@settings(max_examples=1000, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 8), st.sampled_from([None, b"a", b"b"]), st.none() | st.integers(0, 7)),
        max_size=20,
    )
)
def test_the_rule_is_that_of_the_documents(records: list[tuple[int, bytes | None, int | None]]) -> None:
    follower, stands = Follower(), list[int]()
    for seq, name, after in records:
        # One that says it follows a later decision than its own number's is not what a relay writes.
        after = None if after is None else min(after, seq - 1)
        if name is None:
            continue
        step = follower.take_record(seq, name, after)
        stands = [each for each in stands if each <= step.before]
        stands += [seq] if step.is_taken else []
        assert follower.seq == max(step.before, *stands, 0)
        follower = Follower(follower.seq, tuple(follower.names))
    told = [(seq, name, None if after is None else min(after, seq - 1)) for seq, name, after in records]
    assert stands == plain(told)


def shard_of(topic: Topic, seq: int = 0) -> Shard:
    shard = Shard(SHARD, ShardCheckpoint(seq))
    assert shard.begin(topic.first, topic.end) == topic.first
    return shard


def folded(shard: Shard, topic: Topic) -> list[int]:
    """Return the seqs that a reader takes which reads from where it is to the end."""
    at, seqs = shard.begin(topic.first, topic.end), list[int]()
    while at < topic.end:
        brought = shard.fold(topic.records[at - topic.first])
        at = shard.begin(topic.first, topic.end) if brought is None else at + 1
        seqs += [each.decision.seq for each in brought or () if isinstance(each, Decided)]
    return seqs


def test_what_retention_took_unread_is_said_and_can_be_passed_by() -> None:
    topic = Topic()
    topic.decide(9)
    topic.publish(9)
    topic.cut(4)
    shard = shard_of(topic, seq=2)
    assert folded(shard, topic) == []
    assert shard.lost == (3, 4)
    beyond = Shard(SHARD, shard.behind_the_lost())
    assert folded(beyond, topic) == [5, 6, 7, 8, 9]
    assert beyond.lost is None


def test_what_retention_took_after_it_was_read_is_not_missed() -> None:
    topic = Topic()
    topic.decide(9)
    topic.publish(9)
    shard = shard_of(topic)
    assert len(folded(shard, topic)) == 9
    topic.cut(9)
    again = Shard(SHARD, shard.checkpoint())
    topic.decide(1)
    topic.publish(1)
    assert folded(again, topic) == [10]
    assert again.lost is None


def test_what_the_broker_lost_is_waited_for() -> None:
    topic = Topic()
    topic.decide(6)
    topic.publish(3)
    topic.lose_end(2, 2)
    shard = shard_of(topic)
    assert folded(shard, topic) == [1]
    assert shard.lost is None
    topic.publish(9)
    assert folded(shard, topic) == [2, 3, 4, 5, 6]


def test_a_checkpoint_is_a_text_and_back() -> None:
    topic, reader = lived([("decide", 4), ("publish", 4), ("read", 9), ("set_back", 2)])
    checkpoint = Checkpoint({SHARD: reader.shard.checkpoint()})
    assert Checkpoint.from_json(checkpoint.to_json()) == checkpoint
    assert checkpoint.shards[SHARD].names == ("ledger.pg.1.0", "ledger.pg.1.1")
    assert checkpoint.shards[SHARD].seq == len(topic.ledger) == 3
    assert reader.voided == 1
    with pytest.raises(InvalidRequest, match="no checkpoint"):
        Checkpoint.from_json('{"shards": 7}')


@pytest.mark.parametrize(
    "value", [None, b"", b"[]", b"\xff", b'{"id": "2-1"}', b'{"id": "3-0"}', b'{"id": 7}']
)
def test_what_is_no_decision_is_passed_over(value: bytes | None) -> None:
    shard = Shard(SHARD, ShardCheckpoint())
    assert shard.fold(Record(0, value, (("berth-ledger", b"a"),))) == []
    assert shard.fold(Record(1, decision(1, "p"), ())) == [], "it has no name"
    brought = shard.fold(Record(2, decision(1, "p"), (("berth-ledger", b"a"),)))
    assert [type(each) for each in brought or ()] == [Decided]
