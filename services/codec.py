"""The codec: what turns records of the log into events, and decisions and events into records."""

from __future__ import annotations

from services.decoding import Decoded, Decoder
from services.encoding import (
    decision_key,
    encode_decision,
    encode_event,
    event_topic_and_key,
    template_fragment,
)
from services.envelope import EVENT_TYPES, KINDS, Rejected

__all__ = [
    "EVENT_TYPES",
    "KINDS",
    "Decoded",
    "Decoder",
    "Rejected",
    "decision_key",
    "encode_decision",
    "encode_event",
    "event_topic_and_key",
    "template_fragment",
]
