"""httpx without its own command line, which takes longer to import than all the rest of it."""

from __future__ import annotations

import sys

sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx goes on where it is missing
import httpx  # noqa: E402

__all__ = ["httpx"]
