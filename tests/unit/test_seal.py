"""Does a seal hold for one record and one name, and is every other one told apart?"""

from __future__ import annotations

import pytest

from services.codec.seal import DIRECT, SENDER_BYTES_MAX, UNVERIFIED, Senders, seal
from services.ports.log import NODES_TOPIC, PODS_TOPIC, Record

SECRET = b"s" * 32
SENDERS = Senders(SECRET, {NODES_TOPIC: "User:bridge"})
PARTS = (PODS_TOPIC, b"ns/a", b"value", "key:team-a")


def record(topic: str, key: bytes | None, value: bytes | None, sealed: bytes | None) -> Record:
    return Record(topic, 0, 0, key, value, 0, sealed)


@pytest.mark.parametrize("key", [b"ns/a", b"", None])
@pytest.mark.parametrize("value", [b"value", b"", None])
def test_a_sealed_name_is_who_sent_it(key: bytes | None, value: bytes | None) -> None:
    sealed = seal(SECRET, PODS_TOPIC, key, value, "key:ä")
    assert SENDERS.of(record(PODS_TOPIC, key, value, sealed)) == "key:ä"


def test_without_a_name_the_record_was_written_to_the_log_directly() -> None:
    assert SENDERS.of(record(PODS_TOPIC, b"k", b"v", None)) == DIRECT
    assert SENDERS.of(record(NODES_TOPIC, b"k", b"v", None)) == "direct:User:bridge"


@pytest.mark.parametrize(
    "other",
    [
        (NODES_TOPIC, *PARTS[1:3]),
        (PODS_TOPIC, b"ns/b", b"value"),
        (PODS_TOPIC, b"ns/a", b"other"),
        (PODS_TOPIC, b"ns/av", b"alue"),  # the same bytes, cut elsewhere
        (PODS_TOPIC, None, b"value"),
        (PODS_TOPIC, b"ns/a", None),
    ],
)
def test_a_seal_holds_for_no_other_record(other: tuple[str, bytes | None, bytes | None]) -> None:
    assert SENDERS.of(record(*other, seal(SECRET, *PARTS))) is UNVERIFIED


def test_an_empty_value_is_no_tombstone() -> None:
    sealed = seal(SECRET, PODS_TOPIC, b"k", b"", "key:a")
    assert SENDERS.of(record(PODS_TOPIC, b"k", None, sealed)) is UNVERIFIED


def test_a_forged_seal_is_told() -> None:
    good = seal(SECRET, *PARTS)
    for forged in (
        b"",
        b"key:team-a",
        good[:32],
        good[:32] + b"key:team-b",
        seal(b"another", *PARTS),
        bytes(32) + b"key:team-a",
        good + b"x" * SENDER_BYTES_MAX,
    ):
        assert SENDERS.of(record(*PARTS[:3], forged)) is UNVERIFIED


def test_records_of_one_sender_share_one_text() -> None:
    found = [SENDERS.of(record(*PARTS[:3], seal(SECRET, *PARTS))) for _ in range(2)]
    assert found[0] is found[1]


def test_a_name_too_long_is_cut_and_still_holds() -> None:
    sealed = seal(SECRET, *PARTS[:3], "key:" + "n" * 1_000)
    assert SENDERS.of(record(*PARTS[:3], sealed)) == "key:" + "n" * (SENDER_BYTES_MAX - 4)
