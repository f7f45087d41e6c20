"""Templates as canonical bytes: the basis of equality, of the ledger's rows and of the signature."""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from domain.model.pods import PodTemplate

SIGNATURE_BYTES = 16

_ENCODER = msgspec.json.Encoder(order="deterministic")
_LATER_DEFAULTS = (
    b',"memory_claim":null',
    b',"excluded":[]',
    b',"gang":""',
    b',"features":[]',
    b',"volume_images":[]',
    b',"pod_anti_affinity":null',
    b',"pod_affinity":null',
    b',"spread":[]',
    b',"missing":[]',
    b',"priority_class":""',
    b',"ignored":[]',
)
"""The defaults of the fields that templates did not have from the start, the last one first."""

_ALL_LATER_DEFAULTS = b"".join(reversed(_LATER_DEFAULTS)) + b"}"


def template_to_json(template: PodTemplate) -> bytes:
    """Return the canonical JSON of a template: equal exactly when the templates are equal.

    Fields that came later are left out at the end as far as they have their defaults, so that a template
    keeps the signature that a ledger has it by.
    """
    data = _ENCODER.encode(template)
    if data.endswith(_ALL_LATER_DEFAULTS):  # as most have
        return data[: -len(_ALL_LATER_DEFAULTS)] + b"}"
    end = len(data) - 1
    for default in _LATER_DEFAULTS:
        if not data.endswith(default, 0, end):
            break
        end -= len(default)
    return data[:end] + b"}"


def signature(template: PodTemplate) -> bytes:
    """Return 16 bytes that are equal exactly when the templates are equal."""
    return blake2b(template_to_json(template), digest_size=SIGNATURE_BYTES).digest()


def tie_salt(signature: bytes) -> int:
    """Return 64 bits that make each group prefer different nodes among those of equal score."""
    return int.from_bytes(blake2b(signature, digest_size=8).digest(), "big")
