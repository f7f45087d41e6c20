"""The one rule of which label and taint values are integers."""

from __future__ import annotations

_BITS = 64
_DIGITS_MAX = 63  # as long as a label value may be


def integer(text: str) -> int | None:
    """Return a decimal 64-bit integer, None for any other text.

    Stricter than ``int``, which also takes ``1_0``: a valid label value, and no number to Kubernetes.
    """
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS_MAX:
        return None
    number = int(text)
    return number if -(1 << _BITS - 1) <= number < 1 << _BITS - 1 else None
