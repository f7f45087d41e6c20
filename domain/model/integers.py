"""The one rule of which label values are integers."""

from __future__ import annotations

_BITS = 64
_DIGITS_MAX = 63  # as long as a label value may be


def integer(text: str) -> int | None:
    """Return a label value as a decimal 64-bit integer, None for any other text.

    A value with a sign is no label value, so kube-scheduler matches no node by it. ``int`` would also take
    ``1_0``, which is a valid label value but no number to Kubernetes.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if number < 1 << _BITS - 1 else None
