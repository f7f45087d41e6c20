"""httpx without its own command line, which takes longer to import than all else, and what is over it."""

from __future__ import annotations

import sys

sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # httpx goes on where it is missing
import httpx  # noqa: E402

from berth.client._async.connection import AsyncConnection, proves  # noqa: E402
from berth.client._async.following import frames  # noqa: E402

__all__ = ["AsyncConnection", "frames", "httpx", "proves"]
